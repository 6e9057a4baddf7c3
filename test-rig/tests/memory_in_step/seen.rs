//! What a client sees, as values of either world.

use recipes_core::{EndReason, MultiError, NodeEvent, NodeOpDone, NodeStat, NodesError};
use test_rig::MemoryError;
use zookeeper_client::Error;

use crate::script::Place;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    NoNode,
    NodeExists,
    BadVersion,
    NoAuth,
    Unsupported,
    BadPath,
    BadAcl,
    NotEmpty,
    EphemeralParent,
    Unknown,
    SessionEnded,
    Other(String),
}

impl Refusal {
    pub(crate) fn of(error: &NodesError) -> Self {
        match error {
            NodesError::NoNode => Self::NoNode,
            NodesError::NodeExists => Self::NodeExists,
            NodesError::BadVersion => Self::BadVersion,
            NodesError::NoAuth => Self::NoAuth,
            NodesError::Unsupported => Self::Unsupported,
            NodesError::SessionEnded => Self::SessionEnded,
            NodesError::Unknown(_) => Self::Unknown,
            NodesError::NotSent(source) | NodesError::Refused(source) => {
                let memory = source.downcast_ref().and_then(Self::of_memory);
                let real = || source.downcast_ref().and_then(Self::of_client);
                let text = source.to_string();
                let redis = || Self::of_redis(&text);
                let other = || Self::Other(text.clone());
                memory.or_else(real).or_else(redis).unwrap_or_else(other)
            }
            other => Self::Other(other.to_string()),
        }
    }

    fn of_memory(error: &MemoryError) -> Option<Self> {
        match error {
            MemoryError::InvalidPath(_) => Some(Self::BadPath),
            MemoryError::InvalidAcl => Some(Self::BadAcl),
            MemoryError::NotEmpty(_) => Some(Self::NotEmpty),
            MemoryError::EphemeralParent(_) => Some(Self::EphemeralParent),
            _ => None,
        }
    }

    /// The client on Redis has no public error.
    fn of_redis(text: &str) -> Option<Self> {
        match text {
            "the node has children" => Some(Self::NotEmpty),
            "the parent goes with its session, and has no children" => Some(Self::EphemeralParent),
            _ => None,
        }
    }

    fn of_client(error: &Error) -> Option<Self> {
        match error {
            // Of all input here, only a path can be invalid.
            Error::BadArguments(_) => Some(Self::BadPath),
            Error::InvalidAcl => Some(Self::BadAcl),
            Error::NotEmpty => Some(Self::NotEmpty),
            Error::NoChildrenForEphemerals => Some(Self::EphemeralParent),
            _ => None,
        }
    }
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Created {
        path: String,
        czxid: Option<i64>,
    },
    Deleted,
    /// Sorted: the server promises no order.
    Names(Vec<String>),
    Node(Option<(String, NodeStat)>),
    Watched(Option<(String, NodeStat)>),
    Synced,
    Done(Vec<NodeOpDone>),
    Refused {
        /// The index of an operation in a transaction.
        index: Option<usize>,
        why: Refusal,
    },
    /// No reply, long after it was due.
    Missing,
}

impl Answer {
    pub(crate) fn refused(error: &NodesError) -> Self {
        Self::Refused {
            index: None,
            why: Refusal::of(error),
        }
    }

    pub(crate) fn refused_multi(error: &MultiError) -> Self {
        Self::Refused {
            index: error.index,
            why: Refusal::of(&error.source),
        }
    }
}

/// What a session received, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Heard {
    /// The reply to the only request of the step.
    Reply,
    Event {
        place: Place,
        event: EventKind,
        /// The number of the request that has set the watch.
        watch: usize,
    },
}

/// [`NodeEvent`], with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventKind {
    Deleted,
    DeletedAsFirst,
    Changed,
    SessionEnded,
}

impl From<NodeEvent> for EventKind {
    fn from(event: NodeEvent) -> Self {
        match event {
            NodeEvent::Deleted => Self::Deleted,
            NodeEvent::DeletedAsFirst => Self::DeletedAsFirst,
            NodeEvent::Changed => Self::Changed,
            NodeEvent::SessionEnded => Self::SessionEnded,
        }
    }
}

/// What one session saw of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How many requests the session had made before.
    pub(crate) requests_before: usize,
    pub(crate) answers: Vec<Answer>,
    pub(crate) heard: Vec<Heard>,
    /// Why the session has ended, once its client knows.
    pub(crate) ended: Option<EndReason>,
}

impl Seen {
    pub(crate) fn events(&self) -> usize {
        let events = self.heard.iter();
        events.filter(|it| **it != Heard::Reply).count()
    }
}

/// A node of the final tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) data: String,
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) pzxid: i64,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) owner: i64,
}

impl Leaf {
    /// A child that is listed but does not exist.
    pub(crate) fn missing(path: &str) -> Self {
        Self {
            path: format!("{path} (missing)"),
            data: String::new(),
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            version: 0,
            cversion: 0,
            owner: 0,
        }
    }
}
