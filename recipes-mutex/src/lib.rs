//! Reentrant distributed mutex on ZooKeeper.
//!
//! Users depend on `zookeeper-recipes`, which re-exports it.

mod guard;
mod mutex;

pub use guard::MutexGuard;
pub use mutex::InterProcessMutex;
