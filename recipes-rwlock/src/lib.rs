//! A read/write lock over processes, on ZooKeeper, etcd, Redis, PostgreSQL, MySQL or MariaDB: the store is that of the session.
//!
//! Any number of readers, or one writer, in the order in which they came: a reader of an
//! [`InterProcessReadWriteLock`] waits for earlier writers only. A [`WriteGuard`] can be downgraded to a
//! [`ReadGuard`] without a gap. On ZooKeeper it excludes Curator's `InterProcessReadWriteLock` on the same path.
//!
//! Services depend on `lock-recipes`, which re-exports this crate and has the stores.

mod guards;
mod handles;
mod lock;

pub use guards::{ReadGuard, WriteGuard};
pub use handles::{ReadLock, WriteLock};
pub use lock::InterProcessReadWriteLock;
