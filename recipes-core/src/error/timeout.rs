//! Why an acquire ran out of time.

use std::fmt;
use std::time::Duration;

use crate::clock::human;

/// What an acquire was waiting for when its timeout passed, as far as it is known without another
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutReason {
    /// Another contender held the lock, or was ahead in its queue.
    Busy {
        /// Path of the lock; of a set, the member that was busy.
        lock: String,
        /// Name of the nearest node ahead. `None` if it is not known.
        ahead: Option<String>,
    },
    /// Another owner held the lock through this same session.
    BusyHere {
        /// Path of the lock; of a set, the member that was busy.
        lock: String,
        /// Name of the node by which it was held.
        node: String,
        /// Whether the task of this acquire had acquired it, so that it waited for itself.
        by_this_task: bool,
    },
    /// Another acquire of the same owner was in progress for the lock.
    BusyOwner {
        /// Path of the lock; of a set, the member that the other acquire was for.
        lock: String,
    },
    /// The store did not answer. Nothing is known about other contenders.
    StoreSilent {
        /// For how long.
        silence: Duration,
    },
    /// The store was started again, or another server has taken its place, and may have forgotten who holds a
    /// lock. It grants none before every holder must have noticed.
    Quarantined {
        /// For how much longer.
        left: Duration,
    },
    /// The store session had ended, and the next one was not open yet.
    Reconnecting,
}

impl TimeoutReason {
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::StoreSilent { .. } | Self::Quarantined { .. } | Self::Reconnecting => true,
            Self::Busy { .. } | Self::BusyHere { .. } | Self::BusyOwner { .. } => false,
        }
    }

    /// The reason in the error of a lock or a set, which names the member if it is one of several.
    pub(crate) fn of(&self, path: &str) -> String {
        match self {
            Self::Busy { lock, .. } | Self::BusyHere { lock, .. } | Self::BusyOwner { lock }
                if lock != path =>
            {
                format!("{lock:?} is {self}")
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for TimeoutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy { ahead, .. } => {
                f.write_str("held by another contender")?;
                match ahead {
                    Some(node) => write!(f, " ({node} is ahead)"),
                    None => Ok(()),
                }
            }
            Self::BusyHere {
                node,
                by_this_task: false,
                ..
            } => write!(f, "held by another owner in this session ({node})"),
            Self::BusyHere { node, .. } => write!(
                f,
                "held by the task that waits for it ({node}); to re-enter, acquire both times \
                 inside one Owner::scope, or name one owner"
            ),
            Self::BusyOwner { .. } => f.write_str("already being acquired by the same owner"),
            Self::StoreSilent { silence } => {
                write!(f, "the store has not answered for {}", human(*silence))
            }
            Self::Quarantined { left } => write!(
                f,
                "the store is new or was started again, may have forgotten holders, and grants no lock for another {}",
                human(*left)
            ),
            Self::Reconnecting => f.write_str("the session is being re-established"),
        }
    }
}
