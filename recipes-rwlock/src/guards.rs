//! Proof of reading and of writing.

use recipes_core::AcquireError;
use thiserror::Error;
use tracing::warn;

recipes_core::lock_guard! {
    /// Proof that an [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) is held for
    /// reading: nobody writes meanwhile, unless the owner itself does.
    ///
    /// Everything that guards of all locks can do comes by dereference to
    /// [`LockGuard`](recipes_core::LockGuard). Readers
    /// that hold together do not conflict: their tokens rise in the order in which they queued.
    pub struct ReadGuard single
}

recipes_core::lock_guard! {
    /// Proof that an [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) is held for
    /// writing: nobody else reads or writes meanwhile.
    ///
    /// Everything that guards of all locks can do comes by dereference to
    /// [`LockGuard`](recipes_core::LockGuard).
    pub struct WriteGuard single
}

impl WriteGuard {
    /// Reads too: a guard that outlives this one keeps other writers out, without a gap.
    ///
    /// As [`read_as`](crate::InterProcessReadWriteLock::read_as) with the owner of this guard; it
    /// never waits for others.
    ///
    /// # Errors
    /// [`AcquireError::Lost`] if the lock is lost; otherwise as
    /// [`read`](crate::InterProcessReadWriteLock::read).
    ///
    /// # Cancel safety
    /// The write lock stays held; the reader's node is deleted in the background.
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.guard.read_beside().await.map(ReadGuard::new)
    }

    /// Goes on as a reader, without a moment in which another writer could get in.
    ///
    /// The reader's node takes the writer's place in the queue, before the writer's node is
    /// deleted; the reader keeps the writer's fencing token. While other write guards of the owner
    /// live, the writer's node stays.
    ///
    /// # Errors
    /// [`DowngradeError`], with the write guard as it was.
    ///
    /// # Cancel safety
    /// The write guard goes with the future: what is held is released in the background.
    ///
    /// Curator: acquire the read lock, release the write lock; differs: safe with any other client,
    /// where Curator before 5.5.0 lets a queued writer in.
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        let reader = match self.read().await {
            Ok(reader) => reader,
            Err(source) => {
                let guard = Box::new(self);
                return Err(DowngradeError { guard, source });
            }
        };
        if let Err(error) = self.release().await {
            // The reader is held, or knows by itself that it is lost.
            warn!(lock = reader.path(), %error, "writer's node not deleted yet after a downgrade");
        }
        Ok(reader)
    }
}

/// Why a writer did not become a reader; it still holds what it held, for as long as this error
/// lives.
#[derive(Debug, Error)]
#[error("write lock not downgraded")]
pub struct DowngradeError {
    /// The guard, as it was.
    pub guard: Box<WriteGuard>,
    /// What happened.
    #[source]
    pub source: AcquireError,
}

impl From<DowngradeError> for WriteGuard {
    fn from(error: DowngradeError) -> Self {
        *error.guard
    }
}
