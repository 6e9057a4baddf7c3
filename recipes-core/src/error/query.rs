//! Requests without a lock.

use thiserror::Error;

use crate::error::ConfigError;
use crate::store::nodes::NodesError;

/// Why a request without a lock failed: to read, to show locks, or to have a holder give its lock up. Nothing was
/// changed, except as [`Unknown`](Self::Unknown) says.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The path cannot be asked about. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no such node. The directory of a lock that was not used for a while may be gone.
    #[error("{path:?} does not exist")]
    NoSuchNode {
        /// The path.
        path: String,
    },
    /// The node contains no lock node: it is something else, or a lock without contenders.
    #[error("{path:?} is no lock that anybody holds or waits for")]
    NotALock {
        /// The path.
        path: String,
    },
    /// The ACLs of the store do not allow this session to do it.
    #[error("not authorized to use {path:?}")]
    NotAuthorized {
        /// The path of the request.
        path: String,
    },
    /// The session was closed or has ended for good.
    #[error("{path:?} is not reached: the session is closed")]
    SessionClosed {
        /// The path of the request.
        path: String,
    },
    /// The store does not answer.
    #[error("no answer about {path:?}")]
    Unanswered {
        /// The path of the request.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
    /// The store refused for another reason.
    #[error("store refused a request for {path:?}")]
    Refused {
        /// The path of the request.
        path: String,
        /// The store's answer.
        #[source]
        source: NodesError,
    },
    /// The store did not answer a request to give a lock up, so it may have been made. Making it again is harmless.
    #[error("request to give up {path:?} may or may not have been made; repeat it")]
    Unknown {
        /// Path of the node.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}

impl QueryError {
    /// The error of a request that the store has not carried out.
    pub(crate) fn failed(path: &str, source: NodesError) -> Self {
        let path = path.to_owned();
        match source {
            NodesError::NoNode => Self::NoSuchNode { path },
            NodesError::NoAuth => Self::NotAuthorized { path },
            NodesError::SessionEnded => Self::Unanswered { path, source },
            source if source.is_transient() => Self::Unanswered { path, source },
            source => Self::Refused { path, source },
        }
    }

    /// Whether the session is closed or has ended, so that no request through it is answered any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::SessionClosed { .. })
    }

    /// Whether the same request may be answered if it is repeated soon.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unanswered { .. } | Self::Unknown { .. })
    }
}
