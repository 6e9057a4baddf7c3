//! The mutex handle.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{
    AcquireError, ConfigError, DistributedLock, LockGuard, LockInternals, LockKind, LockOptions,
    Owner, Participant, QueryError, Session, Wait, granted,
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
/// let orders = InterProcessMutex::new(&session, "/locks/orders")?;
/// let guard = orders.acquire().await?;
/// println!("holding with token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `InterProcessMutex`; differs: no thread ownership, holders are notified of a loss,
/// tokens.
#[derive(Clone, Debug)]
pub struct InterProcessMutex {
    lock: LockInternals,
}

impl InterProcessMutex {
    /// Makes the mutex of an absolute path such as `/locks/orders`; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`] names what is wrong with the path.
    pub fn new(session: &Session, path: &str) -> Result<Self, ConfigError> {
        Self::with_options(session, path, &LockOptions::new())
    }

    /// Makes the mutex of a path with options; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`]; [`ConfigError::OptionsDiffer`] if a live handle of this
    /// session has other options for the path.
    pub fn with_options(
        session: &Session,
        path: &str,
        options: &LockOptions,
    ) -> Result<Self, ConfigError> {
        let lock = LockInternals::new(session, path, LockKind::Mutex, options)?;
        Ok(Self { lock })
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Acquires, and waits as long as it takes: through lost connections, and through the end of
    /// the ZooKeeper session, by queueing up again in the next one.
    ///
    /// # Errors
    /// [`AcquireError`], if waiting on cannot succeed. No node of the attempt stays in the queue.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue. The node is deleted in the background.
    pub async fn acquire(&self) -> Result<MutexGuard, AcquireError> {
        self.acquire_by(None, Wait::Forever).await
    }

    /// Acquires for an owner, re-entering what it holds, as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`AcquireError::Lost`] while the owner has guards of this
    /// lock that it lost.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as(&self, owner: &Owner) -> Result<MutexGuard, AcquireError> {
        self.acquire_by(Some(owner), Wait::Forever).await
    }

    /// Acquires within a timeout, which covers all steps; [`Duration::MAX`] waits for ever.
    ///
    /// [`Duration::ZERO`] takes a free lock. It waits at most the session's connect timeout for the
    /// ensemble's answers, and writes nothing if the lock is busy.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], and as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        self.acquire_by(None, Wait::AtMost(timeout)).await
    }

    /// Acquires for an owner within a timeout, as [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    /// As [`acquire_timeout`](Self::acquire_timeout) and [`acquire_as`](Self::acquire_as).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout_as(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> Result<MutexGuard, AcquireError> {
        self.acquire_by(Some(owner), Wait::AtMost(timeout)).await
    }

    /// Acquires if no other contender is in the queue, otherwise returns `None`.
    ///
    /// A busy lock costs one read and no write.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`AcquireError::TimedOut`] if the ensemble does not answer
    /// within the session's connect timeout.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MutexGuard>, AcquireError> {
        self.try_acquire_by(None).await
    }

    /// Acquires for an owner if no other contender is in the queue, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_as`](Self::acquire_as).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_as(&self, owner: &Owner) -> Result<Option<MutexGuard>, AcquireError> {
        self.try_acquire_by(Some(owner)).await
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
    /// [`QueryError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn participants(&self) -> Result<Vec<Participant>, QueryError> {
        self.lock.participants().await
    }

    async fn acquire_by(
        &self,
        owner: Option<&Owner>,
        wait: Wait,
    ) -> Result<MutexGuard, AcquireError> {
        let outcome = self.lock.acquire(owner, wait).await;
        granted(outcome).map(MutexGuard::new)
    }

    async fn try_acquire_by(
        &self,
        owner: Option<&Owner>,
    ) -> Result<Option<MutexGuard>, AcquireError> {
        let outcome = self.lock.acquire(owner, Wait::Try).await?;
        Ok(outcome.map(MutexGuard::new))
    }
}

impl DistributedLock for InterProcessMutex {
    fn path(&self) -> &str {
        self.lock.path()
    }

    fn acquire_with(
        &self,
        owner: Option<Owner>,
        wait: Wait,
    ) -> BoxFuture<'_, Result<Option<LockGuard>, AcquireError>> {
        async move { self.lock.acquire(owner.as_ref(), wait).await }.boxed()
    }

    fn internals(&self) -> Vec<LockInternals> {
        vec![self.lock.clone()]
    }
}
