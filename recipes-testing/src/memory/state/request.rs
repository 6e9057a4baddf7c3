//! Requests and their answers, as values.

use std::sync::Arc;

use recipes_core::{
    Created, Listing, MultiError, NewNode, NodeMode, NodeOp, NodeOpDone, NodeStat, NodesError,
};

use crate::memory::acl::Acl;
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
    /// The session lives. On a store as that on Redis only, where nobody need have asked for it.
    Beat,
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

/// A node to create, and who may use it.
#[derive(Clone, Debug)]
pub(crate) struct Proposed {
    pub(crate) node: NewNode,
    pub(crate) acl: Arc<[Acl]>,
}

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Create(Proposed),
    Delete {
        path: String,
        version: Option<i32>,
    },
    Set {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Check {
        path: String,
        version: Option<i32>,
    },
}

impl Change {
    /// An operation, and the access control list of the node if it creates one.
    pub(crate) fn new(operation: NodeOp, acl: Arc<[Acl]>) -> Self {
        match operation {
            NodeOp::Create(node) => Self::Create(Proposed { node, acl }),
            NodeOp::Delete { path, version } => Self::Delete { path, version },
            NodeOp::Set {
                path,
                data,
                version,
            } => Self::Set {
                path,
                data,
                version,
            },
            NodeOp::Check { path, version } => Self::Check { path, version },
        }
    }

    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create(Proposed { node, .. }) => &node.path,
            Self::Delete { path, .. } | Self::Set { path, .. } | Self::Check { path, .. } => path,
        }
    }
}

/// A request, which is kept until the session is connected.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Create(Proposed),
    Delete(String),
    List(String),
    ListAll(Vec<String>),
    Read(String),
    Stat(String),
    Watch(String),
    Sync(String),
    Multi(Vec<Change>),
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
            Self::Create(proposed) => &proposed.node.path,
            Self::Delete(path)
            | Self::List(path)
            | Self::Read(path)
            | Self::Stat(path)
            | Self::Watch(path)
            | Self::Sync(path) => path,
            Self::ListAll(paths) => paths.first().map_or("", String::as_str),
            Self::Multi(changes) => changes.first().map_or("", Change::path),
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
        if let Self::Multi(changes) = self {
            return match changes.as_slice() {
                [] => Some(Ok(Answer::Done(Vec::new()))),
                changes => flaw(changes).map(Err),
            };
        }
        let checked = match self {
            Self::Create(proposed) => {
                check_create(proposed).and_then(|()| below_the_root(&proposed.node.path))
            }
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

fn flaw(changes: &[Change]) -> Option<MultiError> {
    let mut checked = changes.iter().map(check_change).enumerate();
    checked.find_map(|(index, checked)| {
        let source = checked.err()?.into();
        let index = Some(index);
        Some(MultiError { index, source })
    })
}

fn check_change(change: &Change) -> Result<(), MemoryError> {
    match change {
        Change::Create(proposed) => check_create(proposed),
        Change::Delete { path, .. } => check_delete(path),
        Change::Set { path, .. } | Change::Check { path, .. } => NodePath::parse(path).map(drop),
    }
}

fn check_create(Proposed { node, acl }: &Proposed) -> Result<(), MemoryError> {
    if acl.is_empty() {
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
