//! A ZooKeeper ensemble in this process, or a store as that on Redis.
//!
//! | file | noun |
//! |---|---|
//! | `ensemble`, `builder` | the handle that tests hold, and how it is set up |
//! | `options`, `acl` | how a session is set up, and who may use which node |
//! | `operator` | nodes, as a test sees and changes them |
//! | `outages` | what a test does to leaders, disks and machines |
//! | `forgetting` | what a test does to a store as that on Redis |
//! | `faults`, `random` | what goes wrong, and the only source of randomness |
//! | `seam` | the traits of `recipes-core`, as the locks use them |
//! | `state` | what the ensemble knows: sessions, requests, watches |
//! | `tree` | the znodes |
//!
//! Two rules keep it simple. All state is behind one mutex, which is never held across an await;
//! wakers run after it is released. Futures hold only numbers (of a request, of a watch), so none
//! is ever dropped under the mutex. One exception: news to a keeper are handed out under it, so that
//! no later answer overtakes them.

mod acl;
mod builder;
mod ensemble;
mod error;
mod faults;
mod forgetting;
mod operator;
mod options;
mod outages;
mod random;
mod seam;
mod state;
mod tree;

pub use builder::MemoryBuilder;
pub use ensemble::MemoryEnsemble;
pub use error::MemoryError;
pub use faults::{Faults, Lost};
pub use forgetting::Checkpoint;
pub use options::MemoryOptions;
#[doc(hidden)]
pub use random::Random;
#[doc(hidden)]
pub use seam::traits::ZOOKEEPER;
pub use state::request::{Operation, Request};
