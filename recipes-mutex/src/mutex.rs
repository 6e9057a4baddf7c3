//! The mutex handle.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{
    AcquireError, ConfigError, DistributedLock, LockGuard, LockInternals, LockKind, LockOptions,
    Owner, Participant, QueryError, Session, Wait, granted,
};

use crate::guard::MutexGuard;

/// A reentrant mutex over all processes that use its path, Java services with Curator among them.
///
/// A cheap handle: clones, and other handles on the same path of the same session, are the same
/// lock. Who re-enters is the [`Owner`]: inside [`Owner::scope`] every acquire belongs to that
/// owner and re-enters what it holds; outside, every acquire excludes every other, in the same task
/// too.
///
/// A guard that is not kept releases on the spot: `let _ = mutex.acquire().await?` and
/// `if mutex.try_acquire().await?.is_some()` protect nothing. Name the guard.
///
/// # Guarantees
/// - One holder at a time, and the holder learns of a lost lock before another gets it, while
///   clocks run at sane rates and processes are not paused. Where they may be, use
///   [`MutexGuard::fencing_token`] or [`LockGuard::transaction`], which hold always.
/// - First come, first served over all processes.
/// - A release wakes the next contender, and the one behind it to prepare. A crashed process frees its locks by its session timeout.
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
/// Curator `InterProcessMutex`; differs: no thread ownership, loss is told, tokens.
#[derive(Clone, Debug)]
pub struct InterProcessMutex {
    lock: LockInternals,
}

impl InterProcessMutex {
    /// Makes the mutex of a path, `/` and names below; sends nothing.
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

    /// Acquires, waiting as long as it takes: through lost connections, and through the end of the
    /// ZooKeeper session by queueing up again in the next.
    ///
    /// # Errors
    /// [`AcquireError`], where waiting on cannot succeed. Nothing of ours stays in the queue.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue; the node is deleted in the background.
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

    /// Acquires within a time, which covers all steps; [`Duration::MAX`] waits for ever.
    ///
    /// [`Duration::ZERO`] takes a free lock, asking the ensemble for at most the session's connect
    /// timeout, and writes nothing where it is busy.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], and as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<MutexGuard, AcquireError> {
        self.acquire_by(None, Wait::AtMost(timeout)).await
    }

    /// Acquires for an owner within a time, as [`acquire_timeout`](Self::acquire_timeout).
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

    /// Acquires if nobody else is in the queue, `None` if somebody is.
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

    /// Acquires for an owner if nobody else is in the queue, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_as`](Self::acquire_as).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_as(&self, owner: &Owner) -> Result<Option<MutexGuard>, AcquireError> {
        self.try_acquire_by(Some(owner)).await
    }

    /// Tells whether an owner of this process holds the lock through this session.
    #[doc(alias = "isAcquiredInThisProcess")]
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.lock.is_acquired_in_this_process()
    }

    /// Lists who holds (first) and who waits, in the order of admission, over all processes.
    ///
    /// # Errors
    /// [`QueryError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
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
