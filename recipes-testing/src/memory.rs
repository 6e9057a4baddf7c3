//! A ZooKeeper ensemble in this process.
//!
//! | file | noun |
//! |---|---|
//! | `ensemble`, `builder` | the handle that tests hold, and how it is set up |
//! | `outages` | what a test does to leaders, disks and machines |
//! | `backend`, `nodes`, `reply`, `watch_future` | the seam that the locks use |
//! | `shared`, `state`, `requests`, `flights`, `sessions` | the one lock, what it protects, what changes it |
//! | `arrivals`, `deposed` | requests in flight; a leader that was deposed |
//! | `record`, `watches`, `call` | one session, its watches, its requests |
//! | `tree`, `transaction`, `history`, `node_path`, `access` | the znodes |
//! | `faults`, `random` | what goes wrong, and the only source of randomness |
//!
//! Two rules keep it simple. All state is behind one mutex, which is never held across an await;
//! wakers run after it is released. Futures hold only numbers (of a request, of a watch), so none
//! is ever dropped under the mutex.

mod access;
mod arrivals;
mod backend;
mod builder;
mod call;
mod deposed;
mod ensemble;
mod error;
mod faults;
mod flights;
mod history;
mod node_path;
mod nodes;
mod outages;
pub(crate) mod random;
mod record;
mod reply;
mod requests;
mod sessions;
mod shared;
mod state;
mod transaction;
mod tree;
mod watch_future;
mod watches;

pub use builder::MemoryBuilder;
pub use call::{Operation, Request};
pub use ensemble::MemoryEnsemble;
pub use error::MemoryError;
pub use faults::{Faults, Lost};
