//! The reasons of a refusal or an unknown outcome.

use std::sync::Arc;

use recipes_core::NodesError;
use thiserror::Error;

/// Why a [`MemoryEnsemble`](crate::MemoryEnsemble) refused a request or lost its reply.
///
/// It is the source of `NodesError::NotSent`, `NodesError::Refused` and `NodesError::Unknown`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The path is not absolute, or has an empty part.
    #[error("invalid path {0:?}")]
    InvalidPath(String),
    /// The access control list is empty, or names the creator of a session without credentials.
    #[error("invalid access control list")]
    InvalidAcl,
    /// A node with children cannot be deleted.
    #[error("node {0} has children")]
    NotEmpty(String),
    /// An ephemeral node cannot have children.
    #[error("ephemeral node {0} cannot have children")]
    EphemeralParent(String),
    /// The connection went down before the reply arrived.
    #[error("connection lost before the reply")]
    ReplyLost,
    /// A transaction was rolled back.
    #[error("undone by the server")]
    Undone,
    /// The ensemble is stopped and did not come back in time.
    #[error("no server answered")]
    Unreachable,
}

impl From<MemoryError> for NodesError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::ReplyLost | MemoryError::Unreachable => Self::Unknown(Arc::new(error)),
            // The client refuses it.
            MemoryError::InvalidPath(_) => Self::NotSent(Arc::new(error)),
            _ => Self::Refused(Arc::new(error)),
        }
    }
}
