//! What the server's answers mean for a lock.

use std::sync::Arc;

use recipes_core::{MultiError, NodeEvent, NodeOpDone, NodeStat, NodesError};
use thiserror::Error;

use crate::wire::{CallError, Said, Watched};

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
    #[error("the session only reads")]
    OnlyReads,
}

impl From<Trouble> for NodesError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotEmpty | Trouble::EphemeralParent | Trouble::Full | Trouble::OnlyReads => {
                Self::Refused(Arc::new(trouble))
            }
            Trouble::TooLong => Self::NotSent(Arc::new(trouble)),
            _ => Self::Unknown(Arc::new(trouble)),
        }
    }
}

/// An error of a whole request.
pub(crate) fn whole(source: impl Into<NodesError>) -> MultiError {
    MultiError {
        index: None,
        source: source.into(),
    }
}

impl Said {
    fn unexpected(self) -> NodesError {
        Trouble::Unexpected(format!("{self:?}")).into()
    }

    pub(crate) fn multi(self) -> Result<Vec<NodeOpDone>, MultiError> {
        match self {
            Self::Multi(done) => Ok(done),
            other => Err(whole(other.unexpected())),
        }
    }

    pub(crate) fn names(self) -> Result<(Vec<String>, Vec<Watched>), NodesError> {
        match self {
            Self::Names(names, watched) => Ok((names, watched)),
            other => Err(other.unexpected()),
        }
    }

    pub(crate) fn node(self) -> Result<(Vec<u8>, NodeStat), NodesError> {
        match self {
            Self::Node(data, stat) => Ok((data, stat)),
            other => Err(other.unexpected()),
        }
    }

    pub(crate) fn stat(self) -> Result<NodeStat, NodesError> {
        match self {
            Self::Stat(stat) => Ok(stat),
            other => Err(other.unexpected()),
        }
    }
}

/// Why a server has refused a request, or the operation with this index. All servers use the same words.
///
/// # Errors
/// Another word costs the connection.
pub fn reason(word: &str, index: Option<usize>) -> Result<MultiError, CallError> {
    let source = match word {
        "NoNode" => NodesError::NoNode,
        "NodeExists" => NodesError::NodeExists,
        "BadVersion" => NodesError::BadVersion,
        "NotEmpty" => Trouble::NotEmpty.into(),
        "EphemeralParent" => Trouble::EphemeralParent.into(),
        "TooLong" => Trouble::TooLong.into(),
        "Full" => Trouble::Full.into(),
        // Somebody has locked what it needs. Others of the same call were carried out.
        "Busy" => NodesError::Throttled,
        _ => return Err(CallError::unexpected(word)),
    };
    Ok(MultiError { index, source })
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

/// What happened to a node since it was watched: 'D', 'F', 'C', or nothing.
///
/// # Errors
/// Another word costs the connection.
pub fn told(word: &str) -> Result<Option<NodeEvent>, CallError> {
    match (word, event(word)) {
        ("", _) => Ok(None),
        (_, Some(event)) => Ok(Some(event)),
        (word, None) => Err(CallError::unexpected(format!("{word:?} has happened"))),
    }
}

/// What happened to a node: 'D', 'F' or 'C'.
fn event(word: &str) -> Option<NodeEvent> {
    match word {
        "D" => Some(NodeEvent::Deleted),
        "F" => Some(NodeEvent::DeletedAsFirst),
        "C" => Some(NodeEvent::Changed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_tells_is_not_taken_for_nothing() {
        assert!(matches!(told(""), Ok(None)));
        assert!(matches!(told("D"), Ok(Some(NodeEvent::Deleted))));
        assert!(matches!(told("C"), Ok(Some(NodeEvent::Changed))));
        assert!(matches!(told("F"), Ok(Some(NodeEvent::DeletedAsFirst))));
        assert!(told("d").is_err() && told("DD").is_err());
    }

    #[test]
    fn news_have_three_words_and_the_last_may_be_any_path() {
        let path = "/a b/c";
        let of = |event| Some((event, 7, path));
        assert_eq!(news(b"D 7 /a b/c"), of(NodeEvent::Deleted));
        assert_eq!(news(b"F 7 /a b/c"), of(NodeEvent::DeletedAsFirst));
        assert_eq!(news(b"C 7 /a b/c"), of(NodeEvent::Changed));
        for other in ["", "D", "D 7", "D -1 /a", "X 7 /a", "D x /a"] {
            assert_eq!(news(other.as_bytes()), None, "{other}");
        }
        assert_eq!(news(b"D 7 /\xff"), None);
    }

    /// What may be sent again, what must not, and what nobody knows is told apart by this.
    #[test]
    fn every_word_of_a_refusal_has_its_reason() {
        let is = |word: &str, expected: fn(&NodesError) -> bool| {
            let MultiError { index, source } = reason(word, Some(3)).unwrap();
            assert!(index == Some(3) && expected(&source), "{word}: {source:?}");
        };
        is("NoNode", |it| matches!(it, NodesError::NoNode));
        is("NodeExists", |it| matches!(it, NodesError::NodeExists));
        is("BadVersion", |it| matches!(it, NodesError::BadVersion));
        for word in ["NotEmpty", "EphemeralParent", "Full"] {
            is(word, |it| matches!(it, NodesError::Refused(_)));
        }
        is("TooLong", |it| matches!(it, NodesError::NotSent(_)));
        is("Busy", |it| matches!(it, NodesError::Throttled));
        assert!(matches!(reason("nonode", None), Err(CallError::Lost(_))));
    }
}
