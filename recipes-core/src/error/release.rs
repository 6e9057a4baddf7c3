//! Releasing a lock.

use thiserror::Error;

use crate::error::LostError;
use crate::store::nodes::NodesError;

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
