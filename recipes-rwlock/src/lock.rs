//! The read/write lock handle.

use std::fmt;

use recipes_core::internal::{LockInternals, Locks};
use recipes_core::{Acquire, Error, LockKind, LockOptions, Participant, Session, TryAcquire};

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
///
/// [`Owner`]: recipes_core::Owner
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    read: LockInternals,
    write: LockInternals,
}

impl InterProcessReadWriteLock {
    /// Makes the lock of an absolute path such as `/locks/settings`; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`](recipes_core::ConfigError::InvalidPath) names what is wrong with the path;
    /// [`ConfigError::RecipeDiffers`](recipes_core::ConfigError::RecipeDiffers) if the session has a mutex there.
    pub fn new(session: &Session, path: &str) -> Result<Self, Error> {
        Self::with_options(session, path, &LockOptions::new())
    }

    /// Makes the lock of a path with options; sends nothing.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ConfigError::OptionsDiffer`](recipes_core::ConfigError::OptionsDiffer) if a live
    /// handle of this session has other options for the path.
    pub fn with_options(
        session: &Session,
        path: &str,
        options: &LockOptions,
    ) -> Result<Self, Error> {
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

    /// Makes a request to read, which waits as long as it takes, or as its
    /// [`timeout`](Acquire::timeout) says.
    ///
    /// An owner that writes gets the read lock at once, in the writer's place in the queue.
    /// [`Acquire`] lists the errors, and says what is left if the request is dropped.
    pub fn read(&self) -> Acquire<ReadGuard> {
        Acquire::new(Locks::One(self.read.clone()), ReadGuard::new)
    }

    /// Makes a request to read if no other writer is in the queue, which returns `None` otherwise.
    pub fn try_read(&self) -> TryAcquire<ReadGuard> {
        TryAcquire::new(Locks::One(self.read.clone()), ReadGuard::new)
    }

    /// Makes a request to write, which waits as long as it takes, or as its
    /// [`timeout`](Acquire::timeout) says.
    ///
    /// It fails with [`AcquireError::WouldDeadlock`] if its owner holds the lock for reading only.
    /// [`Acquire`] lists the other errors, and says what is left if the request is dropped.
    ///
    /// [`AcquireError::WouldDeadlock`]: recipes_core::AcquireError::WouldDeadlock
    pub fn write(&self) -> Acquire<WriteGuard> {
        Acquire::new(Locks::One(self.write.clone()), WriteGuard::new)
    }

    /// Makes a request to write if no other contender is in the queue, which returns `None`
    /// otherwise.
    pub fn try_write(&self) -> TryAcquire<WriteGuard> {
        TryAcquire::new(Locks::One(self.write.clone()), WriteGuard::new)
    }

    /// Lists the readers that hold or wait, in the order of admission, over all processes.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn read_participants(&self) -> Result<Vec<Participant>, Error> {
        self.read.participants().await
    }

    /// Lists the writers that hold or wait, in the order of admission, over all processes.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn write_participants(&self) -> Result<Vec<Participant>, Error> {
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
}

impl fmt::Debug for InterProcessReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessReadWriteLock")
            .field("path", &self.path())
            .finish()
    }
}
