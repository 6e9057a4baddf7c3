//! Reentrant distributed mutex on ZooKeeper.
//!
//! Users depend on `lock-recipes`, which re-exports this crate.

mod guard;
mod mutex;

pub use guard::MutexGuard;
pub use mutex::InterProcessMutex;
