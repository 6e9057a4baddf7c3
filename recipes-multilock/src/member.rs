//! The members of a set.

use recipes_core::internal::LockInternals;
use recipes_core::{ConfigError, LockKind, LockOptions, Session};

/// One lock of a [`MultiLock`](crate::MultiLock): a path and how it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a member does nothing outside a MultiLock"]
pub struct Member {
    path: String,
    kind: LockKind,
    options: LockOptions,
}

impl Member {
    /// Returns the mutex of a path.
    pub fn mutex(path: impl Into<String>) -> Self {
        Self::new(path.into(), LockKind::Mutex)
    }

    /// Returns the read/write lock of a path, held for reading.
    pub fn read(path: impl Into<String>) -> Self {
        Self::new(path.into(), LockKind::Read)
    }

    /// Returns the read/write lock of a path, held for writing.
    pub fn write(path: impl Into<String>) -> Self {
        Self::new(path.into(), LockKind::Write)
    }

    /// Sets the options of the lock.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns a lock of this kind.
    #[doc(hidden)]
    pub fn new(path: String, kind: LockKind) -> Self {
        let options = LockOptions::new();
        Self {
            path,
            kind,
            options,
        }
    }

    pub(crate) fn open(&self, session: &Session) -> Result<LockInternals, ConfigError> {
        LockInternals::new(session, &self.path, self.kind, &self.options)
    }
}
