//! The jobs of a clean-up queue that are not over, and what they delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::Doomed;

/// Nodes that nothing has deleted yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// How many there may be.
    pub(crate) nodes: usize,
    /// Path of the first, or of its directory if its name is not known.
    pub(crate) first: String,
}

/// A job: the number of the epoch of its nodes, and what it deletes.
type DoomedEntry = (u64, Arc<Doomed>);

/// The jobs of a queue that are not over.
#[derive(Clone, Default)]
pub(super) struct Pending(Arc<watch::Sender<BTreeMap<u64, DoomedEntry>>>);

/// A job that is not over. Dropping it ends it.
pub(super) struct Listed {
    pending: Pending,
    id: u64,
}

impl Pending {
    pub(super) fn list(&self, target: &Arc<Doomed>, made_in: u64) -> Listed {
        let mut id = 0;
        self.0.send_modify(|jobs| {
            id = jobs.last_key_value().map_or(0, |(last, _)| last + 1);
            jobs.insert(id, (made_in, Arc::clone(target)));
        });
        let pending = self.clone();
        Listed { pending, id }
    }

    pub(super) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Completes when all jobs are over.
    pub(super) async fn over(&self) {
        // The sender is ours, so waiting does not fail.
        drop(self.0.subscribe().wait_for(BTreeMap::is_empty).await);
    }

    /// What remains of the nodes of an epoch; `None` if nothing does.
    pub(super) fn remaining(&self, made_in: u64) -> Option<Remaining> {
        let jobs = self.0.borrow();
        let of_epoch = jobs.values().filter(|(epoch, _)| *epoch == made_in);
        let paths = of_epoch.flat_map(|(_, target)| target.places());
        let first = paths.clone().next()?.clone();
        let nodes = paths.count();
        Some(Remaining { nodes, first })
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.pending
            .0
            .send_modify(|jobs| drop(jobs.remove(&self.id)));
    }
}
