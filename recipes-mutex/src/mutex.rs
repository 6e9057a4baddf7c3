//! The mutex handle.

use std::fmt;

use recipes_core::internal::sealed::Sealed;
use recipes_core::internal::{LockInternals, Locks};
use recipes_core::{
    Acquire, DistributedLock, Error, LockKind, LockOptions, Participant, Session, TryAcquire,
};

use crate::guard::MutexGuard;

/// A reentrant mutex over all processes that use its path, including Java services with Curator.
///
/// A cheap handle: clones, and other handles on the same path of the same session, are the same
/// lock. An [`Owner`] re-enters it: every acquire inside [`Owner::scope`] belongs to that owner and
/// re-enters what the owner holds. Outside of it, every acquire excludes every other, even in the
/// same task.
///
/// A guard that is not kept releases on the spot: `let _ = mutex.acquire().await?` and `if
/// mutex.try_acquire().await?.is_some()` protect nothing. Name the guard.
///
/// # Guarantees
/// - There is one holder at a time, and the holder learns of a lost lock before another contender
///   gets it. This holds while clocks run at sane rates and processes are not paused. If they may
///   be, use [`MutexGuard::fencing_token`] or [`LockGuard::transaction`], which always hold.
/// - First come, first served over all processes.
/// - A release wakes the next contender, and the one after it, so that it can prepare. The locks of
///   a crashed process are free within its session timeout.
///
/// # Examples
/// ```
/// # use recipes_mutex::InterProcessMutex;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let order = InterProcessMutex::new(&session, "/locks/orders/4711")?;
/// let guard = order.acquire().await?;
/// println!("holding with token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `InterProcessMutex`; differs: no thread ownership, holders are notified of a loss,
/// tokens.
///
/// [`LockGuard::transaction`]: recipes_core::LockGuard::transaction
/// [`Owner`]: recipes_core::Owner
/// [`Owner::scope`]: recipes_core::Owner::scope
#[derive(Clone)]
pub struct InterProcessMutex {
    lock: LockInternals,
}

impl InterProcessMutex {
    /// Makes the mutex of an absolute path such as `/locks/orders/4711`; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`](recipes_core::ConfigError::InvalidPath) names what is wrong with the path.
    pub fn new(session: &Session, path: &str) -> Result<Self, Error> {
        Self::with_options(session, path, &LockOptions::new())
    }

    /// Makes the mutex of a path with options; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`](recipes_core::ConfigError::InvalidPath);
    /// [`ConfigError::OptionsDiffer`](recipes_core::ConfigError::OptionsDiffer) if a live handle of this session has
    /// other options for the path.
    pub fn with_options(
        session: &Session,
        path: &str,
        options: &LockOptions,
    ) -> Result<Self, Error> {
        let lock = LockInternals::new(session, path, LockKind::Mutex, options)?;
        Ok(Self { lock })
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Makes a request that waits as long as it takes, or as its [`timeout`](Acquire::timeout)
    /// says.
    ///
    /// [`Acquire`] lists the errors, and says what is left if the request is dropped.
    pub fn acquire(&self) -> Acquire<MutexGuard> {
        Acquire::new(self.locks(), MutexGuard::new)
    }

    /// Makes a request that acquires if no other contender is in the queue, and returns `None`
    /// otherwise.
    pub fn try_acquire(&self) -> TryAcquire<MutexGuard> {
        TryAcquire::new(self.locks(), MutexGuard::new)
    }

    /// Whether an owner of this process holds the lock through this session.
    #[doc(alias = "isAcquiredInThisProcess")]
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.lock.is_acquired_in_this_process()
    }

    /// Lists the holder and the waiters, in the order of admission, over all processes.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        self.lock.participants().await
    }
}

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex")
            .field("path", &self.path())
            .finish()
    }
}

impl Sealed for InterProcessMutex {
    fn locks(&self) -> Locks {
        Locks::One(self.lock.clone())
    }
}

impl DistributedLock for InterProcessMutex {
    fn path(&self) -> &str {
        self.lock.path()
    }
}
