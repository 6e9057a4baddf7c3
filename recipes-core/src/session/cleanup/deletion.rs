//! The deletion of one node, whose outcome can be awaited.

use std::slice;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{Cleanup, Deleted, Doomed, Job, Tried};
use crate::session::epoch::Epoch;
use crate::session::free_uuids::FreeUuids;
use crate::store::nodes::{NodesError, Reply};

/// The deletion of one node. If it is dropped before the outcome is known, the queue pursues the
/// node.
pub(crate) struct Deletion {
    path: String,
    made_in: u64,
    free: FreeUuids,
    way: Way,
    cleanup: Cleanup,
}

/// Where the outcome comes from.
enum Way {
    /// No request is in flight whose answer would arrive here.
    Unheard,
    Sent {
        reply: Reply<'static, ()>,
        /// While this is kept, other deletions by [`Deletion::share`] are sent together.
        _alone: Option<OwnedSemaphorePermit>,
    },
    /// The queue deletes the node.
    Queued(oneshot::Receiver<Deleted>),
    Over,
}

impl Deletion {
    pub(super) fn new(cleanup: Cleanup, path: &str, epoch: &Epoch) -> Self {
        Self {
            path: path.to_owned(),
            made_in: epoch.number,
            free: epoch.free_uuids.clone(),
            way: Way::Unheard,
            cleanup,
        }
    }

    /// Sends the delete now, before any later request of the session.
    pub(crate) fn send(&mut self, epoch: &Epoch) {
        self.send_with(epoch, None);
    }

    /// Sends these deletions. One that is alone in its session is sent now, unless another that was
    /// sent by this has no answer yet. Otherwise the queue of the session sends them together.
    pub(crate) fn share(mut deletions: Vec<(&mut Self, &Epoch)>) {
        while let Some((first, _)) = deletions.first() {
            let cleanup = first.cleanup.clone();
            let (of_session, others): (Vec<_>, Vec<_>) = deletions
                .into_iter()
                .partition(|(it, _)| it.cleanup.is(&cleanup));
            deletions = others;
            Self::share_in_session(&cleanup, of_session);
        }
    }

    fn share_in_session(cleanup: &Cleanup, mut deletions: Vec<(&mut Self, &Epoch)>) {
        if let [(only, epoch)] = &mut *deletions {
            if let Ok(alone) = Arc::clone(&cleanup.alone).try_acquire_owned() {
                return only.send_with(epoch, Some(alone));
            }
        }
        let jobs = deletions.into_iter().map(|(deletion, _)| {
            let (job, outcome) = deletion.job(Tried::Nothing);
            deletion.way = Way::Queued(outcome);
            job
        });
        cleanup.push(jobs.collect());
    }

    fn send_with(&mut self, epoch: &Epoch, alone: Option<OwnedSemaphorePermit>) {
        if let Ok(nodes) = epoch.nodes() {
            self.way = Way::Sent {
                reply: nodes.delete(&self.path),
                _alone: alone,
            };
        }
    }

    /// Waits for the outcome; `None` if it is not known by the deadline.
    pub(crate) async fn finish(mut self, deadline: Instant) -> Option<Deleted> {
        let reply = match &mut self.way {
            Way::Sent { reply, .. } => reply,
            Way::Queued(outcome) => return ended(outcome, deadline).await,
            Way::Unheard | Way::Over => {
                self.way = Way::Over;
                return Some(Deleted::WithSession);
            }
        };
        let answer = timeout_at(deadline, reply).await.ok()?;
        self.way = Way::Unheard;
        match Deleted::definitely(answer) {
            Ok(deleted) => {
                self.way = Way::Over;
                deleted.free(&self.free, slice::from_ref(&self.path));
                Some(deleted)
            }
            // A store that has not ended the session yet may list the node for a while, so the
            // drop of `self` pursues it.
            Err(NodesError::SessionEnded) => Some(Deleted::WithSession),
            // The request may have deleted the node already.
            Err(_) => {
                let mut outcome = self.hand_over(Tried::Perhaps);
                self.way = Way::Over;
                ended(&mut outcome, deadline).await
            }
        }
    }

    fn hand_over(&mut self, tried: Tried) -> oneshot::Receiver<Deleted> {
        let (job, outcome) = self.job(tried);
        self.cleanup.push(vec![job]);
        outcome
    }

    fn job(&mut self, tried: Tried) -> (Job, oneshot::Receiver<Deleted>) {
        let target = Doomed::Nodes(vec![std::mem::take(&mut self.path)]);
        self.cleanup
            .job(target, (self.made_in, self.free.clone()), tried)
    }
}

impl Drop for Deletion {
    fn drop(&mut self) {
        let tried = match std::mem::replace(&mut self.way, Way::Over) {
            Way::Unheard => Tried::Perhaps,
            Way::Sent { reply, .. } => Tried::Sent(reply),
            Way::Queued(_) | Way::Over => return,
        };
        drop(self.hand_over(tried));
    }
}

async fn ended(outcome: &mut oneshot::Receiver<Deleted>, deadline: Instant) -> Option<Deleted> {
    let outcome = timeout_at(deadline, outcome).await.ok()?;
    Some(outcome.unwrap_or(Deleted::WithSession))
}
