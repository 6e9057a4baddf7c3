//! Requests and their answers, as values.

use recipes_core::{
    Created, Listing, MultiError, NewNode, NodeMode, NodeOp, NodeOpDone, NodeStat, NodesError,
};

use crate::memory::error::MemoryError;
use crate::memory::tree::node_path::NodePath;

/// The kinds of request that a session makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Create one node.
    Create,
    /// Delete one node.
    Delete,
    /// List children.
    List,
    /// List the children of several nodes in one request.
    ListAll,
    /// Read data and stat.
    Read,
    /// Read the stat.
    Stat,
    /// Read data and stat, and set a watch.
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
    /// What it requested.
    pub operation: Operation,
    /// The node that it names, without the sequence. For a transaction or a list of several nodes,
    /// the first of them.
    pub path: String,
}

/// A request, which is kept until the session is connected.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Create(NewNode),
    Delete(String),
    List(String),
    ListAll(Vec<String>),
    Read(String),
    Stat(String),
    Watch(String),
    Sync(String),
    Multi(Vec<NodeOp>),
}

impl Call {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Create(_) => Operation::Create,
            Self::Delete(_) => Operation::Delete,
            Self::List(_) => Operation::List,
            Self::ListAll(_) => Operation::ListAll,
            Self::Read(_) => Operation::Read,
            Self::Stat(_) => Operation::Stat,
            Self::Watch(_) => Operation::Watch,
            Self::Sync(_) => Operation::Sync,
            Self::Multi(_) => Operation::Multi,
        }
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create(node) => &node.path,
            Self::Delete(path)
            | Self::List(path)
            | Self::Read(path)
            | Self::Stat(path)
            | Self::Watch(path)
            | Self::Sync(path) => path,
            Self::ListAll(paths) => paths.first().map_or("", String::as_str),
            Self::Multi(operations) => operations.first().map_or("", op_path),
        }
    }

    /// Whether it takes effect only if a quorum of servers agrees.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Delete(_) | Self::Multi(_))
    }
}

impl Call {
    /// The answer that the client gives itself, connected or not. Bad input fails the whole
    /// request, whatever a server would answer to the rest of it.
    pub(crate) fn settled_by_client(&self) -> Option<Outcome> {
        if let Self::Multi(operations) = self {
            return match operations.as_slice() {
                [] => Some(Ok(Answer::Done(Vec::new()))),
                operations => flaw(operations).map(Err),
            };
        }
        let checked = match self {
            Self::Create(node) => check_create(node).and_then(|()| below_the_root(&node.path)),
            Self::Delete(path) => check_delete(path),
            Self::List(path)
            | Self::Read(path)
            | Self::Stat(path)
            | Self::Watch(path)
            | Self::Sync(path) => NodePath::parse(path).map(drop),
            Self::ListAll(paths) => paths
                .iter()
                .try_for_each(|path| NodePath::parse(path).map(drop)),
            Self::Multi(_) => Ok(()),
        };
        checked.err().map(|error| Err(failed(error)))
    }
}

fn flaw(operations: &[NodeOp]) -> Option<MultiError> {
    let mut checked = operations.iter().map(check_op).enumerate();
    checked.find_map(|(index, checked)| {
        let source = checked.err()?.into();
        let index = Some(index);
        Some(MultiError { index, source })
    })
}

fn check_op(operation: &NodeOp) -> Result<(), MemoryError> {
    match operation {
        NodeOp::Create(node) => check_create(node),
        NodeOp::Delete { path, .. } => check_delete(path),
        NodeOp::Set { path, .. } | NodeOp::Check { path, .. } => NodePath::parse(path).map(drop),
    }
}

fn check_create(node: &NewNode) -> Result<(), MemoryError> {
    if node.acl.is_empty() {
        return Err(MemoryError::InvalidAcl);
    }
    match node.mode {
        NodeMode::EphemeralSequential => NodePath::parse(&format!("{}0", node.path)),
        _ => NodePath::parse(&node.path),
    }
    .map(drop)
}

fn below_the_root(path: &str) -> Result<(), MemoryError> {
    match path {
        "/" => Err(MemoryError::InvalidPath(path.to_owned())),
        _ => Ok(()),
    }
}

fn check_delete(path: &str) -> Result<(), MemoryError> {
    below_the_root(path)?;
    NodePath::parse(path).map(drop)
}

pub(crate) fn op_path(operation: &NodeOp) -> &str {
    match operation {
        NodeOp::Create(node) => &node.path,
        NodeOp::Delete { path, .. } | NodeOp::Set { path, .. } | NodeOp::Check { path, .. } => path,
    }
}

/// A successful answer. It holds only the number of a watch: see the module's rule on drops.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Created(Created),
    Deleted,
    Names(Vec<String>),
    AllNames(Vec<Listing>),
    Node(Option<(Vec<u8>, NodeStat)>),
    Stat(Option<NodeStat>),
    Watched(Option<(Vec<u8>, NodeStat, u64)>),
    Synced,
    Done(Vec<NodeOpDone>),
}

/// The result of a request. Single requests use only the source of the error.
pub(crate) type Outcome = Result<Answer, MultiError>;

pub(crate) fn failed(source: impl Into<NodesError>) -> MultiError {
    MultiError {
        index: None,
        source: source.into(),
    }
}
