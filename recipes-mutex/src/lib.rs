//! Reentrant distributed mutex on ZooKeeper.
//!
//! Users depend on `zookeeper-recipes`, which re-exports this crate.

mod guard;
mod mutex;

pub use guard::MutexGuard;
pub use mutex::InterProcessMutex;
