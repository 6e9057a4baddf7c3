//! A reentrant mutex over processes, on ZooKeeper, etcd, Redis, PostgreSQL, MySQL or MariaDB: the store is that of the session.
//!
//! [`InterProcessMutex`] is first come, first served, and its holder learns of a lost lock before anybody else gets
//! it. A [`MutexGuard`] is the proof of holding; its fencing token makes late writes harmless. On ZooKeeper it excludes
//! Curator's `InterProcessMutex`, and the locks of kazoo and Go, on the same path.
//!
//! Services depend on `lock-recipes`, which re-exports this crate and has the stores.

mod guard;
mod mutex;

pub use guard::MutexGuard;
pub use mutex::InterProcessMutex;
