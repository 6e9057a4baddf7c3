//! The semaphore handle.

use recipes_core::internal::SemaphoreInternals;
use recipes_core::{
    Acquire, ConfigError, Error, LockGuard, LockOptions, Participant, Session, TryAcquire,
};

use crate::permit::SemaphorePermit;

/// A semaphore over all processes that use its path, including Java services with Curator: at most
/// a number of permits is held at a time.
///
/// A cheap handle: clones share its number of permits. An acquire always takes permits of its own,
/// whoever its [owner](recipes_core::Owner) is.
///
/// A guard that is not kept gives its permits back on the spot: `let _ = semaphore.acquire().await?`
/// limits nothing. Name the guard.
///
/// # Guarantees
/// - No more permits are held at a time than the highest number that any process uses, and the
///   holder learns of a lost permit before another contender gets it. This holds while clocks run at
///   sane rates and processes are not paused.
/// - First come, first served over all processes. A contender for many permits is not overtaken by
///   contenders for few: those wait behind it.
/// - An acquire of many permits gets all or none, and cannot deadlock with another one.
/// - A release wakes the contender whose turn it is, and no other. The permits of a crashed process
///   are free within its session timeout.
///
/// The contender whose turn it is watches every lease.
///
/// # The number of permits
/// It is not in the store: each process brings its own, and may [set](Self::set_permits) another
/// one. A grant goes by the number of the process that is granted. So a lower number takes effect
/// with the next grant in each process that knows it. Let all processes have the same, from one
/// configuration. While they do not, as during a roll-out, a contender with the lower number at the
/// head of the queue keeps those behind it waiting, although theirs would let them in.
///
/// Any other recipe on the path is refused, and refuses the semaphore:
/// [`AcquireError::RecipeDiffers`](recipes_core::AcquireError::RecipeDiffers). An
/// [`InterProcessSemaphoreMutex`](crate::InterProcessSemaphoreMutex) is no other recipe, but a
/// semaphore with one permit.
///
/// # Examples
/// ```
/// # use recipes_semaphore::InterProcessSemaphore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let exports = InterProcessSemaphore::new(&session, "/limits/exports", 3)?;
/// let permit = exports.acquire().await?;
/// permit.run(async { /* no more than three at a time */ }).await?;
/// permit.release().await?;
///
/// let all = exports.acquire_many(3)?.await?;
/// assert!(exports.try_acquire().await?.is_none());
/// # drop(all);
/// # Ok(())
/// # }
/// ```
///
/// Curator `InterProcessSemaphoreV2`; differs: an uncontended acquire is one request, a set of permits
/// cannot deadlock, holders are notified of a loss.
#[doc(alias = "InterProcessSemaphoreV2")]
#[derive(Clone, Debug)]
pub struct InterProcessSemaphore {
    semaphore: SemaphoreInternals,
}

impl InterProcessSemaphore {
    /// Makes the semaphore of an absolute path such as `/limits/exports`; sends nothing. Its nodes
    /// are in `locks` and `leases` below the path.
    ///
    /// # Errors
    /// [`ConfigError::NoPermits`] unless there are 1 to 10,000 permits; [`ConfigError::InvalidPath`]
    /// names what is wrong with the path.
    pub fn new(session: &Session, path: &str, permits: usize) -> Result<Self, Error> {
        Self::with_options(session, path, permits, &LockOptions::new())
    }

    /// Makes the semaphore of a path with options; sends nothing.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ConfigError::OptionsDiffer`] if a live handle of this session has
    /// other options for the path.
    pub fn with_options(
        session: &Session,
        path: &str,
        permits: usize,
        options: &LockOptions,
    ) -> Result<Self, Error> {
        let semaphore = SemaphoreInternals::new(session, path, permits, options)?;
        Ok(Self { semaphore })
    }

    /// Path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &str {
        self.semaphore.path()
    }

    /// How many permits there are, as far as this handle knows.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.semaphore.permits()
    }

    /// Sets how many permits there are, for this handle, its clones, and their acquires that are
    /// waiting. Permits that are held stay held: a lower number counts from the next grant on.
    ///
    /// # Errors
    /// [`ConfigError::NoPermits`] unless there are 1 to 10,000.
    #[doc(alias = "SharedCount")]
    pub fn set_permits(&self, permits: usize) -> Result<(), Error> {
        Ok(self.semaphore.set_permits(permits)?)
    }

    /// Makes a request for one permit that waits as long as it takes, or as its
    /// [`timeout`](Acquire::timeout) says.
    ///
    /// [`Acquire`] lists the errors, and says what is left if the request is dropped.
    pub fn acquire(&self) -> Acquire<SemaphorePermit> {
        Acquire::new(self.semaphore.one(), SemaphorePermit::of)
    }

    /// Whether there can be so many permits, for the command line.
    ///
    /// # Errors
    /// [`ConfigError::NoPermits`].
    #[doc(hidden)]
    pub fn check(permits: usize) -> Result<(), ConfigError> {
        SemaphoreInternals::check(permits)
    }

    /// As [`acquire`](Self::acquire), with the guard of all locks.
    #[doc(hidden)]
    pub fn acquire_any(&self) -> Acquire<LockGuard> {
        Acquire::new(self.semaphore.one(), SemaphoreInternals::permit)
    }

    /// Makes a request for so many permits at a time: all or none.
    ///
    /// If the number of permits is set lower than requested meanwhile, it leaves the queue, so that
    /// others get what there is. It joins the queue again, at its end, when the number is set high
    /// enough.
    ///
    /// # Errors
    /// [`ConfigError::PermitsRequested`] for none, or for more than there are. The request itself ends
    /// with [`AcquireError::Refused`](recipes_core::AcquireError::Refused) if the store cannot take so
    /// many nodes in one transaction, each with its path and record: some 3,000 on ZooKeeper.
    pub fn acquire_many(&self, permits: usize) -> Result<Acquire<SemaphorePermit>, Error> {
        let locks = self.semaphore.many(permits)?;
        Ok(Acquire::new(locks, SemaphorePermit::of))
    }

    /// Makes a request that takes a permit if one is free and nobody waits, and returns `None`
    /// otherwise. That includes the moment in which another contender is just being granted.
    pub fn try_acquire(&self) -> TryAcquire<SemaphorePermit> {
        TryAcquire::new(self.semaphore.one(), SemaphorePermit::of)
    }

    /// As [`try_acquire`](Self::try_acquire), for so many permits: all or none.
    ///
    /// # Errors
    /// As [`acquire_many`](Self::acquire_many).
    pub fn try_acquire_many(&self, permits: usize) -> Result<TryAcquire<SemaphorePermit>, Error> {
        let locks = self.semaphore.many(permits)?;
        Ok(TryAcquire::new(locks, SemaphorePermit::of))
    }

    /// Lists the leases over all processes: the permits that are held, and those for which the
    /// contender waits whose turn it is.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    #[doc(alias = "getParticipantNodes")]
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        self.semaphore.leases().await
    }

    /// Lists the contenders that wait for permits, over all processes, the next one first.
    ///
    /// # Errors
    /// [`QueryError`](recipes_core::QueryError); nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    pub async fn waiters(&self) -> Result<Vec<Participant>, Error> {
        self.semaphore.waiters().await
    }
}
