//! What the client's answers and errors mean for a lock.
//!
//! The only file that knows the client's errors. The client reports a lost connection in three ways
//! (`ConnectionLoss`, an I/O error, "no response"). So every error that is not a definite refusal
//! by the server counts as an unknown outcome.

use std::sync::Arc;

use recipes_core::{
    Connection, Created, EndReason, Listing, MultiError, NodeEvent, NodeOpDone, NodeStat,
    NodesError,
};
use zookeeper_client::{
    Error, EventType, MultiReadResult, MultiWriteError, MultiWriteResult, SessionState, Stat,
    WatchedEvent,
};

pub(crate) fn listing(read: MultiReadResult) -> Listing {
    match read {
        MultiReadResult::Children { children } => Ok(children),
        MultiReadResult::Error { err } => Err(refusal(err)),
        _ => Err(refusal(Error::MarshallingError)),
    }
}

pub(crate) fn op_done(result: MultiWriteResult) -> Option<NodeOpDone> {
    match result {
        MultiWriteResult::Check => Some(NodeOpDone::Checked),
        MultiWriteResult::Delete => Some(NodeOpDone::Deleted),
        MultiWriteResult::Create { path, stat } => {
            // Servers before 3.8.2 and 3.7.2 leave the stat out.
            let czxid = (!stat.is_invalid()).then_some(stat.czxid);
            Some(NodeOpDone::Created(Created { path, czxid }))
        }
        MultiWriteResult::SetData { stat } => Some(NodeOpDone::Set(node_stat(&stat))),
        _ => None,
    }
}

pub(crate) fn multi_error(error: MultiWriteError) -> MultiError {
    match error {
        MultiWriteError::RequestFailed { source } => MultiError {
            index: None,
            source: refusal(source),
        },
        MultiWriteError::OperationFailed { index, source } => MultiError {
            index: Some(index),
            source: refusal(source),
        },
    }
}

pub(crate) fn node_stat(stat: &Stat) -> NodeStat {
    let &Stat {
        czxid,
        mzxid,
        version,
        ephemeral_owner,
        ctime,
        ..
    } = stat;
    let mut node = NodeStat::new(czxid, mzxid, version, ephemeral_owner, ctime);
    node.children = stat.num_children;
    node.cversion = stat.cversion;
    node.pzxid = stat.pzxid;
    node
}

/// What happened to a watched node. `None` if only its connection was lost.
pub(crate) fn node_event(event: &WatchedEvent) -> Option<NodeEvent> {
    match event.event_type {
        EventType::NodeDeleted => Some(NodeEvent::Deleted),
        EventType::Session => None,
        _ => Some(NodeEvent::Changed),
    }
}

pub(crate) fn present<T>(read: Result<T, Error>) -> Result<Option<T>, NodesError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

pub(crate) fn connection(state: SessionState) -> Connection {
    match state {
        SessionState::SyncConnected => Connection::Connected,
        // A read-only server accepts no writes, so no lock is held there.
        SessionState::Disconnected | SessionState::ConnectedReadOnly => Connection::Disconnected,
        SessionState::Expired => Connection::Ended(EndReason::Expired),
        SessionState::AuthFailed => Connection::Ended(EndReason::AuthFailed),
        SessionState::Closed => Connection::Ended(EndReason::Closed),
    }
}

/// Classifies an error by what the lock must do about it.
pub(crate) fn refusal(error: Error) -> NodesError {
    match error {
        Error::NoNode => NodesError::NoNode,
        Error::NodeExists => NodesError::NodeExists,
        Error::BadVersion => NodesError::BadVersion,
        Error::NoAuth => NodesError::NoAuth,
        Error::Unimplemented => NodesError::Unsupported,
        Error::Throttled => NodesError::Throttled,
        Error::SessionExpired | Error::AuthFailed => NodesError::SessionEnded,
        // The client is gone, and with it what it had not sent: it takes that for a fault of its own.
        Error::UnexpectedError(text) if text.starts_with("BUG: ") => {
            NodesError::Unknown(Arc::new(Error::ConnectionLoss))
        }
        // The client's own checks.
        Error::BadArguments(_) => NodesError::NotSent(Arc::new(error)),
        Error::NotEmpty
        | Error::NoChildrenForEphemerals
        | Error::InvalidAcl
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::RuntimeInconsistent
        | Error::ReconfigDisabled
        | Error::MarshallingError => NodesError::Refused(Arc::new(error)),
        // A moved session's request was refused on the old connection, but an earlier copy of it
        // may have passed. A client that is closed may only have lost its connection. So the outcome is
        // unknown, as for every error that is not listed.
        error => NodesError::Unknown(Arc::new(error)),
    }
}

/// Classifies an error of opening a session. Errors that a retry cannot fix are refusals.
pub(crate) fn refusal_of_session(error: Error) -> NodesError {
    match error {
        Error::AuthFailed => NodesError::Refused(Arc::new(error)),
        Error::BadArguments(_) => NodesError::NotSent(Arc::new(error)),
        error => NodesError::Unknown(Arc::new(error)),
    }
}
