//! Why a request to the store has no good answer.

use std::error::Error as StdError;
use std::sync::Arc;

use thiserror::Error;

/// Why a request to the store has no good answer.
///
/// Everything but [`Unknown`](NodesError::Unknown) and
/// [`SessionEnded`](NodesError::SessionEnded) is a definite refusal: nothing was changed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum NodesError {
    /// The node, or the parent of a node to create, does not exist.
    #[error("no such node")]
    NoNode,
    /// A node with this path exists.
    #[error("node exists")]
    NodeExists,
    /// The node has another version.
    #[error("version does not match")]
    BadVersion,
    /// The access control list refuses it.
    #[error("not authorized")]
    NoAuth,
    /// The server does not know this operation.
    #[error("operation not supported by the server")]
    Unsupported,
    /// The server is overloaded and ignored the request.
    #[error("server is overloaded")]
    Throttled,
    /// The request cannot be sent, for example because it is larger than servers take.
    #[error("not sent")]
    NotSent(#[source] Arc<dyn StdError + Send + Sync>),
    /// Any other definite refusal.
    #[error("refused by the server")]
    Refused(#[source] Arc<dyn StdError + Send + Sync>),
    /// The request may or may not have been carried out.
    #[error("connection lost, outcome unknown")]
    Unknown(#[source] Arc<dyn StdError + Send + Sync>),
    /// The session is over: its ephemeral nodes are gone or will be.
    #[error("session ended")]
    SessionEnded,
    /// The store's transaction numbers went back: it has lost data.
    #[error("the store's transaction numbers went back from {seen} to {now}")]
    StoreForgot {
        /// The highest number that the session had seen.
        seen: i64,
        /// The lower number of a later transaction.
        now: i64,
    },
}

impl NodesError {
    /// Whether the same request may succeed in a moment: the connection was lost, or the server is
    /// overloaded.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Throttled)
    }

    /// Whether the outcome is unknown: the request may have been carried out, or still be.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::SessionEnded)
    }

    /// Whether the same request would be refused again.
    pub(crate) fn is_lasting(&self) -> bool {
        !self.is_transient() && !matches!(self, Self::SessionEnded)
    }
}

/// Why a [`Nodes::multi`] changed nothing, or may have changed something.
#[doc(hidden)]
#[derive(Clone, Debug, Error)]
#[error("operation {index:?} of a transaction failed")]
pub struct MultiError {
    /// Index of the operation that was refused; `None` if the request as a whole failed.
    pub index: Option<usize>,
    /// Why.
    #[source]
    pub source: NodesError,
}
