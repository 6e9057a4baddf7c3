//! The read/write lock handle.

use std::time::Duration;

use recipes_core::{
    AcquireError, ConfigError, LockInternals, LockKind, LockOptions, Owner, Participant,
    QueryError, Session, Wait, granted,
};

use crate::guards::{ReadGuard, WriteGuard};
use crate::handles::{ReadLock, WriteLock};

/// A lock over all processes that use its path: many owners may read, or one may write.
///
/// A cheap handle: clones, and other handles on the same path of the same session, are the same
/// lock. An [`Owner`] re-enters it, as with a mutex. An owner that writes may also read. An owner
/// that only reads and requests the write lock would wait for itself, so that call fails at once.
///
/// A guard that is not kept releases on the spot: `let _ = lock.read().await?` protects nothing.
///
/// # Guarantees
/// - First come, first served: a reader waits for all writers ahead of it, a writer for all
///   contenders ahead of it. So a stream of readers does not starve a writer.
/// - A releasing writer admits all readers up to the next writer at once, with one network round
///   trip for each.
/// - All other guarantees of the mutex.
///
/// # Examples
/// ```
/// # use recipes_rwlock::InterProcessReadWriteLock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let settings = InterProcessReadWriteLock::new(&session, "/locks/settings")?;
/// let writer = settings.write().await?;
/// // ... change several nodes that belong together ...
/// let reader = writer.downgrade().await?;
/// // ... check them, while other readers do, and no writer can ...
/// reader.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `InterProcessReadWriteLock`; differs: no thread ownership, holders are notified of a
/// loss, tokens, downgrades that keep writers out, upgrades that fail instead of waiting for ever.
#[derive(Clone, Debug)]
pub struct InterProcessReadWriteLock {
    read: LockInternals,
    write: LockInternals,
}

impl InterProcessReadWriteLock {
    /// Makes the lock of an absolute path such as `/locks/settings`; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`] names what is wrong with the path;
    /// [`ConfigError::RecipeDiffers`] if the session has a mutex there.
    pub fn new(session: &Session, path: &str) -> Result<Self, ConfigError> {
        Self::with_options(session, path, &LockOptions::new())
    }

    /// Makes the lock of a path with options; sends nothing.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ConfigError::OptionsDiffer`] if a live handle of this session has
    /// other options for the path.
    pub fn with_options(
        session: &Session,
        path: &str,
        options: &LockOptions,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            read: LockInternals::new(session, path, LockKind::Read, options)?,
            write: LockInternals::new(session, path, LockKind::Write, options)?,
        })
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        self.read.path()
    }

    /// Acquires for reading, and waits as long as it takes.
    ///
    /// An owner that writes gets the read lock at once, in the writer's place in the queue.
    ///
    /// # Errors
    /// [`AcquireError`], if waiting on cannot succeed. No node of the attempt stays in the queue.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue. The node is deleted in the background.
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        self.read_by(None, Wait::Forever).await
    }

    /// Acquires for reading for an owner, as [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`AcquireError::Lost`] while the owner has guards of this lock
    /// that it lost.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn read_as(&self, owner: &Owner) -> Result<ReadGuard, AcquireError> {
        self.read_by(Some(owner), Wait::Forever).await
    }

    /// Acquires for reading within a timeout, which covers all steps.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], and as [`read`](Self::read).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn read_timeout(&self, timeout: Duration) -> Result<ReadGuard, AcquireError> {
        self.read_by(None, Wait::AtMost(timeout)).await
    }

    /// Acquires for reading for an owner within a timeout, as [`read_timeout`](Self::read_timeout).
    ///
    /// # Errors
    /// As [`read_timeout`](Self::read_timeout) and [`read_as`](Self::read_as).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn read_timeout_as(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> Result<ReadGuard, AcquireError> {
        self.read_by(Some(owner), Wait::AtMost(timeout)).await
    }

    /// Acquires for reading if no other writer is in the queue, otherwise returns `None`.
    ///
    /// A busy lock costs one read and no write.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`AcquireError::TimedOut`] if the ensemble does not answer within
    /// the session's connect timeout.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, AcquireError> {
        self.try_read_by(None).await
    }

    /// Acquires for reading for an owner if no other writer is in the queue, as
    /// [`try_read`](Self::try_read).
    ///
    /// # Errors
    /// As [`try_read`](Self::try_read) and [`read_as`](Self::read_as).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read_as(&self, owner: &Owner) -> Result<Option<ReadGuard>, AcquireError> {
        self.try_read_by(Some(owner)).await
    }

    /// Acquires for writing, and waits as long as it takes.
    ///
    /// # Errors
    /// [`AcquireError::WouldDeadlock`] if the owner holds the lock for reading only; otherwise as
    /// [`read`](Self::read).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn write(&self) -> Result<WriteGuard, AcquireError> {
        self.write_by(None, Wait::Forever).await
    }

    /// Acquires for writing for an owner, as [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write), and [`AcquireError::Lost`] while the owner has guards of this
    /// lock that it lost.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn write_as(&self, owner: &Owner) -> Result<WriteGuard, AcquireError> {
        self.write_by(Some(owner), Wait::Forever).await
    }

    /// Acquires for writing within a timeout, which covers all steps.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], and as [`write`](Self::write).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn write_timeout(&self, timeout: Duration) -> Result<WriteGuard, AcquireError> {
        self.write_by(None, Wait::AtMost(timeout)).await
    }

    /// Acquires for writing for an owner within a timeout, as
    /// [`write_timeout`](Self::write_timeout).
    ///
    /// # Errors
    /// As [`write_timeout`](Self::write_timeout) and [`write_as`](Self::write_as).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn write_timeout_as(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> Result<WriteGuard, AcquireError> {
        self.write_by(Some(owner), Wait::AtMost(timeout)).await
    }

    /// Acquires for writing if no other contender is in the queue, otherwise returns `None`.
    ///
    /// A busy lock costs one read and no write.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`AcquireError::TimedOut`] if the ensemble does not answer within
    /// the session's connect timeout.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, AcquireError> {
        self.try_write_by(None).await
    }

    /// Acquires for writing for an owner if no other contender is in the queue, as
    /// [`try_write`](Self::try_write).
    ///
    /// # Errors
    /// As [`try_write`](Self::try_write) and [`write_as`](Self::write_as).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_write_as(&self, owner: &Owner) -> Result<Option<WriteGuard>, AcquireError> {
        self.try_write_by(Some(owner)).await
    }

    /// Lists the readers that hold or wait, in the order of admission, over all processes.
    ///
    /// # Errors
    /// [`QueryError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn read_participants(&self) -> Result<Vec<Participant>, QueryError> {
        self.read.participants().await
    }

    /// Lists the writers that hold or wait, in the order of admission, over all processes.
    ///
    /// # Errors
    /// [`QueryError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn write_participants(&self) -> Result<Vec<Participant>, QueryError> {
        self.write.participants().await
    }

    /// The half for reading, for code that takes any lock.
    #[doc(alias = "readLock")]
    #[must_use]
    pub fn read_lock(&self) -> ReadLock {
        let lock = self.read.clone();
        ReadLock { lock }
    }

    /// The half for writing, for code that takes any lock.
    #[doc(alias = "writeLock")]
    #[must_use]
    pub fn write_lock(&self) -> WriteLock {
        let lock = self.write.clone();
        WriteLock { lock }
    }

    async fn read_by(&self, owner: Option<&Owner>, wait: Wait) -> Result<ReadGuard, AcquireError> {
        granted(self.read.acquire(owner, wait).await).map(ReadGuard::new)
    }

    async fn try_read_by(&self, owner: Option<&Owner>) -> Result<Option<ReadGuard>, AcquireError> {
        let outcome = self.read.acquire(owner, Wait::Try).await?;
        Ok(outcome.map(ReadGuard::new))
    }

    async fn write_by(
        &self,
        owner: Option<&Owner>,
        wait: Wait,
    ) -> Result<WriteGuard, AcquireError> {
        granted(self.write.acquire(owner, wait).await).map(WriteGuard::new)
    }

    async fn try_write_by(
        &self,
        owner: Option<&Owner>,
    ) -> Result<Option<WriteGuard>, AcquireError> {
        let outcome = self.write.acquire(owner, Wait::Try).await?;
        Ok(outcome.map(WriteGuard::new))
    }
}
