//! Requests and their answers, as values.

use recipes_core::{Created, MultiError, NewNode, NodeOp, NodeOpDone, NodeStat, NodesError};

/// The kinds of request that a session makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Create one node.
    Create,
    /// Delete one node.
    Delete,
    /// List children.
    List,
    /// Read data and stat.
    Read,
    /// Read the stat and set a watch.
    Watch,
    /// Pass through the leader.
    Sync,
    /// Several changes, all or none.
    Multi,
}

/// One entry of the request log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Session that made it.
    pub session: i64,
    /// What it asked for.
    pub operation: Operation,
    /// Node it asked about (without the sequence); of a transaction, that of its first operation.
    pub path: String,
}

/// A request, kept until the connection is there.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Create(NewNode),
    Delete(String),
    List(String),
    Read(String),
    Watch(String),
    Sync(String),
    Multi(Vec<NodeOp>),
}

impl Call {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::Create(_) => Operation::Create,
            Self::Delete(_) => Operation::Delete,
            Self::List(_) => Operation::List,
            Self::Read(_) => Operation::Read,
            Self::Watch(_) => Operation::Watch,
            Self::Sync(_) => Operation::Sync,
            Self::Multi(_) => Operation::Multi,
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Create(node) => &node.path,
            Self::Delete(path)
            | Self::List(path)
            | Self::Read(path)
            | Self::Watch(path)
            | Self::Sync(path) => path,
            Self::Multi(operations) => operations.first().map_or("", op_path),
        }
    }
}

pub(super) fn op_path(operation: &NodeOp) -> &str {
    match operation {
        NodeOp::Create(node) => &node.path,
        NodeOp::Delete { path, .. } | NodeOp::Set { path, .. } | NodeOp::Check { path, .. } => path,
    }
}

/// A good answer. A watch is only its number here: see the module's rule on drops.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Created(Created),
    Deleted,
    Names(Vec<String>),
    Node(Option<(Vec<u8>, NodeStat)>),
    Watched(Option<(NodeStat, u64)>),
    Synced,
    Done(Vec<NodeOpDone>),
}

/// What comes back; single requests use only the source of the error.
pub(super) type Outcome = Result<Answer, MultiError>;

pub(super) fn failed(source: impl Into<NodesError>) -> MultiError {
    MultiError {
        index: None,
        source: source.into(),
    }
}
