//! A mutex that is no owner's.

use recipes_core::internal::{Locks, SemaphoreInternals, sealed::Sealed};
use recipes_core::{
    Acquire, DistributedLock, Error, LockGuard, LockOptions, Participant, Session, TryAcquire,
};

use crate::permit::SemaphorePermit;

/// A semaphore with one permit: a mutex that nobody re-enters, shared with Java services that use
/// Curator's `InterProcessSemaphoreMutex`.
///
/// Its guard may be released in any task or thread, as every guard of this library. What it lacks is
/// the owner: an acquire inside [`Owner::scope`](recipes_core::Owner::scope) waits for the guard that
/// the same owner holds. For a mutex without Curator's on the path, prefer
/// `InterProcessMutex`, which costs fewer requests.
///
/// An `InterProcessMutex` of the same path refuses it, and is refused:
/// [`AcquireError::RecipeDiffers`](recipes_core::AcquireError::RecipeDiffers).
///
/// # Guarantees
/// As those of [`InterProcessSemaphore`](crate::InterProcessSemaphore) with one permit. The fencing
/// token rises with every grant.
///
/// # Examples
/// ```
/// # use recipes_semaphore::InterProcessSemaphoreMutex;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let mutex = InterProcessSemaphoreMutex::new(&session, "/locks/ledger")?;
/// let guard = mutex.acquire().await?;
/// assert!(mutex.try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `InterProcessSemaphoreMutex`.
#[derive(Clone, Debug)]
pub struct InterProcessSemaphoreMutex {
    semaphore: SemaphoreInternals,
}

impl InterProcessSemaphoreMutex {
    /// Makes the mutex of an absolute path; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`](recipes_core::ConfigError::InvalidPath) names what is wrong with the path.
    pub fn new(session: &Session, path: &str) -> Result<Self, Error> {
        Self::with_options(session, path, &LockOptions::new())
    }

    /// Makes the mutex of a path with options; sends nothing.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ConfigError::OptionsDiffer`](recipes_core::ConfigError::OptionsDiffer) if a live
    /// handle of this session has other options for the path.
    pub fn with_options(
        session: &Session,
        path: &str,
        options: &LockOptions,
    ) -> Result<Self, Error> {
        let semaphore = SemaphoreInternals::new(session, path, 1, options)?;
        Ok(Self { semaphore })
    }

    /// Path of the mutex.
    #[must_use]
    pub fn path(&self) -> &str {
        self.semaphore.path()
    }

    /// Makes a request that waits as long as it takes, or as its [`timeout`](Acquire::timeout)
    /// says.
    pub fn acquire(&self) -> Acquire<SemaphorePermit> {
        Acquire::new(self.semaphore.one(), SemaphorePermit::of)
    }

    /// Makes a request that acquires if no other contender is in the queue, and returns `None`
    /// otherwise.
    pub fn try_acquire(&self) -> TryAcquire<SemaphorePermit> {
        TryAcquire::new(self.semaphore.one(), SemaphorePermit::of)
    }

    /// Lists the lease of the holder, or of the contender whose turn it is, over all processes.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        self.semaphore.leases().await
    }
}

impl Sealed for InterProcessSemaphoreMutex {
    fn locks(&self) -> Locks {
        self.semaphore.one()
    }
}

/// As a member of a set it keeps Curator's inner mutex until it is released, which lets nobody in
/// who would not have to wait anyway.
impl DistributedLock for InterProcessSemaphoreMutex {
    fn path(&self) -> &str {
        self.semaphore.path()
    }

    fn acquire(&self) -> Acquire<LockGuard> {
        Acquire::new(self.semaphore.one(), SemaphoreInternals::permit)
    }

    fn try_acquire(&self) -> TryAcquire<LockGuard> {
        TryAcquire::new(self.semaphore.one(), SemaphoreInternals::permit)
    }
}
