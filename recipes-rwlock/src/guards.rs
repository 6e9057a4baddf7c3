//! Guards of readers and writers.

use recipes_core::AcquireError;
use recipes_core::internal::log::LOCK;
use thiserror::Error;
use tracing::warn;

recipes_core::lock_guard! {
    /// Proof that an [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) is held for
    /// reading: no other owner writes meanwhile. The owner itself may write.
    ///
    /// The guard dereferences to [`LockGuard`](recipes_core::LockGuard), which has the methods of
    /// all guards. Readers that hold together do not conflict: their tokens rise in the order in
    /// which they queued.
    pub struct ReadGuard single
}

recipes_core::lock_guard! {
    /// Proof that an [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) is held for
    /// writing: no other owner reads or writes meanwhile.
    ///
    /// The guard dereferences to [`LockGuard`](recipes_core::LockGuard), which has the methods of
    /// all guards.
    pub struct WriteGuard single
}

impl WriteGuard {
    /// Acquires the read lock too. A reader that outlives this guard keeps other writers out,
    /// without a gap.
    ///
    /// Works as [`read`](crate::InterProcessReadWriteLock::read) for the owner of this guard, and
    /// never waits for other contenders. In an outage it waits until the store answers or the lock is
    /// lost, whichever comes first.
    ///
    /// # Errors
    /// [`AcquireError::Lost`] if the lock is lost, also while it waits; otherwise as [`Acquire`](recipes_core::Acquire).
    ///
    /// # Cancel safety
    /// The write lock stays held. The reader's node is deleted in the background.
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.guard.read_beside().await.map(ReadGuard::new)
    }

    /// Continues as a reader, without a moment in which another writer could get in.
    ///
    /// The reader's node takes the writer's place in the queue before the writer's node is deleted.
    /// The reader keeps the writer's fencing token. While other write guards of the owner live, the
    /// writer's node stays. In an outage it ends as [`read`](Self::read) does, when the lock is lost
    /// at the latest.
    ///
    /// # Errors
    /// [`DowngradeError`], which contains the unchanged write guard.
    ///
    /// # Cancel safety
    /// The write guard is dropped with the future: what is held is released in the background.
    ///
    /// Curator: acquire the read lock, release the write lock; differs: safe with any other client.
    /// In Curator before 5.5.0, a queued writer can get in.
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        let reader = match self.read().await {
            Ok(reader) => reader,
            Err(source) => {
                let guard = Box::new(self);
                return Err(DowngradeError { guard, source });
            }
        };
        if let Err(error) = self.release().await {
            // The reader is held, or its guard reports that it is lost.
            warn!(
                target: LOCK,
                lock = reader.path(), %error, "writer's node not deleted yet after a downgrade"
            );
        }
        Ok(reader)
    }
}

/// Why a writer did not become a reader. The error contains the write guard, so the lock stays held
/// while the error lives, unless it is lost.
#[derive(Debug, Error)]
#[error("write lock {:?} not downgraded{}", .guard.path(), still_held(.guard))]
pub struct DowngradeError {
    /// The unchanged guard.
    pub guard: Box<WriteGuard>,
    /// What happened.
    #[source]
    pub source: AcquireError,
}

fn still_held(guard: &WriteGuard) -> &'static str {
    match guard.is_valid() {
        true => ", it is still held",
        false => "",
    }
}

/// Drops the write guard, which releases the lock.
impl From<DowngradeError> for recipes_core::Error {
    fn from(error: DowngradeError) -> Self {
        error.source.into()
    }
}

impl From<DowngradeError> for WriteGuard {
    fn from(error: DowngradeError) -> Self {
        *error.guard
    }
}
