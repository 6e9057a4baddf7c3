//! Leader election on every store, shared with Curator's `LeaderSelector` and `LeaderLatch`.
//!
//! | file | noun |
//! |---|---|
//! | `election` | the handle: campaigns, who leads, who waits |
//! | `leadership` | the guard of a term |
//! | `candidate` | a contender for the leadership, as others see it |
//! | `observer` | follows who leads |
//! | `latch`, `latch_watcher` | a candidate in the background; whether it leads |
//!
//! Users depend on `lock-recipes`, which re-exports this crate.

mod candidate;
mod election;
mod latch;
mod latch_watcher;
mod leadership;
mod observer;

pub use candidate::Candidate;
pub use election::{ElectionLayout, LeaderElection};
pub use latch::LeaderLatch;
pub use latch_watcher::LatchWatcher;
pub use leadership::Leadership;
pub use observer::LeaderObserver;
