//! Reads without a lock.

use thiserror::Error;

use crate::error::ConfigError;
use crate::store::nodes::NodesError;

/// Why a read without a lock failed. Nothing was changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The path cannot be read.
    #[error("query cannot be made")]
    Config(#[from] ConfigError),
    /// The session was closed or has ended.
    #[error("{path:?} not read: the session is closed")]
    SessionClosed {
        /// The path to be read.
        path: String,
    },
    /// The store refused or did not answer.
    #[error("{path:?} not read")]
    Failed {
        /// The path to be read.
        path: String,
        /// What happened.
        #[source]
        source: NodesError,
    },
}

impl QueryError {
    /// Whether the session is closed or has ended, so that no read through it succeeds any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::SessionClosed { .. })
    }

    /// Whether the same read may succeed if it is repeated soon.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Failed { source, .. } => {
                source.is_transient() || matches!(source, NodesError::SessionEnded)
            }
            Self::Config(_) | Self::SessionClosed { .. } => false,
        }
    }
}
