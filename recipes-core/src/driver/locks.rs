//! The locks that one request acquires, and the interface of all locks.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};

use crate::driver::acquire_all::{Refusal, acquire_all};
use crate::driver::deadline::Deadline;
use crate::driver::guard::LockGuard;
use crate::driver::in_turn;
use crate::driver::internals::{LockInternals, check_distinct};
use crate::driver::one_or_more::OneOrMore;
use crate::driver::request::{Acquire, TryAcquire};
use crate::error::ConfigError;
use crate::names::owner::Owner;

/// What keeps others from implementing [`DistributedLock`].
#[doc(hidden)]
pub mod sealed {
    use super::Locks;

    /// A lock that the driver can acquire.
    pub trait Sealed {
        /// The locks that it consists of.
        fn locks(&self) -> Locks;
    }
}

/// A lock of any kind, for code that works with all of them. Only the locks of this library
/// implement it.
///
/// # Examples
/// ```no_run
/// # use recipes_core::{DistributedLock, Error};
/// async fn nightly(lock: &dyn DistributedLock) -> Result<(), Error> {
///     let Some(_guard) = lock.try_acquire().await? else {
///         return Ok(()); // another process is at it
///     };
///     // ...
///     Ok(())
/// }
/// ```
pub trait DistributedLock: sealed::Sealed + Send + Sync + 'static {
    /// Path of the lock directory; for a set, all paths.
    fn path(&self) -> &str;

    /// Makes a request that waits as long as it takes, or as its [`timeout`](Acquire::timeout)
    /// says. [`Acquire`] lists the errors.
    fn acquire(&self) -> Acquire<LockGuard> {
        Acquire::new(self.locks(), |guard| guard)
    }

    /// Makes a request that acquires if no conflicting contender is in the queue, and returns
    /// `None` otherwise. [`Acquire`] lists the errors.
    fn try_acquire(&self) -> TryAcquire<LockGuard> {
        TryAcquire::new(self.locks(), |guard| guard)
    }
}

/// The locks that one request acquires: all or none.
#[doc(hidden)]
#[derive(Clone)]
pub enum Locks {
    /// One lock.
    One(LockInternals),
    /// Locks of one session, acquired as one attempt.
    Together(Arc<OneOrMore<LockInternals>>),
    /// Acquired one after the other, because their sessions may differ.
    InTurn(Arc<OneOrMore<Locks>>),
    /// These, whose guard lists them in the order in which they were asked for: the place of each among the singles.
    Listed(Arc<Locks>, Arc<[usize]>),
}

impl Locks {
    /// Locks of one session, which are waited for in this order.
    ///
    /// # Errors
    /// [`ConfigError::EmptySet`], [`ConfigError::DuplicateMember`].
    pub fn together(locks: Vec<LockInternals>) -> Result<Self, ConfigError> {
        check_distinct(&locks)?;
        Ok(Self::Together(Arc::new(OneOrMore::new(locks)?)))
    }

    /// Locks of any sessions, which are acquired one after the other.
    ///
    /// # Errors
    /// [`ConfigError::EmptySet`], [`ConfigError::DuplicateMember`].
    pub fn in_turn(locks: Vec<Self>) -> Result<Self, ConfigError> {
        let locks = Self::InTurn(Arc::new(OneOrMore::new(locks)?));
        check_distinct(&locks.singles())?;
        Ok(locks)
    }

    /// The same, whose guard lists its members in the order of these paths.
    #[must_use]
    pub fn listed_by<'a>(self, paths: impl IntoIterator<Item = &'a str>) -> Self {
        let asked: HashMap<_, _> = paths.into_iter().zip(0..).collect();
        let mut places: Vec<_> = (0..).zip(self.singles()).collect();
        places.sort_by_key(|(_, lock)| asked.get(lock.path()).copied());
        let places = places.into_iter().map(|(place, _)| place).collect();
        Self::Listed(Arc::new(self), places)
    }

    /// The single locks, in the order in which they are waited for.
    #[must_use]
    pub fn singles(&self) -> Vec<LockInternals> {
        match self {
            Self::One(lock) => vec![lock.clone()],
            Self::Together(locks) => locks.iter().cloned().collect(),
            Self::InTurn(locks) => locks.iter().flat_map(Self::singles).collect(),
            Self::Listed(locks, _) => locks.singles(),
        }
    }

    /// Acquires when it is polled.
    pub(crate) fn acquire(
        &self,
        owner: Option<Owner>,
        deadline: Deadline,
    ) -> BoxFuture<'static, Result<LockGuard, Refusal>> {
        match self.clone() {
            Self::One(lock) => async move { lock.acquire(owner.as_ref(), deadline).await }.boxed(),
            Self::Together(locks) => {
                async move { acquire_all(&locks, owner.as_ref(), deadline).await }.boxed()
            }
            Self::InTurn(locks) => in_turn::acquire(locks, owner, deadline).boxed(),
            Self::Listed(locks, places) => {
                let acquired = locks.acquire(owner, deadline);
                acquired.map_ok(|guard| guard.listed(places)).boxed()
            }
        }
    }
}

/// The paths, as logs and errors name the set.
impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(lock) => lock.fmt(f),
            Self::Together(locks) => locks.fmt(f),
            Self::InTurn(locks) => locks.fmt(f),
            Self::Listed(locks, _) => locks.fmt(f),
        }
    }
}

/// The paths of locks that are acquired in turn, in whichever sessions.
impl fmt::Display for OneOrMore<Locks> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.iter().map(Locks::to_string).collect();
        f.write_str(&paths.join(", "))
    }
}

/// The paths.
impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks = self.singles();
        let paths = locks.iter().map(LockInternals::path);
        f.debug_list().entries(paths).finish()
    }
}
