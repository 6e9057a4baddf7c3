//! Errors, one enum for each operation.

use std::time::Duration;

use thiserror::Error;

use crate::store::nodes::NodesError;

/// Why a session or a lock cannot be set up as requested. This is found before any request is sent.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The path cannot name a lock.
    #[error("{path:?} cannot be a lock path: {reason}")]
    InvalidPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The identity does not fit into a request to the store.
    #[error("identity of {bytes} bytes is larger than the {bytes_max} that a store takes")]
    IdentityTooLarge {
        /// Its size.
        bytes: usize,
        /// The most that is accepted.
        bytes_max: usize,
    },
    /// The purpose is longer than a record has room for.
    #[error("purpose of {bytes} bytes is longer than the {bytes_max} that a record takes")]
    PurposeTooLarge {
        /// Its size.
        bytes: usize,
        /// The most that is accepted.
        bytes_max: usize,
    },
    /// The identity is what Curator writes into a node to request its lock.
    #[error("identity \"__REVOKE__\" would be taken for a revocation request")]
    IdentityReserved,
    /// A live handle in this session has other options for the same path.
    #[error("lock {path:?} is in use in this session with other options")]
    OptionsDiffer {
        /// Path of the lock.
        path: String,
    },
    /// A live handle in this session is of another recipe: a mutex where this is a read/write lock,
    /// or vice versa. Their nodes cannot share a directory.
    #[error("lock {path:?} is in use in this session by another recipe")]
    RecipeDiffers {
        /// Path of the lock.
        path: String,
    },
    /// A set of locks has no members.
    #[error("a set of locks has no members")]
    EmptySet,
    /// A set has a path twice, in the same or in different kinds, so it would wait for itself.
    #[error("set of locks has {path:?} twice")]
    DuplicateMember {
        /// The path.
        path: String,
    },
    /// The list of shards to spread keys over is empty.
    #[error("there is no shard to spread keys over")]
    NoShards,
    /// Two shards have the same name, but the name decides which keys belong to a shard.
    #[error("two shards are called {name:?}")]
    DuplicateShard {
        /// The name.
        name: String,
    },
    /// The session timeout is longer than the store can express. It may grant much less.
    #[error(
        "session timeout of {timeout:?} is longer than the {timeout_max:?} that the store can grant"
    )]
    SessionTimeoutTooLong {
        /// As given.
        timeout: Duration,
        /// The most that is accepted.
        timeout_max: Duration,
    },
    /// The address of a store has a scheme that this build knows no store for.
    #[error("no store for scheme {scheme:?}: this build has {}", listed(known))]
    UnknownScheme {
        /// As given; `zk` if there was none.
        scheme: String,
        /// The schemes of this build. A feature adds those of its store.
        known: &'static [&'static str],
    },
    /// A list of access control entries is empty, so nobody could use the nodes.
    #[error("the ACL for lock nodes is empty")]
    EmptyAcl,
}

fn listed(schemes: &[&str]) -> String {
    match schemes {
        [] => "none, so enable the feature of a store".to_owned(),
        schemes => schemes.join(", "),
    }
}

/// Why no session could be opened.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The options cannot be used. Nothing was sent.
    #[error("session options cannot be used")]
    Config(#[from] ConfigError),
    /// No server of the store answered in time. Nothing is left behind.
    #[error("no server of {address:?} answered within {waited:?}")]
    TimedOut {
        /// The store, as the call named it.
        address: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The address or an option is not understood, or the store refused the credentials.
    #[error("cannot connect to {address:?}")]
    Refused {
        /// The store, as the call named it.
        address: String,
        /// The answer.
        #[source]
        source: NodesError,
    },
}

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
    /// The timeout passed while other contenders held the lock, or the store did not answer.
    #[error("lock {path:?} not acquired within {waited:?}")]
    TimedOut {
        /// Path of the lock.
        path: String,
        /// The timeout that was given.
        waited: Duration,
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
    #[error("owner still has guards of a lock that it lost; drop them, then acquire again")]
    Lost(#[from] LostError),
    /// The owner holds the read lock of this path, and its own reader would block the writer for
    /// ever. Release the read lock first.
    #[error("owner holds the read lock of {path:?} and would wait for itself; release it first")]
    WouldDeadlock {
        /// Path of the lock.
        path: String,
    },
    /// The ACLs of the store do not allow this session the step.
    #[error("not authorized to {step} of {path:?}")]
    NotAuthorized {
        /// Path of the lock.
        path: String,
        /// What was refused.
        step: Step,
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
    #[error("set of locks not acquired; {} of them are released later, in the background", failures.len())]
    RolledBackLate {
        /// Why the set was not acquired.
        #[source]
        source: Box<AcquireError>,
        /// The errors of the releases.
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
    pub(crate) fn refused(path: &str, step: Step, source: NodesError) -> Self {
        let path = path.to_owned();
        match source {
            NodesError::NoAuth => Self::NotAuthorized { path, step },
            source => Self::Refused { path, step, source },
        }
    }
}

/// Why a lock that was held is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The store expired the session.
    #[error("session expired")]
    SessionExpired,
    /// The session was closed, here or by its client, or the runtime that served it is gone.
    #[error("session closed")]
    SessionClosed,
    /// The store did not answer for so long that it may have expired the session.
    #[error("no answer from the store before the lease's deadline")]
    DeadlinePassed,
    /// The lock node was deleted, but not by the holder.
    #[error("lock node deleted, but not by the holder")]
    NodeRemoved,
}

/// A lock that was held is lost: another contender may hold it now.
#[derive(Clone, Debug, Error)]
#[error("lock {path:?} is lost ({reason})")]
pub struct LostError {
    /// Path of the lock.
    pub path: String,
    /// Why it is lost.
    pub reason: LostReason,
}

/// Why a release does not confirm that the lock was held until now and is free.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was lost before, so another contender may have held it at the same time. Nothing is
    /// left behind.
    #[error("lock was lost before it was released, so another contender may have held it")]
    Lost(#[from] LostError),
    /// There was no answer before the lease's deadline. The node is deleted in the background as
    /// soon as there is a connection, or with the session. Other contenders wait until then.
    #[error("release of lock {path:?} not confirmed yet; it continues in the background")]
    Pending {
        /// Path of the lock.
        path: String,
    },
    /// The store refuses to delete the node. The node stays, and other contenders wait, until
    /// the session ends. Grant DELETE on the lock directory, or close the session.
    #[error("store refused to release lock {path:?}; it stays locked until the session ends")]
    Refused {
        /// Path of the lock.
        path: String,
        /// The store's answer.
        #[source]
        source: NodesError,
    },
}

/// Why [`verify`](crate::LockGuard::verify) does not confirm that the lock is held.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The lock is lost.
    #[error("lock is not held any more")]
    Lost(#[from] LostError),
    /// The store refused or did not answer; the guard may still be valid.
    #[error("lock {path:?} not verified")]
    Unknown {
        /// Path of the lock.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}

/// Why a transaction under a lock did not commit, or may not have committed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The lock is lost; nothing was changed.
    #[error("transaction not committed, nothing was changed")]
    Lost(#[from] LostError),
    /// The store refused one operation; nothing was changed.
    #[error("operation {index} of a transaction under {path:?} refused, nothing was changed")]
    Refused {
        /// Path of the lock.
        path: String,
        /// Index of the operation, in the order in which they were added.
        index: usize,
        /// Why.
        #[source]
        source: NodesError,
    },
    /// The store refused the transaction as a whole; nothing was changed.
    #[error("transaction under {path:?} refused, nothing was changed")]
    Rejected {
        /// Path of the lock.
        path: String,
        /// Why.
        #[source]
        source: NodesError,
    },
    /// The connection or the lock was lost before the answer. Either all operations were carried
    /// out or none; read to find out.
    #[error(
        "outcome of a transaction under {path:?} unknown: all of it or nothing was done; read to find out"
    )]
    Unknown {
        /// Path of the lock.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}

/// Why a request to give a lock up failed, or may have failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The session was closed or has ended.
    #[error("request to give up {path:?} not made: the session is closed")]
    SessionClosed {
        /// Path of the node.
        path: String,
    },
    /// The store refused. No request was made.
    #[error("request to give up {path:?} not made")]
    Failed {
        /// Path of the node.
        path: String,
        /// The store's answer.
        #[source]
        source: NodesError,
    },
    /// The store did not answer, so the request may have been made. Making it again is harmless.
    #[error("request to give up {path:?} may or may not have been made; repeat it")]
    Unknown {
        /// Path of the node.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}

/// Why a read without a lock failed. Nothing was changed. [`is_transient`](Self::is_transient)
/// says whether a retry may help.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The path cannot be read.
    #[error("query cannot be made")]
    Config(#[from] ConfigError),
    /// The session was closed or has ended.
    #[error("{path:?} not read: the session is closed")]
    SessionClosed {
        /// The path to be read.
        path: String,
    },
    /// The store refused or did not answer.
    #[error("{path:?} not read")]
    Failed {
        /// The path to be read.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}

impl QueryError {
    /// Whether the same read may succeed if it is repeated soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Failed { source, .. } => {
                source.is_transient() || matches!(source, NodesError::SessionEnded)
            }
            Self::Config(_) | Self::SessionClosed { .. } => false,
        }
    }
}
