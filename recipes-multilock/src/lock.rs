//! The multi-lock and its guard.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{
    AcquireError, ConfigError, DistributedLock, LockGuard, LockInternals, Owner, Session, Wait,
    acquire_all, check_set, granted, set_name,
};

use crate::in_turn;
use crate::member::Member;

/// Several locks that are held together or not at all.
///
/// A cheap handle. Members may mix mutexes, readers and writers of one session, with each path
/// once. However an acquire fails, nothing stays held: after a refused or lost member, a timeout,
/// or a dropped future.
///
/// # Guarantees
/// - While the set waits for a member, it holds only those before it in the order of their paths,
///   and has no node in any later one, except for what its owner held before. So sets of owners who
///   hold nothing, and contenders that take single locks in the order of their paths, never wait
///   for each other in a circle.
/// - An uncontended acquire costs one transaction, with the listings in the same flush; a release
///   costs one transaction.
///
/// # Examples
/// ```
/// # use recipes_multilock::{Member, MultiLock};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let seats = ["/seats/7-12", "/seats/7-11"].map(Member::mutex);
/// let both = MultiLock::new(&session, seats)?;
/// let guard = both.acquire().await?;
/// for member in guard.members() {
///     println!("{} with token {}", member.path, member.fencing_token);
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Curator `InterProcessMultiLock`; differs: one timeout for the whole set, no order for the caller
/// to keep, and the first error ends the acquire and is returned.
#[doc(alias = "InterProcessMultiLock")]
#[derive(Clone, Debug)]
pub struct MultiLock {
    locks: Locks,
    name: Arc<str>,
}

#[derive(Clone)]
enum Locks {
    /// Locks of one session, which the driver acquires as one attempt.
    Together {
        in_order: Arc<[LockInternals]>,
        as_given: Arc<[LockInternals]>,
    },
    InTurn(Arc<[Box<dyn DistributedLock>]>),
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Together { in_order, .. } => {
                let paths = in_order.iter().map(LockInternals::path);
                f.debug_list().entries(paths).finish()
            }
            Self::InTurn(locks) => {
                let paths = locks.iter().map(|lock| lock.path());
                f.debug_list().entries(paths).finish()
            }
        }
    }
}

impl MultiLock {
    /// Makes the set of these locks. It waits for them in the order of their paths. Sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::EmptySet`]; [`ConfigError::DuplicateMember`] if a path is there twice, in the
    /// same or in different kinds; otherwise the errors of the single locks.
    pub fn new(
        session: &Session,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, ConfigError> {
        let opened = members.into_iter().map(|member| member.open(session));
        let as_given: Vec<_> = opened.collect::<Result<_, _>>()?;
        check_set(&as_given)?;
        let mut in_order = as_given.clone();
        in_order.sort_by(|a, b| a.path().cmp(b.path()));
        let name = set_name(&in_order).into();
        let locks = Locks::Together {
            in_order: in_order.into(),
            as_given: as_given.into(),
        };
        Ok(Self { locks, name })
    }

    /// Waits for the members in the order in which they were given. This is for fleets that have
    /// agreed on another order than that of the paths.
    ///
    /// All contenders that take several of these locks must keep to that order. Otherwise they can
    /// wait for each other.
    #[must_use]
    pub fn in_given_order(self) -> Self {
        match self.locks {
            Locks::Together { as_given, .. } => Self {
                name: set_name(&as_given).into(),
                locks: Locks::Together {
                    in_order: Arc::clone(&as_given),
                    as_given,
                },
            },
            Locks::InTurn(_) => self,
        }
    }

    /// Makes a set of any locks, even of several sessions. They are acquired one after the other in
    /// this order. Sends nothing.
    ///
    /// The first failure ends an acquire, and the locks acquired before are released in reverse
    /// order. All contenders that take several of these locks must keep to the order. Otherwise
    /// they can wait for each other.
    ///
    /// # Errors
    /// [`ConfigError::EmptySet`]; [`ConfigError::DuplicateMember`] if a path of one session is
    /// there twice.
    pub fn from_locks(locks: Vec<Box<dyn DistributedLock>>) -> Result<Self, ConfigError> {
        let internals: Vec<_> = locks.iter().flat_map(|lock| lock.internals()).collect();
        check_set(&internals)?;
        let name = set_name(&internals).into();
        let locks = Locks::InTurn(locks.into());
        Ok(Self { locks, name })
    }

    /// Acquires all members, and waits as long as it takes.
    ///
    /// Members that the owner holds already are re-entered.
    ///
    /// # Errors
    /// [`AcquireError`], if waiting on cannot succeed. Nothing stays held or queued.
    ///
    /// # Cancel safety
    /// Dropping the future releases what was acquired and gives up the places in the queues.
    pub async fn acquire(&self) -> Result<MultiGuard, AcquireError> {
        self.acquire_by(None, Wait::Forever).await
    }

    /// Acquires all for an owner, as [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`AcquireError::Lost`] while the owner has guards of a
    /// member that it lost.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as(&self, owner: &Owner) -> Result<MultiGuard, AcquireError> {
        self.acquire_by(Some(owner), Wait::Forever).await
    }

    /// Acquires all within a timeout, which covers all members and steps.
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], and as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, timeout: Duration) -> Result<MultiGuard, AcquireError> {
        self.acquire_by(None, Wait::AtMost(timeout)).await
    }

    /// Acquires all for an owner within a timeout, as [`acquire_timeout`](Self::acquire_timeout).
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
    ) -> Result<MultiGuard, AcquireError> {
        self.acquire_by(Some(owner), Wait::AtMost(timeout)).await
    }

    /// Acquires all if no member has a conflicting contender in its queue, otherwise returns
    /// `None`.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`AcquireError::TimedOut`] if the ensemble does not answer
    /// within the session's connect timeout.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, AcquireError> {
        self.try_acquire_by(None).await
    }

    /// Acquires all for an owner without waiting, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_as`](Self::acquire_as).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_as(&self, owner: &Owner) -> Result<Option<MultiGuard>, AcquireError> {
        self.try_acquire_by(Some(owner)).await
    }

    /// Whether an owner of this process holds each member through its session.
    #[doc(alias = "isAcquiredInThisProcess")]
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let members = self.internals();
        members
            .iter()
            .all(LockInternals::is_acquired_in_this_process)
    }

    async fn acquire_by(
        &self,
        owner: Option<&Owner>,
        wait: Wait,
    ) -> Result<MultiGuard, AcquireError> {
        granted(self.acquire_with(owner.cloned(), wait).await).map(MultiGuard::new)
    }

    async fn try_acquire_by(
        &self,
        owner: Option<&Owner>,
    ) -> Result<Option<MultiGuard>, AcquireError> {
        let outcome = self.acquire_with(owner.cloned(), Wait::Try).await?;
        Ok(outcome.map(MultiGuard::new))
    }
}

impl DistributedLock for MultiLock {
    fn path(&self) -> &str {
        &self.name
    }

    fn acquire_with(
        &self,
        owner: Option<Owner>,
        wait: Wait,
    ) -> BoxFuture<'_, Result<Option<LockGuard>, AcquireError>> {
        match &self.locks {
            Locks::Together { in_order, .. } => {
                async move { acquire_all(in_order, owner.as_ref(), wait).await }.boxed()
            }
            Locks::InTurn(locks) => in_turn::acquire(locks, owner, wait).boxed(),
        }
    }

    fn internals(&self) -> Vec<LockInternals> {
        match &self.locks {
            Locks::Together { in_order, .. } => in_order.to_vec(),
            Locks::InTurn(locks) => locks.iter().flat_map(|lock| lock.internals()).collect(),
        }
    }
}

recipes_core::lock_guard! {
    /// Proof that all members of a [`MultiLock`](crate::MultiLock) are held.
    ///
    /// The set is lost as soon as one member is: [`lost`](LockGuard::lost) names it, and
    /// [`members`](LockGuard::members) lists path, token and state of each. The guard dereferences
    /// to [`LockGuard`], which has the methods of all guards. A
    /// [`transaction`](LockGuard::transaction) commits only while all members are held.
    pub struct MultiGuard
}
