//! One lock of one kind.

use std::fmt;
use std::sync::Arc;

use crate::driver::acquire_all::{Refusal, acquire_all};
use crate::driver::deadline::Deadline;
use crate::driver::guard::LockGuard;
use crate::driver::one_or_more::OneOrMore;
use crate::error::ConfigError;
use crate::lock::lease::Lease;
use crate::lock::lock_path::LockPath;
use crate::lock::session::Session;
use crate::lock::table::{Key, PathTable};
use crate::lock::target::{Permits, Target};
use crate::names::node_name::LockKind;
use crate::names::owner::Owner;
use crate::names::record;
use crate::session::options::LockOptions;

/// One lock of one kind, the core of every recipe.
#[doc(hidden)]
#[derive(Clone)]
pub struct LockInternals {
    pub(crate) target: Target,
    /// Whether an owner that holds it enters it again.
    reenters: bool,
}

impl fmt::Debug for LockInternals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInternals")
            .field("path", &self.path())
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

impl LockInternals {
    /// The lock of a path in a session.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`], [`ConfigError::OptionsDiffer`].
    pub fn new(
        session: &Session,
        path: &str,
        kind: LockKind,
        options: &LockOptions,
    ) -> Result<Self, ConfigError> {
        let lock = LockPath::open(session, path, kind, options)?;
        Ok(Self {
            target: Target {
                lock,
                kind,
                beside: None,
                owner: None,
                permits: None,
                data: None,
            },
            reenters: true,
        })
    }

    /// The same lock, which every acquire contends for, whatever its owner holds.
    #[must_use]
    pub fn not_reentrant(self) -> Self {
        let reenters = false;
        Self { reenters, ..self }
    }

    /// The lease of a semaphore with so many permits.
    pub(crate) fn of_permits(mut self, permits: Permits) -> Self {
        self.target.permits = Some(permits);
        self.not_reentrant()
    }

    /// The same lock, whose nodes contain these bytes when they are made through this handle.
    /// Other handles of the path may write others.
    ///
    /// # Errors
    /// [`ConfigError::IdentityTooLarge`], [`ConfigError::IdentityReserved`].
    pub fn with_data(mut self, bytes: &[u8]) -> Result<Self, ConfigError> {
        Self::check_data(bytes)?;
        self.target.data = Some(bytes.into());
        Ok(self)
    }

    /// Whether nodes can contain these bytes.
    ///
    /// # Errors
    /// As [`with_data`](Self::with_data).
    pub fn check_data(bytes: &[u8]) -> Result<(), ConfigError> {
        record::check_custom(bytes)
    }

    /// The read half of a lock that is held for writing.
    pub(crate) fn reader_of(writer: &Lease) -> Self {
        let target = Target {
            lock: Arc::clone(writer.lock()),
            kind: LockKind::Read,
            beside: None,
            owner: None,
            permits: None,
            data: None,
        };
        Self {
            target,
            reenters: true,
        }
    }

    /// Whether both use the same directory in the same session.
    #[must_use]
    pub fn shares_directory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.target.lock, &other.target.lock)
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.target.lock.path
    }

    /// Whether this is a mutex, or which half of a read/write lock it is.
    pub(crate) fn kind(&self) -> LockKind {
        self.target.kind
    }

    pub(crate) fn table(&self) -> &PathTable {
        self.session().paths()
    }

    /// The session through which the lock is taken.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.target.lock.session
    }

    /// Acquires this lock.
    pub(crate) async fn acquire(
        &self,
        owner: Option<&Owner>,
        deadline: Deadline,
    ) -> Result<LockGuard, Refusal> {
        acquire_all(&OneOrMore::one(self.clone()), owner, deadline).await
    }

    /// Whether some owner holds the lock through this session.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let holds = self.session().paths().holds(self.path());
        holds.iter().any(|hold| {
            hold.key().kind == self.target.kind
                && hold.guard_count() > 0
                && hold.lease().check().is_ok()
        })
    }

    /// Under what an acquire for this owner stands in the table.
    pub(crate) fn key(&self, owner: &Owner) -> Key {
        let path = Arc::clone(&self.target.lock.path);
        Key {
            path,
            kind: self.target.kind,
            owner: match self.reenters {
                true => owner.clone(),
                false => Owner::new(),
            },
        }
    }
}

/// The path, as logs and errors name the lock.
impl fmt::Display for LockInternals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

/// The paths of a set. Those of the leases of one acquire, which share a directory, are shown once.
impl fmt::Display for OneOrMore<LockInternals> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<_> = self.iter().collect();
        shown.dedup_by(|one, next| one.shares_directory(next));
        let paths: Vec<_> = shown.into_iter().map(LockInternals::path).collect();
        f.write_str(&paths.join(", "))
    }
}

/// Checks that no two of these locks share a directory, so that they can be held together.
pub(crate) fn check_distinct(members: &[LockInternals]) -> Result<(), ConfigError> {
    for (index, member) in members.iter().enumerate() {
        let mut earlier = members.iter().take(index);
        if earlier.any(|it| it.shares_directory(member)) {
            let path = member.path().to_owned();
            return Err(ConfigError::DuplicateMember { path });
        }
    }
    Ok(())
}
