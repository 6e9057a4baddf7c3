//! Distributed read/write lock on ZooKeeper.
//!
//! Users depend on `lock-recipes`, which re-exports this crate.

mod guards;
mod handles;
mod lock;

pub use guards::{ReadGuard, WriteGuard};
pub use handles::{ReadLock, WriteLock};
pub use lock::InterProcessReadWriteLock;
