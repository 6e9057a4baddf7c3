//! Checking a lock inside a transaction of a database.

use thiserror::Error;

use crate::error::LostError;
use crate::store::nodes::NodesError;

/// Why a guard has no [`fence`](crate::LockGuard::fence).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The lock is lost.
    #[error(transparent)]
    Lost(#[from] LostError),
    /// The store is no database whose transactions can check a lock, or a set is held on several.
    #[error(
        "lock {path:?} cannot be checked inside a transaction of a database: it is on another store. \
         Use its fencing token"
    )]
    Unsupported {
        /// Path of the lock.
        path: String,
    },
    /// The session has ended.
    #[error("lock {path:?} cannot be checked inside a transaction: its session has ended")]
    Ended {
        /// Path of the lock.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}
