//! A job of the clean-up.

use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::abandoned::Parked;
use super::pending::Listed;
use super::{Deleted, Doomed};
use crate::log::CLEANUP;
use crate::session::free_uuids::FreeUuids;
use crate::store::nodes::Reply;
use crate::telemetry::PendingCleanup;

/// What is to be deleted, and who waits for it.
pub(super) struct Job {
    pub(super) target: Arc<Doomed>,
    /// The number of the epoch of the nodes.
    pub(super) made_in: u64,
    pub(super) tried: Tried,
    pub(super) done: Option<oneshot::Sender<Deleted>>,
    /// Those of that epoch.
    pub(super) free: FreeUuids,
    pub(super) _pending: Listed,
    /// For the metrics, once it is more than a first try.
    pub(super) gauge: Option<PendingCleanup>,
}

impl Job {
    pub(super) fn paths(&self) -> &[String] {
        match &*self.target {
            Doomed::Nodes(paths) => paths,
            Doomed::MadeWith(_) => &[],
        }
    }

    /// Reports the outcome to its receiver, or to the log if there is none.
    pub(super) fn answer(&mut self, deleted: Deleted) {
        deleted.free(&self.free, self.paths());
        let unheard = match self.done.take() {
            Some(done) => done.send(deleted).err(),
            None => Some(deleted),
        };
        match unheard {
            Some(Deleted::Refused(error)) => {
                warn!(target: CLEANUP, node = ?self.target, %error, "node cannot be deleted");
            }
            unheard => {
                debug!(target: CLEANUP, node = ?self.target, ?unheard, "node cleaned up")
            }
        }
    }

    /// Reports that the node goes with its session. It may still be pursued, because a store
    /// that has not ended the session yet may list the node for a while.
    pub(super) fn gone_with_session(&mut self) {
        self.answer(Deleted::WithSession);
        self.tried = Tried::Perhaps;
    }
}

/// What was sent for a job.
pub(super) enum Tried {
    /// Nothing, so it can share a transaction.
    Nothing,
    /// A delete of its one node is in flight.
    Sent(Reply<'static, ()>),
    /// The create of its nodes is in flight.
    Creating(Arc<Parked>),
    /// A request of ours may have been carried out.
    Perhaps,
}
