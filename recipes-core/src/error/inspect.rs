//! Showing locks.

use thiserror::Error;

use crate::error::{ConfigError, QueryError};
use crate::store::nodes::NodesError;

/// Why locks cannot be shown. Nothing was changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The path cannot be a lock path. Nothing was sent.
    #[error("{path:?} cannot be inspected")]
    InvalidPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        #[source]
        source: ConfigError,
    },
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
    /// The ACLs of the store do not allow this session to list it.
    #[error("not authorized to list {path:?}")]
    NotAuthorized {
        /// The path.
        path: String,
    },
    /// The store does not answer, or the session is closed.
    #[error("no answer about {path:?}")]
    NoConnection {
        /// The path of the request.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
    /// The store refused for another reason.
    #[error("store refused to list {path:?}")]
    Refused {
        /// The path of the request.
        path: String,
        /// The store's answer.
        #[source]
        source: NodesError,
    },
}

impl InspectError {
    /// The error of an inspection whose query failed.
    pub(crate) fn failed(path: &str, error: QueryError) -> Self {
        let path = path.to_owned();
        match error {
            QueryError::Config(source) => Self::InvalidPath { path, source },
            QueryError::SessionClosed { .. } => Self::NoConnection {
                path,
                source: NodesError::SessionEnded,
            },
            QueryError::Failed { source, .. } => match source {
                NodesError::NoNode => Self::NoSuchNode { path },
                NodesError::NoAuth => Self::NotAuthorized { path },
                NodesError::SessionEnded => Self::NoConnection { path, source },
                source if source.is_transient() => Self::NoConnection { path, source },
                source => Self::Refused { path, source },
            },
        }
    }
}
