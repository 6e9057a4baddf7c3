//! Acquiring a lock or a set of locks.

use std::time::Duration;

use thiserror::Error;

use crate::clock::human;
use crate::error::{LostError, ReleaseError, TimeoutReason};
use crate::kind::LockKind;
use crate::store::nodes::NodesError;

/// The step of an operation that the store refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Creating the parents of the lock directory, or the directory itself.
    CreateParents,
    /// Creating the lock node.
    Create,
    /// Listing the lock directory.
    List,
    /// Reading or watching a lock node.
    Watch,
    /// Deleting the lock node.
    Delete,
}

impl Step {
    /// The permission that the store asks for, on the directory or node that is named with the
    /// step.
    #[must_use]
    pub fn permission(self) -> &'static str {
        match self {
            Self::CreateParents | Self::Create => "CREATE",
            Self::List | Self::Watch => "READ",
            Self::Delete => "DELETE",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CreateParents => "create the parents of the lock directory",
            Self::Create => "create the lock node",
            Self::List => "list the lock directory",
            Self::Watch => "watch a lock node",
            Self::Delete => "delete the lock node",
        })
    }
}

/// Why a lock was not acquired.
///
/// Whatever the variant, no node of the attempt stays. It is deleted now, on reconnect, or with its
/// session.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The timeout passed. The reason says whether the lock was busy or the store did not answer.
    #[error("lock {path:?} not acquired {}: {}", within(*waited), reason.of(path))]
    TimedOut {
        /// Path of the lock; of a set, all paths. Locks that are acquired in turn, as those of
        /// `MultiLock::from_locks`, fail with the path of the one whose turn it was.
        path: String,
        /// The timeout that was given; of a try, how long it waited for the store's answers.
        waited: Duration,
        /// What the acquire was waiting for in the end.
        reason: TimeoutReason,
        /// The last error of a request, if the store has not answered any since.
        source: Option<NodesError>,
    },
    /// The session was closed, or its runtime is gone. Make another session.
    #[error("lock {path:?} not acquired: the session is closed")]
    SessionClosed {
        /// Path of the lock.
        path: String,
    },
    /// The session ended and cannot be opened again. It was made from a client, or the store
    /// refused its credentials.
    #[error("lock {path:?} not acquired: the session has ended and cannot be opened again")]
    SessionEnded {
        /// Path of the lock.
        path: String,
    },
    /// The store's transaction numbers went back, so it has lost data. A grant would have a lower
    /// fencing token than earlier ones, so the session has ended. Make sure that the stores that
    /// refuse old tokens accept new ones, then open another session.
    #[error(
        "lock {path:?} not acquired: the store has lost data, as its transaction numbers went back \
         from {seen} to {now}"
    )]
    StoreForgot {
        /// Path of the lock.
        path: String,
        /// The highest number that the session had seen.
        seen: i64,
        /// The number of a later transaction.
        now: i64,
    },
    /// The owner held this lock, lost it, and has not dropped all guards of it yet. Drop them,
    /// discard what was done under the lock, then acquire again.
    #[error("owner still has guards of lock {:?}, which it lost; drop them, then acquire again",
        .0.path)]
    Lost(#[from] LostError),
    /// The owner holds the read lock of this path, and its own reader would block the writer for
    /// ever. Release the read lock first; or write first, and downgrade.
    #[error(
        "owner holds the read lock of {path:?} and would wait for itself: release it first, or \
         write first and downgrade"
    )]
    WouldDeadlock {
        /// Path of the lock.
        path: String,
    },
    /// The session only reads: it was opened with [`read_only`](crate::SessionOptions::read_only).
    #[error("lock {path:?} not acquired: the session only reads (SessionOptions::read_only)")]
    ReadOnly {
        /// Path of the lock.
        path: String,
    },
    /// The path is used by another recipe. Its contenders and this lock would not keep each other out:
    /// both would hold at the same time. Use another path, or the same recipe everywhere.
    ///
    /// A node that a crash has left goes with its session. A semaphore is known by the directory
    /// `leases`, also while nobody uses it. The store removes an empty one by and by, and keeps it if
    /// parents are [persistent](crate::ParentMode::Persistent): then delete it.
    #[error(
        "lock {path:?} not acquired: {node:?} is of {}, and the two would not keep each other out; \
         use another path, or delete what is left over",
        recipe(*found)
    )]
    RecipeDiffers {
        /// Path of the lock; of a semaphore, that of its leases.
        path: String,
        /// Full path of a node of the other recipe, or of its directory.
        node: String,
        /// What that node contends for.
        found: LockKind,
    },
    /// The ACLs of the store do not allow this session the step.
    #[error("not authorized to {step} of {path:?}: {} on {node:?} is missing", step.permission())]
    NotAuthorized {
        /// Path of the lock.
        path: String,
        /// What was refused. It says which [permission](Step::permission) is missing.
        step: Step,
        /// The node or directory on which it is missing.
        node: String,
    },
    /// The store refused for another reason.
    #[error("store refused to {step} of {path:?}")]
    Refused {
        /// Path of the lock.
        path: String,
        /// What was refused.
        step: Step,
        /// The store's answer.
        #[source]
        source: NodesError,
    },
    /// A set of locks was not acquired, and some members that were acquired are not released yet.
    /// They are released in the background: on reconnect, or with their session.
    #[error(
        "set of locks not acquired; {} of them are released later, in the background",
        pending.len() + failures.len()
    )]
    RolledBackLate {
        /// Why the set was not acquired.
        #[source]
        source: Box<AcquireError>,
        /// Paths of the locks whose release is not confirmed yet.
        pending: Vec<String>,
        /// The errors of the other releases.
        failures: Vec<ReleaseError>,
    },
    /// The counter of the lock directory has reached 2^31 - 1, so names do not show the order any
    /// more. Stop all users of the lock and delete the directory; then the counter restarts.
    #[error("sequence numbers of lock {path:?} are used up ({sequence}); delete its directory")]
    SequenceExhausted {
        /// Path of the lock.
        path: String,
        /// The sequence of the refused node.
        sequence: i32,
    },
}

impl AcquireError {
    /// Whether the same acquire may succeed once the store answers again. A lock that is busy does
    /// not count: see [`is_busy`](Self::is_busy).
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::TimedOut { reason, .. } => reason.is_outage(),
            Self::Refused { source, .. } => source.is_transient(),
            Self::RolledBackLate { source, .. } => source.is_transient(),
            _ => false,
        }
    }

    /// Whether the session is closed or has ended, so that no acquire through it succeeds any more.
    ///
    /// A session that ended because the [store has lost data](Self::StoreForgot) does not count:
    /// that needs an operator before another session may be opened.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::SessionClosed { .. } | Self::SessionEnded { .. } => true,
            Self::Lost(lost) => lost.is_closed(),
            Self::RolledBackLate { source, .. } => source.is_closed(),
            _ => false,
        }
    }

    /// Whether the acquire gave up because of other contenders, while the store answered.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::TimedOut { reason, .. } => !reason.is_outage(),
            Self::RolledBackLate { source, .. } => source.is_busy(),
            _ => false,
        }
    }

    /// A step that was refused in the lock directory itself.
    pub(crate) fn refused(path: &str, step: Step, source: NodesError) -> Self {
        Self::refused_on(path, path, step, source)
    }

    /// A step that was refused on a node, or in a directory.
    pub(crate) fn refused_on(path: &str, node: &str, step: Step, source: NodesError) -> Self {
        let path = path.to_owned();
        match source {
            NodesError::NoAuth => Self::NotAuthorized {
                path,
                step,
                node: node.to_owned(),
            },
            source => Self::Refused { path, step, source },
        }
    }
}

/// The recipe of a kind of nodes.
fn recipe(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "a mutex",
        LockKind::Read | LockKind::Write => "a read/write lock",
        LockKind::Permit => "a semaphore",
        LockKind::Latch => "a leader latch",
    }
}

fn within(waited: Duration) -> String {
    match waited.is_zero() {
        true => "at once".to_owned(),
        false => format!("within {}", human(waited)),
    }
}
