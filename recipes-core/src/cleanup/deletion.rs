//! The deletion of one node, for whoever waits for it.

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{Cleanup, Deleted, Sent, Target, Tried};
use crate::epoch::Epoch;
use crate::nodes::NodesError;

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
    /// Nothing was sent, for all that is known here.
    Unsent,
    Sent(Sent),
    /// The queue sees to it.
    Queued(oneshot::Receiver<Deleted>),
    Over,
}

impl Deletion {
    pub(super) fn new(cleanup: Cleanup, path: &str, epoch: &Epoch) -> Self {
        Self {
            path: path.to_owned(),
            made_in: epoch.number,
            way: Way::Unsent,
            cleanup,
        }
    }

    /// Sends the delete now; where another is under way, behind it and with those that come
    /// meanwhile.
    pub(crate) fn send(&mut self, epoch: &Epoch) {
        self.way = match (
            epoch.nodes(),
            self.cleanup.alone.clone().try_acquire_owned(),
        ) {
            (Ok(nodes), Ok(alone)) => Way::Sent(Sent {
                reply: nodes.delete(&self.path),
                _alone: Some(alone),
            }),
            (Ok(_), Err(_)) => Way::Queued(self.hand_over(Tried::Nothing)),
            (Err(_), _) => Way::Unsent,
        };
    }

    /// Notes that the node was deleted otherwise.
    pub(crate) fn done(&mut self) {
        self.way = Way::Over;
    }

    /// Waits for the end of it, `None` if it is not known at the deadline.
    pub(crate) async fn finish(mut self, deadline: Instant) -> Option<Deleted> {
        let reply = match &mut self.way {
            Way::Sent(sent) => &mut sent.reply,
            Way::Queued(outcome) => return ended(outcome, deadline).await,
            Way::Unsent | Way::Over => {
                self.way = Way::Over;
                return Some(Deleted::WithSession);
            }
        };
        let answer = timeout_at(deadline, reply).await.ok()?;
        self.way = Way::Unsent;
        let ended = match answer {
            Ok(()) => Deleted::ByUs,
            Err(NodesError::NoNode) => Deleted::BySomebody,
            Err(error) if error.is_lasting() => Deleted::Refused(error),
            // An ensemble that has not ended it too may list the node for a while.
            Err(NodesError::SessionEnded) => return Some(Deleted::WithSession),
            Err(_) => return self.pursue(deadline).await,
        };
        self.way = Way::Over;
        Some(ended)
    }

    /// Waits until the clean-up has seen to it, `None` if it has not by the deadline. The node may
    /// have been deleted by a request of ours already.
    pub(crate) async fn pursue(mut self, deadline: Instant) -> Option<Deleted> {
        let mut outcome = self.hand_over(Tried::Something);
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
            Way::Unsent => Tried::Something,
            Way::Sent(sent) => Tried::Sent(sent),
            Way::Queued(_) | Way::Over => return,
        };
        drop(self.hand_over(tried));
    }
}

async fn ended(outcome: &mut oneshot::Receiver<Deleted>, deadline: Instant) -> Option<Deleted> {
    let outcome = timeout_at(deadline, outcome).await.ok()?;
    Some(outcome.unwrap_or(Deleted::WithSession))
}
