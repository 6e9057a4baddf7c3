//! Requests to give a lock up.

use thiserror::Error;

use crate::store::nodes::NodesError;

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

impl RevokeError {
    /// Whether the session is closed or has ended, so that no request through it is made any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::SessionClosed { .. })
    }
}
