//! The mutexes and atomics of this crate, and the one function that locks.
//!
//! Tests that explore how threads interleave take them from `shuttle`. Only they use this feature:
//! `cargo test -p recipes-core --features shuttle --lib races`.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks, and ignores that a thread panicked under the lock: no critical section of this crate
/// leaves its data half changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
