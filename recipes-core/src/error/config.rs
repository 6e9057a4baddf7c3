//! What is wrong with options and paths, found before any request is sent.

use std::time::Duration;

use thiserror::Error;

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
    /// The address of a store cannot be read.
    #[error("{address:?} is no address of a store: {reason}")]
    InvalidAddress {
        /// The address, without secrets.
        address: String,
        /// What is wrong with it.
        reason: String,
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
    /// A candidate needs an id, by which others know who leads.
    #[error("the id of a candidate is empty")]
    EmptyId,
    /// A live handle in this session has other options for the same path.
    #[error(
        "lock {path:?} is in use in this session with {option} {in_use}, not {requested}: all \
         handles of a path need the same options"
    )]
    OptionsDiffer {
        /// Path of the lock.
        path: String,
        /// The method of [`LockOptions`](crate::LockOptions) that sets the first that differs.
        option: &'static str,
        /// What the live handle has.
        in_use: String,
        /// What this handle was to have.
        requested: String,
    },
    /// A live handle in this session is of another recipe: a mutex where this is a read/write lock,
    /// or vice versa. Their nodes cannot share a directory.
    #[error("lock {path:?} is in use in this session by another recipe")]
    RecipeDiffers {
        /// Path of the lock.
        path: String,
    },
    /// A live factory of this session makes locks below this path, so the path itself is no lock.
    #[error("{path:?} is the root of a lock factory in this session, so it cannot be a lock")]
    FactoryRoot {
        /// The path.
        path: String,
    },
    /// The root of a factory is a lock: a live handle or guard of this session uses it.
    #[error("{path:?} is a lock in use in this session, so it cannot be the root of a factory")]
    RootIsLock {
        /// The path.
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
    /// A semaphore has no permits, or more than it can have.
    #[error("a semaphore cannot have {permits} permits: 1 to {permits_max} can be set")]
    NoPermits {
        /// As given.
        permits: usize,
        /// The most that is accepted.
        permits_max: usize,
    },
    /// No permit is requested, or more than there are.
    #[error("{requested} permits of semaphore {path:?} were requested, which has {permits}")]
    PermitsRequested {
        /// Path of the semaphore.
        path: String,
        /// As requested.
        requested: usize,
        /// How many it has now, as far as this handle knows.
        permits: usize,
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
    /// The session timeout is shorter than a session can be kept for, or longer than the store can express. The store may
    /// grant another one.
    #[error(
        "a session timeout of {timeout:?} cannot be requested: {timeout_min:?} to {timeout_max:?} can be set"
    )]
    SessionTimeout {
        /// As given.
        timeout: Duration,
        /// The least that is accepted.
        timeout_min: Duration,
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
