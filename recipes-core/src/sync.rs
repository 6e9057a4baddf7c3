//! The one way in which this crate locks a `std` mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic elsewhere while it was locked does not spread, since no critical section of this
/// crate leaves its data half changed.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
