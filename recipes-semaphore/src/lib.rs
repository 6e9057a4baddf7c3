//! A semaphore over processes, on ZooKeeper, etcd, Redis, PostgreSQL, MySQL or MariaDB: the store is that of the session.
//!
//! An [`InterProcessSemaphore`] lets no more than a number of holders in, first come, first served, each with one or
//! several permits. A [`SemaphorePermit`] is the proof of holding. On ZooKeeper it shares its permits with Curator's
//! `InterProcessSemaphoreV2` on the same path.
//!
//! Services depend on `lock-recipes`, which re-exports this crate and has the stores.

mod mutex;
mod permit;
mod semaphore;

pub use mutex::InterProcessSemaphoreMutex;
pub use permit::SemaphorePermit;
pub use semaphore::InterProcessSemaphore;
