//! Transactions under a lock.

use thiserror::Error;

use crate::error::LostError;
use crate::store::nodes::NodesError;

/// Why a transaction under a lock did not commit, or may not have committed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The lock is lost; nothing was changed.
    #[error(
        "transaction under {:?} not committed, nothing was changed: the lock is lost ({})",
        .0.path,
        .0.reason
    )]
    Lost(#[from] LostError),
    /// The store refused one operation; nothing was changed.
    #[error(
        "operation {index} of a transaction under {path:?}, on {node:?}, refused, nothing was \
         changed"
    )]
    Refused {
        /// Path of the lock.
        path: String,
        /// Index of the operation, in the order in which they were added.
        index: usize,
        /// Path of the node that the operation is for.
        node: String,
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
    /// The connection or the lock was lost before the answer. Either all operations are carried
    /// out or none, perhaps only when the connection is back. To find out, drop the guard, acquire
    /// the lock again, then read.
    #[error(
        "outcome of a transaction under {path:?} unknown: all of it or nothing is done; acquire the lock again, then read"
    )]
    Unknown {
        /// Path of the lock.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}
