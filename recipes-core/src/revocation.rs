//! Requests to give a lock up, as Curator makes and takes them.
//!
//! Whoever wants the lock replaces the data of the holder's node by `__REVOKE__` (Curator
//! `Revoker.attemptRevoke`), and the holder, who watches its own node, is free to act on it (Curator
//! `InterProcessMutex.makeRevocable`). Differs: Curator discards what it reads when it first sets the
//! watch, and so never learns of a request from before; here every reading of the own node counts.

use futures::{FutureExt, TryFutureExt};

use crate::error::RevokeError;
use crate::nodes::{NodeOp, NodesError};
use crate::record::REVOKE;
use crate::retry::persist;
use crate::session::{Session, Unanswered};

/// Whether the data of a node is a request; anything else, though it begins like one, is none.
pub(crate) fn is_request(data: &[u8]) -> bool {
    data == REVOKE
}

/// Makes a request; false where there is no such node.
pub(crate) async fn request(session: &Session, path: &str) -> Result<bool, RevokeError> {
    let set = || NodeOp::Set {
        path: path.to_owned(),
        data: REVOKE.to_vec(),
        version: None,
    };
    let written = session.ask(async |epoch| {
        let nodes = epoch.nodes()?;
        // To ask twice is to ask once.
        persist(|| nodes.multi(vec![set()]).map_err(|it| it.source).boxed()).await
    });
    let path = || path.to_owned();
    match written.await {
        Ok(_) => Ok(true),
        Err(Unanswered::Failed(NodesError::NoNode)) => Ok(false),
        Err(Unanswered::Failed(source)) if source.is_unanswered() => Err(RevokeError::Unknown {
            path: path(),
            source,
        }),
        Err(Unanswered::Failed(source)) => Err(RevokeError::Failed {
            path: path(),
            source,
        }),
        Err(Unanswered::Closed) => Err(RevokeError::SessionClosed { path: path() }),
    }
}
