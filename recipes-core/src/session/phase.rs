//! What a session is doing.

use std::sync::Arc;

use crate::error::AcquireError;
use crate::session::epoch::Epoch;
use crate::store::nodes::NodesError;

/// What a session is doing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Opening a store session, the first or another.
    Connecting,
    /// A store session is open.
    Open(Arc<Epoch>),
    /// Being closed; only the clean-up still runs.
    Closing(Arc<Epoch>),
    /// Closed, by us.
    Closed,
    /// Over for good; no other store session will be opened.
    Ended(NodesError),
}

impl Phase {
    /// The epoch in which nodes can still be deleted.
    pub(crate) fn epoch(&self) -> Option<Arc<Epoch>> {
        match self {
            Self::Open(epoch) | Self::Closing(epoch) => Some(Arc::clone(epoch)),
            Self::Connecting | Self::Closed | Self::Ended(_) => None,
        }
    }

    /// The error of an acquire, if no epoch will be available any more.
    pub(crate) fn refusal(&self, path: &str) -> Option<AcquireError> {
        let path = || path.to_owned();
        match self {
            Self::Connecting | Self::Open(_) => None,
            Self::Ended(NodesError::StoreForgot { seen, now }) => Some(AcquireError::StoreForgot {
                path: path(),
                seen: *seen,
                now: *now,
            }),
            Self::Ended(_) => Some(AcquireError::SessionEnded { path: path() }),
            Self::Closing(_) | Self::Closed => Some(AcquireError::SessionClosed { path: path() }),
        }
    }

    /// Whether nodes can still be deleted in this epoch.
    pub(crate) fn serves(&self, epoch: &Epoch) -> bool {
        self.epoch().is_some_and(|it| it.number == epoch.number)
    }
}
