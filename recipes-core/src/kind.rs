//! The kinds of locks.

/// The kind of a lock. It decides the names of its nodes and which contenders wait for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    /// One holder. Curator `InterProcessMutex`.
    Mutex,
    /// Shared with other readers. Curator `InterProcessReadWriteLock.readLock()`.
    Read,
    /// One holder, no readers. Curator `InterProcessReadWriteLock.writeLock()`.
    Write,
    /// One of the permits of a semaphore. Curator calls it a lease, `InterProcessSemaphoreV2`.
    Permit,
    /// One leader. Curator `LeaderLatch`.
    Latch,
}

/// Every kind.
pub(crate) const KINDS: [LockKind; 5] = [
    LockKind::Mutex,
    LockKind::Read,
    LockKind::Write,
    LockKind::Permit,
    LockKind::Latch,
];

impl LockKind {
    /// The text between the uuid and the sequence.
    pub(crate) const fn marker(self) -> &'static str {
        match self {
            Self::Mutex => "lock-",
            Self::Read => "__READ__",
            Self::Write => "__WRIT__",
            Self::Permit => "lease-",
            Self::Latch => "latch-",
        }
    }

    /// The kind by whose names the nodes of this kind's directory are ordered. Kinds of which it
    /// differs cannot share a directory.
    pub(crate) const fn queue(self) -> Self {
        match self {
            Self::Read | Self::Write => Self::Write,
            Self::Mutex | Self::Permit | Self::Latch => self,
        }
    }

    /// The other half of a read/write lock.
    pub(crate) const fn counterpart(self) -> Option<Self> {
        match self {
            Self::Read => Some(Self::Write),
            Self::Write => Some(Self::Read),
            Self::Mutex | Self::Permit | Self::Latch => None,
        }
    }

    /// Whether one holder alone keeps out a contender of another kind in its directory. One permit
    /// keeps nobody out.
    pub(crate) const fn excludes(self, contender: Self) -> bool {
        !matches!(
            (self, contender),
            (Self::Read, Self::Read) | (Self::Permit, Self::Permit)
        )
    }

    /// Each kind, once.
    #[doc(hidden)]
    pub const ALL: [Self; 5] = [
        Self::Mutex,
        Self::Read,
        Self::Write,
        Self::Permit,
        Self::Latch,
    ];

    /// The word that a node's record and logs use for this kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permit => "permit",
            Self::Latch => "latch",
        }
    }
}
