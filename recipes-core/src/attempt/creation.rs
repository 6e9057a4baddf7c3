//! The request that creates the nodes of an attempt, all or none.

use std::sync::Arc;

use futures::{FutureExt, TryFutureExt};

use crate::attempt::ask::Ask;
use crate::lock::target::Target;
use crate::session::create_in_flight::Answer;
use crate::session::epoch::Epoch;
use crate::store::nodes::{
    Created, MultiError, NodeOp, NodeOpDone, NodeStat, Nodes, NodesError, Reply,
};

/// The operations that create nodes together. A single one is sent as a plain create.
pub(crate) struct Creation {
    /// Each with its member.
    operations: Vec<(usize, NodeOp)>,
    /// The directories that are listed with it, each for the node with this index.
    listed: Vec<(usize, Arc<str>)>,
}

impl Creation {
    pub(crate) fn new(asks: &[Ask<'_>]) -> Self {
        let mut operations = Vec::with_capacity(asks.len());
        for Ask {
            member,
            target,
            uuid,
        } in asks
        {
            let (required, node) = target.creation(*uuid);
            operations.extend(required.map(|required| (*member, required)));
            operations.push((*member, NodeOp::Create(node)));
        }
        let listed = listed(asks);
        Self { operations, listed }
    }

    /// The operation with this index, and its member.
    pub(crate) fn operation(&self, index: usize) -> Option<&(usize, NodeOp)> {
        self.operations.get(index)
    }

    /// The data of the new nodes.
    pub(crate) fn data(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        let operations = self.operations.iter();
        operations.filter_map(|(_, operation)| match operation {
            NodeOp::Create(node) => Some(&node.data),
            _ => None,
        })
    }

    /// Creates the nodes and lists directories, both when it is polled first.
    pub(crate) async fn send(self: Arc<Self>, epoch: Arc<Epoch>, nodes: Arc<dyn Nodes>) -> Answer {
        let created = self.create(&epoch, &*nodes);
        let directories: Vec<&str> = self.listed.iter().map(|(_, it)| &**it).collect();
        let listed = nodes.list_entered(&directories);
        // A failed listing is requested again once the node is known.
        let listed = listed.await.unwrap_or_default();
        let mut listings: Vec<_> = self.data().map(|_| None).collect();
        for ((node, _), listing) in self.listed.iter().zip(listed) {
            if let Some(it) = listings.get_mut(*node) {
                *it = Some(listing);
            }
        }
        Answer {
            created: created.await,
            listings,
        }
    }

    fn create<'a>(
        &'a self,
        epoch: &'a Epoch,
        nodes: &'a dyn Nodes,
    ) -> Reply<'a, Vec<Created>, MultiError> {
        match self.operations.as_slice() {
            [(_, NodeOp::Create(node))] => {
                let alone = |source| MultiError {
                    index: Some(0),
                    source,
                };
                let created = nodes.create(node);
                created
                    .map_ok(|created| vec![created])
                    .map_err(alone)
                    .boxed()
            }
            operations => send_together(operations, epoch, nodes),
        }
    }
}

/// Whether two members that follow each other go to one directory: leases of a semaphore.
pub(crate) fn share_directory(one: &Target, next: &Target) -> bool {
    Arc::ptr_eq(&one.lock, &next.lock)
}

/// Those with whose create a directory is listed: one for each directory, unless its only new node
/// is expected to be alone.
fn listed(asks: &[Ask<'_>]) -> Vec<(usize, Arc<str>)> {
    let together = asks.chunk_by(|one, next| share_directory(one.target, next.target));
    let (mut listed, mut index) = (Vec::new(), 0);
    for together in together {
        if let [first, others @ ..] = together {
            if !others.is_empty() || first.needs_listing() {
                listed.push((index, Arc::clone(&first.target.lock.path)));
            }
        }
        index += together.len();
    }
    listed
}

/// Servers before 3.7.2 and 3.8.2 do not return the number of the transaction that created the
/// nodes. After the first such answer, we read the stat of the first node's directory before and
/// after the transaction.
fn send_together<'a>(
    operations: &'a [(usize, NodeOp)],
    epoch: &'a Epoch,
    nodes: &'a dyn Nodes,
) -> Reply<'a, Vec<Created>, MultiError> {
    let mut directories = operations
        .iter()
        .filter_map(|(_, operation)| match operation {
            NodeOp::Create(node) => node.path.rsplit_once('/').map(|(directory, _)| directory),
            _ => None,
        });
    let directory = directories.next().filter(|_| epoch.leaves_numbers_out());
    let look = || directory.map(|directory| nodes.stat(directory));
    let before = look();
    let done = nodes.multi(operations.iter().map(|(_, it)| it.clone()).collect());
    let after = look();
    async move {
        let created = done.await?.into_iter().filter_map(|done| match done {
            NodeOpDone::Created(created) => Some(created),
            NodeOpDone::Deleted | NodeOpDone::Set(_) | NodeOpDone::Checked => None,
        });
        let mut created: Vec<_> = created.collect();
        if created.iter().any(|it| it.czxid.is_none()) {
            epoch.left_numbers_out();
            let number = match (before, after) {
                (Some(before), Some(after)) => only_change(before.await, after.await),
                _ => None,
            };
            for created in &mut created {
                created.czxid = created.czxid.or(number);
            }
        }
        Ok(created)
    }
    .boxed()
}

type Look = Result<Option<NodeStat>, NodesError>;

/// The transaction that changed a directory's children, if there was exactly one between two looks.
fn only_change(before: Look, after: Look) -> Option<i64> {
    let (before, after) = (before.ok()??, after.ok()??);
    let is_same = before.czxid == after.czxid;
    let changes = after.cversion.wrapping_sub(before.cversion);
    (is_same && changes == 1).then_some(after.pzxid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(czxid: i64, cversion: i32, pzxid: i64) -> Look {
        let mut stat = NodeStat::new(czxid, czxid, 0, 0, 0);
        (stat.cversion, stat.pzxid) = (cversion, pzxid);
        Ok(Some(stat))
    }

    #[test]
    fn one_change_of_the_children_is_the_one_between_the_looks() {
        let number = only_change(directory(1, 4, 7), directory(1, 5, 9));
        assert_eq!(number, Some(9));
        let wrapped = only_change(directory(1, i32::MAX, 7), directory(1, i32::MIN, 9));
        assert_eq!(wrapped, Some(9));
    }

    #[test]
    fn changes_by_others_hide_it() {
        // Another node was created or deleted, before ours or after it.
        assert_eq!(only_change(directory(1, 4, 7), directory(1, 6, 9)), None);
        // The directory was re-created meanwhile.
        assert_eq!(only_change(directory(1, 4, 7), directory(8, 5, 9)), None);
        assert_eq!(only_change(Ok(None), directory(8, 1, 9)), None);
        let lost = Err(NodesError::SessionEnded);
        assert_eq!(only_change(directory(1, 4, 7), lost), None);
    }
}
