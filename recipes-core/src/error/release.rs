//! Releasing a lock.

use thiserror::Error;

use crate::error::LostError;
use crate::store::nodes::NodesError;

/// What the caller of a release must act on: the work under the lock may have overlapped with that
/// of another contender, or the lock stays taken.
///
/// A release that is only not confirmed yet is no error, but
/// [`ReleaseOutcome::Pending`](crate::ReleaseOutcome::Pending).
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was lost before, so another contender may have held it at the same time. Nothing is
    /// left behind. What a data store accepted with this lock's fencing token stands: it compared
    /// the token with those of later holders.
    #[error(
        "lock {:?} was lost before it was released ({}): check what was done under it, as another \
         contender may have held it",
        .0.path,
        .0.reason
    )]
    Lost(#[from] LostError),
    /// The store refuses to delete the node. The node stays, and other contenders wait, until
    /// the session ends. Grant DELETE on the lock directory, or close the session.
    #[error(
        "store refused to release lock {path:?}{}; it stays locked until the session ends",
        missing(source, path)
    )]
    Refused {
        /// Path of the lock.
        path: String,
        /// The store's answer.
        #[source]
        source: NodesError,
    },
}

/// What has to be granted.
fn missing(source: &NodesError, path: &str) -> String {
    match source {
        NodesError::NoAuth => format!(", as DELETE on {path:?} is missing"),
        _ => String::new(),
    }
}
