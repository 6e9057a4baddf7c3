//! What a member must be like, and what it then promises.

use thiserror::Error;

/// Why a session is not opened on a member that answers, or a request is not carried out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdRefusal {
    /// It accepts neither user nor password, or wants some.
    #[error("etcd does not accept the user: {said}")]
    User {
        /// What it said.
        said: String,
    },
    /// The user may not read and write below the prefix.
    #[error(
        "the user may not read and write all keys below {prefix:?}, which the locks and their sessions need"
    )]
    Rights {
        /// What all keys begin with.
        prefix: String,
    },
    /// Its database is full. It deletes, and creates nothing before an operator has made room.
    #[error(
        "the database of etcd is full (alarm NOSPACE): it creates nothing before it is compacted, \
         defragmented, and the alarm is disarmed"
    )]
    NoSpace,
    /// It changes a key only once in a transaction.
    #[error("etcd changes a node only once in a transaction")]
    Twice,
    /// It refuses a request that is too large for it.
    #[error("etcd refuses a request of this size: {said} (max-txn-ops, max-request-bytes)")]
    TooLarge {
        /// What it said.
        said: String,
    },
}
