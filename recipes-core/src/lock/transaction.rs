//! Writes that the store carries out only while a lock is held.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::select_all;
use tokio::time::sleep_until;

use crate::error::{Error, LostReason, TransactionError};
use crate::lock::lease::Lease;
use crate::store::nodes::{
    MultiError, NewNode, NodeMode, NodeOp, NodeOpDone, NodeStat, NodesError,
};

/// A transaction bound to a guard, from [`LockGuard::transaction`].
///
/// The store checks that the lock's node exists in the same step in which it carries out the
/// operations. So a holder that lost the lock without knowing it changes nothing.
///
/// # Examples
/// ```no_run
/// # async fn example(guard: &recipes_core::LockGuard) -> Result<(), recipes_core::Error> {
/// guard.transaction().set("/orders/next", "1001").create("/orders/1000", "new").commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// [`LockGuard::transaction`]: crate::LockGuard::transaction
#[must_use = "a transaction does nothing until commit"]
pub struct Transaction<'a> {
    leases: Vec<&'a Lease>,
    operations: Vec<NodeOp>,
}

/// The result of one operation of a [`Transaction`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionResult {
    /// A node was created. This is its path.
    Created(String),
    /// A node was deleted.
    Deleted,
    /// Data was replaced. This is the new stat.
    Set(NodeStat),
    /// A version was as expected.
    Checked,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(leases: Vec<&'a Lease>) -> Self {
        Self {
            leases,
            operations: Vec::new(),
        }
    }

    /// Creates a persistent node with the session's ACL for its path. Its parent must be there, or be created earlier in
    /// the transaction. On etcd, which has no directories, it need not be.
    pub fn create(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        let path = path.into();
        let (data, mode) = (data.into().into(), NodeMode::Persistent);
        self.operations
            .push(NodeOp::Create(NewNode { path, data, mode }));
        self
    }

    /// Replaces the data of a node, whatever its version.
    pub fn set(self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.set_if(path.into(), data.into(), None)
    }

    /// Replaces the data of a node that has this version.
    pub fn set_version(
        self,
        path: impl Into<String>,
        data: impl Into<Vec<u8>>,
        version: i32,
    ) -> Self {
        self.set_if(path.into(), data.into(), Some(version))
    }

    fn set_if(mut self, path: String, data: Vec<u8>, version: Option<i32>) -> Self {
        self.operations.push(NodeOp::Set {
            path,
            data,
            version,
        });
        self
    }

    /// Deletes a node, whatever its version.
    pub fn delete(self, path: impl Into<String>) -> Self {
        self.delete_if(path.into(), None)
    }

    /// Deletes a node that has this version.
    pub fn delete_version(self, path: impl Into<String>, version: i32) -> Self {
        self.delete_if(path.into(), Some(version))
    }

    fn delete_if(mut self, path: String, version: Option<i32>) -> Self {
        self.operations.push(NodeOp::Delete { path, version });
        self
    }

    /// Requires that a node exists.
    pub fn check(self, path: impl Into<String>) -> Self {
        self.check_if(path.into(), None)
    }

    /// Requires that a node has this version.
    pub fn check_version(self, path: impl Into<String>, version: i32) -> Self {
        self.check_if(path.into(), Some(version))
    }

    fn check_if(mut self, path: String, version: Option<i32>) -> Self {
        self.operations.push(NodeOp::Check { path, version });
        self
    }

    /// Carries out all operations while the lock is held, or none. A set must be of one session.
    ///
    /// # Errors
    /// See [`TransactionError`]. Only after [`TransactionError::Unknown`] may something have
    /// changed, and then all of it. The call ends when the lock is lost: without an answer of the
    /// ensemble, after half the session timeout at the latest. If the node was removed, the answer
    /// says whether before, and the call waits for it as long.
    ///
    /// # Cancel safety
    /// The transaction may or may not be carried out when the future is dropped.
    pub async fn commit(self) -> Result<Vec<TransactionResult>, Error> {
        Ok(self.committed().await?)
    }

    async fn committed(self) -> Result<Vec<TransactionResult>, TransactionError> {
        let Self { leases, operations } = self;
        leases.iter().try_for_each(|lease| lease.check())?;
        let Some(first) = leases.first() else {
            return Ok(Vec::new());
        };
        let one_session = |lease: &&Lease| Arc::ptr_eq(lease.epoch(), first.epoch());
        if !leases.iter().all(one_session) {
            let (path, source) = (first.path().to_owned(), NodesError::Unsupported);
            return Err(TransactionError::Rejected { path, source });
        }
        let check = |lease: &&Lease| NodeOp::Check {
            path: lease.node_path().to_owned(),
            version: None,
        };
        let nodes_of: Vec<_> = operations.iter().map(|it| it.path().to_owned()).collect();
        let guarded: Vec<_> = leases.iter().map(check).chain(operations).collect();
        let unknown = |source| {
            let path = first.path().to_owned();
            TransactionError::Unknown { path, source }
        };
        let nodes = first.epoch().nodes().map_err(unknown)?;
        leases.iter().for_each(|lease| lease.unsettled());
        let committed = tokio::select! {
            biased;
            committed = nodes.multi(guarded) => committed,
            // It was carried out before the lock was lost, or it will be refused.
            () = given_up(&leases) => return Err(unknown(NodesError::SessionEnded)),
        };
        // Without an answer it may be in flight, and commit when the next contender holds the node.
        let is_open = matches!(&committed, Err(error) if error.source.is_unanswered());
        if !is_open {
            leases.iter().for_each(|lease| lease.settled());
        }
        match committed {
            Ok(done) => Ok(done.into_iter().skip(leases.len()).map(result).collect()),
            Err(error) => Err(failure(error, &leases, nodes_of, first.path())),
        }
    }
}

/// Completes when a lock is lost, and no answer is waited for any longer.
async fn given_up(leases: &[&Lease]) {
    let losses = leases.iter().map(|lease| lease.lost().boxed());
    let (lost, index, _) = select_all(losses).await;
    // The session may live, and news of a deletion come before answers. The answer that is on its way
    // says whether the node was there. It has as long as a lease without answers.
    if let (LostReason::NodeRemoved, Some(lease)) = (lost.reason, leases.get(index)) {
        sleep_until(lease.epoch().deadline()).await;
    }
}

fn result(done: NodeOpDone) -> TransactionResult {
    match done {
        NodeOpDone::Created(created) => TransactionResult::Created(created.path),
        NodeOpDone::Deleted => TransactionResult::Deleted,
        NodeOpDone::Set(stat) => TransactionResult::Set(stat),
        NodeOpDone::Checked => TransactionResult::Checked,
    }
}

/// Why it was not carried out. The operations come after the checks of the leases.
fn failure(
    error: MultiError,
    leases: &[&Lease],
    nodes: Vec<String>,
    path: &str,
) -> TransactionError {
    let MultiError { index, source } = error;
    let path = path.to_owned();
    let Some(index) = index else {
        return match source.is_unanswered() {
            true => TransactionError::Unknown { path, source },
            false => TransactionError::Rejected { path, source },
        };
    };
    if let Some(lease) = leases.get(index) {
        return match source {
            NodesError::NoNode => lease.note_loss(LostReason::NodeRemoved).into(),
            source => TransactionError::Rejected { path, source },
        };
    }
    let refused = nodes.into_iter().enumerate().nth(index - leases.len());
    match refused {
        Some((index, node)) => TransactionError::Refused {
            path,
            index,
            node,
            source,
        },
        // No operation of ours has this number.
        None => TransactionError::Rejected { path, source },
    }
}

/// The locks, and the operations without their data.
impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let locks: Vec<_> = self.leases.iter().map(|it| it.path()).collect();
        let operations = self.operations.iter().map(|operation| match operation {
            NodeOp::Create(node) => ("create", &*node.path),
            NodeOp::Delete { path, .. } => ("delete", &**path),
            NodeOp::Set { path, .. } => ("set", &**path),
            NodeOp::Check { path, .. } => ("check", &**path),
        });
        f.debug_struct("Transaction")
            .field("locks", &locks)
            .field("operations", &operations.collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests;
