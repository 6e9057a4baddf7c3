//! Proof of holding a mutex.

use std::ops::Deref;

use recipes_core::{FencingToken, LockGuard, LostError, ReleaseError};

/// Proof that an [`InterProcessMutex`](crate::InterProcessMutex) is held.
///
/// Everything that guards of all locks can do ([`state`](LockGuard::state),
/// [`is_valid`](LockGuard::is_valid), [`lost`](LockGuard::lost), [`run`](LockGuard::run),
/// [`verify`](LockGuard::verify), [`transaction`](LockGuard::transaction),
/// [`hold_count`](LockGuard::hold_count)) comes by dereference to [`LockGuard`].
///
/// Dropping the guard releases in the background, from any task or thread.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct MutexGuard {
    guard: LockGuard,
}

impl MutexGuard {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        self.guard.only_path()
    }

    /// A number that rises with every grant of this lock, over all processes: hand it to a store
    /// that refuses writes with a lower one than it has seen.
    ///
    /// Re-entry does not change it. See [`FencingToken`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.only_fencing_token()
    }

    /// Makes another guard of the same hold, at once and without a request.
    ///
    /// # Errors
    /// [`LostError`] if the lock is lost.
    pub fn reenter(&self) -> Result<Self, LostError> {
        self.guard.reenter().map(Self::new)
    }

    /// Releases the lock, or counts down where other guards of the hold live.
    ///
    /// # Errors
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    /// The release goes on in the background when the future is dropped.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }
}

impl Deref for MutexGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl From<MutexGuard> for LockGuard {
    fn from(guard: MutexGuard) -> Self {
        guard.guard
    }
}
