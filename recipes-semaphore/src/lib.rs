//! Distributed semaphore on ZooKeeper.
//!
//! Users depend on `lock-recipes`, which re-exports this crate.

mod mutex;
mod permit;
mod semaphore;

pub use mutex::InterProcessSemaphoreMutex;
pub use permit::SemaphorePermit;
pub use semaphore::InterProcessSemaphore;
