//! The requests of a session, as a test sees and answers them.

use super::*;

/// Answers a request. If it is dropped, the request is never answered.
pub(crate) type Answer<T, E = NodesError> = oneshot::Sender<Result<T, E>>;

pub(crate) type Read = Option<(Vec<u8>, NodeStat)>;
pub(crate) type Watched = Option<(Vec<u8>, NodeStat, NodeWatch)>;

/// A request as it was sent.
pub(crate) enum Asked {
    Create(NewNode, Answer<Created>),
    Delete(String, Answer<()>),
    List(String, Answer<Vec<String>>),
    Read(String, Answer<Read>),
    Stat(String, Answer<Option<NodeStat>>),
    Watch(String, Answer<Watched>),
    Sync(Answer<()>),
    Multi(Vec<NodeOp>, Answer<Vec<NodeOpDone>, MultiError>),
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(node, _) => write!(f, "create {}", node.path),
            Self::Delete(path, _) => write!(f, "delete {path}"),
            Self::List(path, _) => write!(f, "list {path}"),
            Self::Read(path, _) => write!(f, "read {path}"),
            Self::Stat(path, _) => write!(f, "stat {path}"),
            Self::Watch(path, _) => write!(f, "watch {path}"),
            Self::Sync(_) => write!(f, "sync"),
            Self::Multi(operations, _) => write!(f, "multi of {}", operations.len()),
        }
    }
}
