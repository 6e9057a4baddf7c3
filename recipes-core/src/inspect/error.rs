//! Why locks cannot be shown.

use thiserror::Error;

use crate::error::{ConfigError, QueryError};
use crate::nodes::NodesError;

/// Why locks cannot be shown; nothing was changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The path cannot be a lock's; nothing was sent.
    #[error("{path:?} cannot be inspected")]
    InvalidPath {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        #[source]
        source: ConfigError,
    },
    /// There is no such node. A lock that nobody has taken for a while may be none.
    #[error("{path:?} does not exist")]
    NoSuchNode {
        /// The path.
        path: String,
    },
    /// No node in it is a lock's: it is something else, or a lock that nobody contends for.
    #[error("{path:?} is no lock that anybody holds or waits for")]
    NotALock {
        /// The path.
        path: String,
    },
    /// The ACLs of the ensemble do not let this session list it.
    #[error("not authorized to list {path:?}")]
    NotAuthorized {
        /// The path.
        path: String,
    },
    /// The ensemble does not answer, or the session is closed.
    #[error("no answer about {path:?}")]
    NoConnection {
        /// What was asked about.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
    /// The ensemble refused for another reason.
    #[error("ensemble refused to list {path:?}")]
    Refused {
        /// What was asked about.
        path: String,
        /// Its answer.
        #[source]
        source: NodesError,
    },
}

impl InspectError {
    /// What a query that failed says about an inspection.
    pub(super) fn failed(path: &str, error: QueryError) -> Self {
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
