//! The locks of a semaphore: its mutex, and as many leases as permits are requested.

use std::sync::Arc;

use tokio::sync::watch;

use crate::driver::guard::LockGuard;
use crate::driver::internals::LockInternals;
use crate::driver::locks::Locks;
use crate::driver::one_or_more::OneOrMore;
use crate::error::ConfigError;
use crate::lock::session::Session;
use crate::names::node_name::LockKind;
use crate::names::path;
use crate::rules::mixed::{LEASES, MUTEX};
use crate::session::options::LockOptions;

/// The most permits that a semaphore can have. The contender whose turn it is watches every lease,
/// and all leases of one acquire are made in one transaction.
const PERMITS_MAX: usize = 10_000;

/// A semaphore, the core of its recipe.
///
/// An acquire takes the mutex and its leases as one set. So an uncontended one is a single request,
/// and of all that contend, only the one with the mutex waits for leases. It gives the mutex back as
/// soon as it is granted.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SemaphoreInternals {
    path: Arc<str>,
    pub(crate) mutex: LockInternals,
    pub(crate) lease: LockInternals,
    permits: Arc<watch::Sender<usize>>,
}

impl SemaphoreInternals {
    /// The semaphore of a path in a session.
    ///
    /// # Errors
    /// [`ConfigError::NoPermits`], [`ConfigError::InvalidPath`], [`ConfigError::OptionsDiffer`].
    pub fn new(
        session: &Session,
        path: &str,
        permits: usize,
        options: &LockOptions,
    ) -> Result<Self, ConfigError> {
        Self::check(permits)?;
        path::validate(path)?;
        let (permits, changes) = watch::channel(permits);
        let (mutex, leases) = (format!("{path}/{MUTEX}"), format!("{path}/{LEASES}"));
        let mutex = LockInternals::new(session, &mutex, LockKind::Mutex, options)?;
        let lease = LockInternals::new(session, &leases, LockKind::Permit, options)?;
        Ok(Self {
            path: path.into(),
            mutex: mutex.not_reentrant(),
            lease: lease.of_permits(changes),
            permits: Arc::new(permits),
        })
    }

    /// Whether a semaphore can have so many permits.
    ///
    /// # Errors
    /// [`ConfigError::NoPermits`].
    pub fn check(permits: usize) -> Result<(), ConfigError> {
        let permits_max = PERMITS_MAX;
        match (1..=permits_max).contains(&permits) {
            true => Ok(()),
            false => Err(ConfigError::NoPermits {
                permits,
                permits_max,
            }),
        }
    }

    /// Path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// How many permits there are.
    #[must_use]
    pub fn permits(&self) -> usize {
        *self.permits.borrow()
    }

    /// Sets how many permits there are, for acquires that are waiting too.
    ///
    /// # Errors
    /// [`ConfigError::NoPermits`].
    pub fn set_permits(&self, permits: usize) -> Result<(), ConfigError> {
        Self::check(permits)?;
        self.permits.send_replace(permits);
        Ok(())
    }

    /// The locks of one permit.
    #[must_use]
    pub fn one(&self) -> Locks {
        self.locks(1)
    }

    fn locks(&self, leases: usize) -> Locks {
        let leases = (0..leases).map(|_| self.lease.clone());
        let locks = OneOrMore::of(self.mutex.clone(), leases.collect());
        Locks::Together(Arc::new(locks))
    }

    /// The locks of so many permits.
    ///
    /// # Errors
    /// [`ConfigError::PermitsRequested`].
    pub fn many(&self, requested: usize) -> Result<Locks, ConfigError> {
        let permits = self.permits();
        match (1..=permits).contains(&requested) {
            true => Ok(self.locks(requested)),
            false => Err(ConfigError::PermitsRequested {
                path: self.path.to_string(),
                requested,
                permits,
            }),
        }
    }

    /// The guard of the permits, without the mutex.
    pub fn permit(guard: LockGuard) -> LockGuard {
        guard.without_first(|mutex| mutex.rsplit_once('/').map_or(mutex, |(path, _)| path))
    }
}
