//! Where this crate's locks and atomics come from, and the one way in which it locks.
//!
//! Tests that explore how threads interleave take them from `shuttle` (feature `shuttle`, for nobody
//! else): `cargo test -p recipes-core --features shuttle --lib races`.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks; a panic elsewhere while it was locked does not spread, since no critical section of this
/// crate leaves its data half changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
