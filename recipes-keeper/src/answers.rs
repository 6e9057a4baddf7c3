//! What the server's answers mean for a lock.

use std::sync::Arc;

use recipes_core::{Created, MultiError, NodeEvent, NodeOp, NodeOpDone, NodeStat, NodesError};
use thiserror::Error;

use crate::wire::Value;

/// What went wrong with a connection or a request.
#[derive(Clone, Debug, Error)]
pub(crate) enum Trouble {
    #[error("the connection to the server was lost")]
    Lost,
    #[error("the server did not answer in time")]
    Silent,
    #[error("unexpected answer: {0}")]
    Unexpected(String),
    #[error("only {heard} of {asked} replicas have confirmed it in time")]
    Replicas { heard: i64, asked: u32 },
    #[error("the node has children")]
    NotEmpty,
    #[error("the parent goes with its session, and has no children")]
    EphemeralParent,
    #[error("the path of the node is longer than the store takes")]
    TooLong,
    #[error("the server's memory is full (maxmemory): it creates nothing before there is room")]
    Full,
}

impl From<Trouble> for NodesError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotEmpty | Trouble::EphemeralParent | Trouble::Full => {
                Self::Refused(Arc::new(trouble))
            }
            Trouble::TooLong => Self::NotSent(Arc::new(trouble)),
            _ => Self::Unknown(Arc::new(trouble)),
        }
    }
}

fn unexpected(value: &Value) -> NodesError {
    Trouble::Unexpected(format!("{value:?}")).into()
}

/// The items of an answer, one after the other.
pub(crate) struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    pub(crate) fn of(value: Value) -> Result<Self, NodesError> {
        match value {
            Value::List(parts) => Ok(Self(parts.into_iter())),
            other => Err(unexpected(&other)),
        }
    }

    /// The parts of a request that was carried out.
    pub(crate) fn done(answer: Value) -> Result<Self, NodesError> {
        let mut parts = Self::of(answer)?;
        let reason = parts.text()?;
        match reason.as_str() {
            "" => Ok(parts),
            _ => Err(refusal(&reason)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(crate) fn next(&mut self) -> Result<Value, NodesError> {
        let missing = || Trouble::Unexpected("too short".to_owned());
        self.0.next().ok_or_else(|| missing().into())
    }

    pub(crate) fn number(&mut self) -> Result<i64, NodesError> {
        let value = self.next()?;
        value.number().ok_or_else(|| unexpected(&value))
    }

    fn small(&mut self) -> Result<i32, NodesError> {
        let number = self.number()?;
        i32::try_from(number).map_err(|_| unexpected(&Value::Number(number)))
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, NodesError> {
        match self.next()? {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, NodesError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|error| unexpected(&Value::Bytes(error.into_bytes())))
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, NodesError> {
        let mut parts = Self::of(self.next()?)?;
        let mut texts = Vec::with_capacity(parts.0.len());
        while !parts.is_empty() {
            texts.push(parts.text()?);
        }
        Ok(texts)
    }

    pub(crate) fn stat(&mut self) -> Result<NodeStat, NodesError> {
        let (czxid, mzxid) = (self.number()?, self.number()?);
        let (version, owner) = (self.small()?, self.number()?);
        // Numbers follow the clock, in microseconds.
        let mut stat = NodeStat::new(czxid, mzxid, version, owner, czxid / 1000);
        stat.children = self.small()?;
        stat.cversion = self.small()?;
        stat.pzxid = self.number()?;
        Ok(stat)
    }

    fn created(&mut self) -> Result<Created, NodesError> {
        Ok(Created {
            path: self.text()?,
            czxid: Some(self.number()?),
        })
    }
}

fn refusal(reason: &str) -> NodesError {
    match reason {
        "NoNode" => NodesError::NoNode,
        "NodeExists" => NodesError::NodeExists,
        "BadVersion" => NodesError::BadVersion,
        "NotEmpty" => Trouble::NotEmpty.into(),
        "EphemeralParent" => Trouble::EphemeralParent.into(),
        "TooLong" => Trouble::TooLong.into(),
        "Full" => Trouble::Full.into(),
        // Somebody has locked what it needs. Others of the same call were carried out.
        "Busy" => NodesError::Throttled,
        _ => Trouble::Unexpected(reason.to_owned()).into(),
    }
}

/// How many parts of the answer to a transaction are about this operation.
pub(crate) fn parts_of(operation: &NodeOp) -> usize {
    match operation {
        NodeOp::Create(_) => 2,
        NodeOp::Set { .. } => 7,
        NodeOp::Delete { .. } | NodeOp::Check { .. } => 0,
    }
}

/// The answer to a transaction of these operations.
pub(crate) fn multi(
    operations: &[NodeOp],
    answer: Result<Value, NodesError>,
) -> Result<Vec<NodeOpDone>, MultiError> {
    let whole = |source| MultiError {
        index: None,
        source,
    };
    let mut parts = Parts::of(answer.map_err(whole)?).map_err(whole)?;
    let reason = parts.text().map_err(whole)?;
    if !reason.is_empty() {
        let index = parts.number().map_err(whole)?;
        return Err(MultiError {
            index: usize::try_from(index).ok(),
            source: refusal(&reason),
        });
    }
    let mut done = |operation: &NodeOp| match operation {
        NodeOp::Create(_) => parts.created().map(NodeOpDone::Created),
        NodeOp::Delete { .. } => Ok(NodeOpDone::Deleted),
        NodeOp::Set { .. } => parts.stat().map(NodeOpDone::Set),
        NodeOp::Check { .. } => Ok(NodeOpDone::Checked),
    };
    operations
        .iter()
        .map(|operation| done(operation).map_err(whole))
        .collect()
}

/// The absence of a node is an answer, too.
pub(crate) fn present<T>(read: Result<T, NodesError>) -> Result<Option<T>, NodesError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(NodesError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// News of a node, as the server publishes them: what happened, up to which watch, and where.
pub fn news(payload: &[u8]) -> Option<(NodeEvent, u64, &str)> {
    let mut words = std::str::from_utf8(payload).ok()?.splitn(3, ' ');
    let event = event(words.next()?)?;
    Some((event, words.next()?.parse().ok()?, words.next()?))
}

/// What happened to a node: 'D', 'F' or 'C'.
pub fn event(word: &str) -> Option<NodeEvent> {
    match word {
        "D" => Some(NodeEvent::Deleted),
        "F" => Some(NodeEvent::DeletedAsFirst),
        "C" => Some(NodeEvent::Changed),
        _ => None,
    }
}
