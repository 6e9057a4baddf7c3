//! Losing a lock that was held, and verifying that it is held.

use thiserror::Error;

use crate::store::nodes::NodesError;

/// Why a lock that was held is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The store expired the session, or does not know it.
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
#[error(
    "lock {path:?} is lost ({reason}): stop the work under it, as another contender may hold it"
)]
pub struct LostError {
    /// Path of the lock.
    pub path: String,
    /// Why it is lost.
    pub reason: LostReason,
}

impl LostError {
    /// Whether the lock went with its session, which was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.reason == LostReason::SessionClosed
    }
}

/// Why [`verify`](crate::LockGuard::verify) does not confirm that the lock is held.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The lock is lost.
    #[error("lock {:?} is not held any more ({})", .0.path, .0.reason)]
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
