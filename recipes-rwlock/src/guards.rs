//! Guards of readers and writers.

use recipes_core::Error;
use recipes_core::internal::log::LOCK;
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
    /// [`AcquireError::Lost`](recipes_core::AcquireError::Lost) if the lock is lost, also while it waits; otherwise
    /// as [`Acquire`](recipes_core::Acquire).
    ///
    /// # Cancel safety
    /// The write lock stays held. The reader's node is deleted in the background.
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        Ok(ReadGuard::new(self.guard.read_beside().await?))
    }

    /// Continues as a reader, without a moment in which another writer could get in.
    ///
    /// The reader's node takes the writer's place in the queue before the writer's node is deleted.
    /// The reader keeps the writer's fencing token. While other write guards of the owner live, the
    /// writer's node stays. In an outage it ends as [`read`](Self::read) does, when the lock is lost
    /// at the latest.
    ///
    /// # Errors
    /// As [`read`](Self::read). The write lock is released then, in the background. Who wants to keep it calls
    /// [`read`](Self::read), and then releases this guard.
    ///
    /// # Cancel safety
    /// The write guard is dropped with the future: what is held is released in the background.
    ///
    /// Curator: acquire the read lock, release the write lock; differs: safe with any other client.
    /// In Curator before 5.5.0, a queued writer can get in.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        let reader = self.read().await?;
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
