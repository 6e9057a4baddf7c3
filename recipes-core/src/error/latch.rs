//! Leading in the background.

use crate::error::Error;

/// Why a leader latch does not lead any more, and never will.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LatchError {
    /// The latch was stopped or dropped by its service.
    #[error("leader latch of {path:?} is stopped")]
    Stopped {
        /// Path of the election.
        path: String,
    },
    /// The latch cannot campaign any more: its session is over, or the store refuses. Start another
    /// one when that is mended.
    #[error("leader latch of {path:?} has ended")]
    Ended {
        /// Path of the election.
        path: String,
        /// Why its last campaign failed.
        #[source]
        source: Box<Error>,
    },
}

impl LatchError {
    /// Whether the session is closed or has ended, so that no other latch can lead through it.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Ended { source, .. } if source.is_closed())
    }
}
