//! The multi-lock and its guard.

use std::fmt;
use std::sync::Arc;

use recipes_core::internal::sealed::Sealed;
use recipes_core::internal::{LockInternals, Locks};
use recipes_core::{Acquire, DistributedLock, Error, Session, TryAcquire};

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
#[derive(Clone)]
pub struct MultiLock {
    locks: Locks,
    /// The members of [`MultiLock::new`], in the order in which it got them.
    as_given: Option<Locks>,
    name: Arc<str>,
}

impl MultiLock {
    /// Makes the set of these locks. It waits for them in the order of their paths. Sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::EmptySet`](recipes_core::ConfigError::EmptySet);
    /// [`ConfigError::DuplicateMember`](recipes_core::ConfigError::DuplicateMember) if a path is there twice, in the
    /// same or in different kinds; otherwise the errors of the single locks.
    pub fn new(
        session: &Session,
        members: impl IntoIterator<Item = Member>,
    ) -> Result<Self, Error> {
        let opened = members.into_iter().map(|member| member.open(session));
        let as_given: Vec<_> = opened.collect::<Result<_, _>>()?;
        let mut in_order = as_given.clone();
        in_order.sort_by(|a, b| a.path().cmp(b.path()));
        let in_order =
            Locks::together(in_order)?.listed_by(as_given.iter().map(LockInternals::path));
        Ok(Self {
            as_given: Some(Locks::together(as_given)?),
            ..Self::of(in_order)
        })
    }

    /// The same set, whose guard lists its members in the order of these paths.
    #[doc(hidden)]
    #[must_use]
    pub fn listed_by<'a>(self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            locks: self.locks.listed_by(paths),
            ..self
        }
    }

    /// Waits for the members in the order in which they were given. This is for fleets that have
    /// agreed on another order than that of the paths.
    ///
    /// All contenders that take several of these locks must keep to that order. Otherwise they can
    /// wait for each other.
    #[must_use]
    pub fn in_given_order(self) -> Self {
        match self.as_given {
            Some(as_given) => Self {
                as_given: Some(as_given.clone()),
                ..Self::of(as_given)
            },
            None => self,
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
    /// [`ConfigError::EmptySet`](recipes_core::ConfigError::EmptySet);
    /// [`ConfigError::DuplicateMember`](recipes_core::ConfigError::DuplicateMember) if a path of one session is there
    /// twice.
    pub fn from_locks(locks: Vec<Box<dyn DistributedLock>>) -> Result<Self, Error> {
        let locks = locks.iter().map(|lock| lock.locks());
        Ok(Self::of(Locks::in_turn(locks.collect())?))
    }

    fn of(locks: Locks) -> Self {
        Self {
            name: locks.to_string().into(),
            locks,
            as_given: None,
        }
    }

    /// Makes a request for all members, which waits as long as it takes, or as its
    /// [`timeout`](Acquire::timeout) says.
    ///
    /// Members that the owner holds already are re-entered. [`Acquire`] lists the errors, and says
    /// what is left if the request is dropped.
    pub fn acquire(&self) -> Acquire<MultiGuard> {
        Acquire::new(self.locks(), MultiGuard::new)
    }

    /// Makes a request that acquires all if no member has a conflicting contender in its queue, and
    /// returns `None` otherwise.
    pub fn try_acquire(&self) -> TryAcquire<MultiGuard> {
        TryAcquire::new(self.locks(), MultiGuard::new)
    }

    /// Whether an owner of this process holds each member through its session.
    #[doc(alias = "isAcquiredInThisProcess")]
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let members = self.locks.singles();
        members
            .iter()
            .all(LockInternals::is_acquired_in_this_process)
    }
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("path", &self.name)
            .finish()
    }
}

impl Sealed for MultiLock {
    fn locks(&self) -> Locks {
        self.locks.clone()
    }
}

impl DistributedLock for MultiLock {
    fn path(&self) -> &str {
        &self.name
    }
}

recipes_core::lock_guard! {
    /// Proof that all members of a [`MultiLock`](crate::MultiLock) are held.
    ///
    /// The set is lost as soon as one member is: [`lost`] names it, and [`members`] lists path,
    /// token and state of each. The guard dereferences to [`LockGuard`](recipes_core::LockGuard),
    /// which has the methods of all guards. A [`transaction`] commits only while all members are
    /// held.
    ///
    /// [`lost`]: recipes_core::LockGuard::lost
    /// [`members`]: recipes_core::LockGuard::members
    /// [`transaction`]: recipes_core::LockGuard::transaction
    pub struct MultiGuard
}
