//! Requests to give a lock up, as Curator makes and accepts them.
//!
//! A process that wants the lock replaces the data of the holder's node by `__REVOKE__` (Curator
//! `Revoker.attemptRevoke`). The holder watches its own node and is free to act on the request
//! (Curator `InterProcessMutex.makeRevocable`). Differs: Curator discards what it reads when it
//! first sets the watch, so it misses earlier requests. Here every read of the own node counts.

use futures::{FutureExt, TryFutureExt};

use crate::error::QueryError;
use crate::lock::session::Session;
use crate::names::record::REVOKE;
use crate::session::core::Unanswered;
use crate::store::nodes::{NodeOp, NodesError};
use crate::store::retry::persist;

/// Whether the data of a node is a request. Only an exact match is, not data that begins like one.
pub(crate) fn is_request(data: &[u8]) -> bool {
    data == REVOKE
}

/// Makes a request; `false` if there is no such node.
pub(crate) async fn request(session: &Session, path: &str) -> Result<bool, QueryError> {
    let set = || NodeOp::Set {
        path: path.to_owned(),
        data: REVOKE.to_vec(),
        version: None,
    };
    let written = session.core().ask(async |epoch| {
        let nodes = epoch.nodes()?;
        // A repeated request has no further effect.
        persist(|| nodes.multi(vec![set()]).map_err(|it| it.source).boxed()).await
    });
    let owned = || path.to_owned();
    match written.await {
        Ok(_) => Ok(true),
        Err(Unanswered::Failed(NodesError::NoNode)) => Ok(false),
        Err(Unanswered::Failed(source)) if source.is_unanswered() => Err(QueryError::Unknown {
            path: owned(),
            source,
        }),
        Err(Unanswered::Failed(source)) => Err(QueryError::failed(path, source)),
        Err(Unanswered::Closed) => Err(QueryError::SessionClosed { path: owned() }),
    }
}
