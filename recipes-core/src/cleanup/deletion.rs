//! The deletion of one node, for whoever waits for it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};

use super::{Cleanup, Deleted, Target, Tried};
use crate::epoch::Epoch;
use crate::nodes::{NodesError, Reply};

/// The deletion of one node; pursued in the background if it is dropped before it is known to be
/// over.
pub(crate) struct Deletion {
    path: String,
    made_in: u64,
    way: Way,
    cleanup: Cleanup,
}

/// How a deletion goes on.
enum Way {
    /// Nothing is under way that would be heard of here.
    Unheard,
    Sent {
        reply: Reply<'static, ()>,
        /// Others of [`Deletion::share`] go together while this is kept.
        _alone: Option<OwnedSemaphorePermit>,
    },
    /// The queue sees to it.
    Queued(oneshot::Receiver<Deleted>),
    Over,
}

impl Deletion {
    pub(super) fn new(cleanup: Cleanup, path: &str, epoch: &Epoch) -> Self {
        Self {
            path: path.to_owned(),
            made_in: epoch.number,
            way: Way::Unheard,
            cleanup,
        }
    }

    /// Sends the delete now, before anything that the session asks next.
    pub(crate) fn send(&mut self, epoch: &Epoch) {
        self.send_with(epoch, None);
    }

    /// Sends the delete now; where another one of these is under way, soon, with others.
    pub(crate) fn share(&mut self, epoch: &Epoch) {
        match Arc::clone(&self.cleanup.alone).try_acquire_owned() {
            Ok(alone) => self.send_with(epoch, Some(alone)),
            Err(_) => self.way = Way::Queued(self.hand_over(Tried::Nothing)),
        }
    }

    fn send_with(&mut self, epoch: &Epoch, alone: Option<OwnedSemaphorePermit>) {
        if let Ok(nodes) = epoch.nodes() {
            self.way = Way::Sent {
                reply: nodes.delete(&self.path),
                _alone: alone,
            };
        }
    }

    /// Notes that the node was deleted otherwise.
    pub(crate) fn done(&mut self) {
        self.way = Way::Over;
    }

    /// Waits for the end of it, `None` if it is not known at the deadline.
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
                Some(deleted)
            }
            // An ensemble that has not ended it too may list the node for a while.
            Err(NodesError::SessionEnded) => Some(Deleted::WithSession),
            Err(_) => self.pursue(deadline).await,
        }
    }

    /// Waits until the clean-up has seen to it, `None` if it has not by the deadline. The node may
    /// have been deleted by a request of ours already.
    pub(crate) async fn pursue(mut self, deadline: Instant) -> Option<Deleted> {
        let mut outcome = self.hand_over(Tried::Perhaps);
        self.way = Way::Over;
        ended(&mut outcome, deadline).await
    }

    fn hand_over(&mut self, tried: Tried) -> oneshot::Receiver<Deleted> {
        let target = Target::Nodes(vec![std::mem::take(&mut self.path)]);
        self.cleanup.push(target, self.made_in, tried)
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
