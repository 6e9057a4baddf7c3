//! The contenders of one process that share one node in the queue of a lock.
//!
//! One of them has the turn. Dropping the turn passes it on, so a release, a dropped guard, a
//! future that is dropped at any await and a lost lock all work the same.
//! [`local_order`](crate::rules::local_order) decides what goes with the turn.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use tokio::sync::oneshot;
use tracing::{Instrument, debug_span};

use crate::error::AcquireError;
use crate::lock::lease::Lease;
use crate::lock::target::Target;
use crate::log::LOCK;
use crate::rules::acquire::{Outcome, Patience};
use crate::rules::delay::Progress;
use crate::rules::local_order::LocalOrder;
use crate::sync::{AtomicBool, Mutex, lock};

/// An attempt of one contender, which another may continue.
pub(crate) type AttemptFuture = BoxFuture<'static, Result<Outcome<Vec<Lease>>, AcquireError>>;

/// The turns of one lock in one session.
pub(crate) struct LocalQueue {
    order: Mutex<LocalOrder<oneshot::Sender<Turn>>>,
    /// How far the attempt has come that goes with the turn.
    pub(crate) progress: Arc<Mutex<Progress>>,
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueue").finish_non_exhaustive()
    }
}

/// The node that goes with a turn, if any: it waits, or it is held.
#[derive(Default)]
struct SharedNode {
    /// The attempt of its contender, which the next one continues to poll.
    attempt: Option<AttemptFuture>,
    /// A lease on the node. No guard uses it.
    lease: Option<Lease>,
}

impl LocalQueue {
    /// Makes a queue that hands a held node on at most this many times.
    pub(crate) fn new(handoffs_max: u32) -> Self {
        Self {
            order: Mutex::new(LocalOrder::new(handoffs_max)),
            progress: Arc::default(),
        }
    }

    /// Acquires the lock of this queue. `begin` begins an attempt among the processes. Sets
    /// `has_turn` when no other contender of this process is ahead any more.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        target: Target,
        patience: Patience,
        has_turn: &AtomicBool,
        begin: impl Fn(Target, Patience) -> AttemptFuture,
    ) -> Result<Outcome<Vec<Lease>>, AcquireError> {
        let lock = Arc::clone(&target.lock);
        let turn = tokio::select! {
            biased;
            // The contender that has the turn may not be polled any more.
            error = lock.session.core().over(&lock.path) => return Err(error),
            turn = self.turn(&lock.path, patience) => turn,
        };
        let Some(mut turn) = turn else {
            return Ok(Outcome::Busy);
        };
        has_turn.store(true, Ordering::Relaxed);
        if turn.vouch().await {
            if let Some(lease) = turn.node.lease.take() {
                lease.keep(turn);
                return Ok(Outcome::Granted(vec![lease]));
            }
        }
        // A node that cannot be granted again is deleted.
        drop(turn.node.lease.take());
        let outcome = match patience {
            Patience::Wait => turn.attempt(|| begin(target.clone(), patience)).await?,
            // The attempt of a try ends if the lock is busy, so the next contender must not get it.
            Patience::Try => begin(target, patience).await?,
        };
        if let Outcome::Granted(leases) = &outcome {
            if let Some(lease) = leases.first() {
                lease.keep(turn);
            }
        }
        Ok(outcome)
    }

    /// Waits for the turn. `None` if another contender has it and this one does not wait.
    async fn turn(self: &Arc<Self>, path: &str, patience: Patience) -> Option<Turn> {
        let (waiting, turn) = {
            let mut order = lock(&self.order);
            if order.take() {
                return Some(Turn::new(self, SharedNode::default()));
            }
            if patience == Patience::Try {
                return None;
            }
            let (waiter, turn) = oneshot::channel();
            let ticket = order.enlist(waiter);
            (
                Waiting {
                    queue: self,
                    ticket,
                },
                turn,
            )
        };
        let wait = debug_span!(target: LOCK, "wait", lock = %path, predecessor = "in this session");
        let turn = turn.instrument(wait).await;
        drop(waiting);
        // The sender of a waiter is not dropped unused while it waits.
        turn.ok()
    }

    /// Passes the turn on with its node. Returns the node if no contender takes it.
    fn pass(self: &Arc<Self>, mut node: SharedNode) -> SharedNode {
        loop {
            let next = lock(&self.order).pass();
            // The lock is released here, because a turn that is dropped comes back to this queue.
            let Some(waiter) = next else { return node };
            match waiter.send(Turn::new(self, node)) {
                Ok(()) => return SharedNode::default(),
                // That contender gave up in this moment.
                Err(turn) => node = turn.end(),
            }
        }
    }
}

/// A contender that waits for the turn; dropping it leaves the queue.
struct Waiting<'a> {
    queue: &'a LocalQueue,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.queue.order).leave(self.ticket);
    }
}

/// The right to compete with other processes. Dropping it passes it on.
pub(crate) struct Turn {
    queue: Arc<LocalQueue>,
    node: SharedNode,
    is_over: bool,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

impl Turn {
    fn new(queue: &Arc<LocalQueue>, node: SharedNode) -> Self {
        Self {
            queue: Arc::clone(queue),
            node,
            is_over: false,
        }
    }

    /// Waits for an attempt. If this contender gives up, the next one continues the attempt.
    async fn attempt(
        &mut self,
        begin: impl Fn() -> AttemptFuture,
    ) -> Result<Outcome<Vec<Lease>>, AcquireError> {
        poll_fn(|cx| {
            // Out of the turn while it is polled: if the attempt panics, no contender continues it.
            let kept = self.node.attempt.take();
            let mut attempt = kept.unwrap_or_else(&begin);
            let polled = attempt.poll_unpin(cx);
            if polled.is_pending() {
                self.node.attempt = Some(attempt);
            }
            polled
        })
        .await
    }

    /// Whether the turn has a held node that can be granted again. The node stays in the turn.
    async fn vouch(&mut self) -> bool {
        match &self.node.lease {
            Some(lease) => lease.vouch().await,
            None => false,
        }
    }

    /// Whether a contender of this process gets a held node that was handed on this many times.
    pub(crate) fn hands_on(&self, handoffs: u32) -> bool {
        lock(&self.queue.order).hands_on(handoffs)
    }

    /// Hands a held node on. Returns it if no contender takes it.
    pub(crate) fn hand_on(self, lease: Lease) -> Option<Lease> {
        let queue = Arc::clone(&self.queue);
        let mut node = self.end();
        node.lease = Some(lease);
        queue.pass(node).lease
    }

    /// Ends the turn without passing it on.
    fn end(mut self) -> SharedNode {
        self.is_over = true;
        mem::take(&mut self.node)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            // If no contender takes the node, it is withdrawn or deleted.
            drop(self.queue.pass(mem::take(&mut self.node)));
        }
    }
}

#[cfg(test)]
impl LocalQueue {
    /// Takes the turn, which must be free.
    pub(crate) fn take_for_test(self: &Arc<Self>) -> Turn {
        assert!(lock(&self.order).take());
        Turn::new(self, SharedNode::default())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::names::node_name::LockKind;
    use crate::scripted::{Stage, contend};

    /// If such a contender stayed, held nodes would be handed on to no contender, and tries with a
    /// timeout would fill the memory.
    #[tokio::test(start_paused = true)]
    async fn who_gives_up_does_not_stay_in_the_queue() {
        let stage = Stage::new().await;
        let target = Target {
            lock: stage.lock("/a", 1),
            kind: LockKind::Mutex,
            beside: None,
            owner: None,
            permits: None,
            data: None,
        };
        let queue = Arc::clone(target.lock.local_queue(LockKind::Mutex).unwrap());
        let turn = queue.take_for_test();
        let mut waiter = contend(Arc::clone(&queue), target);
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(waiter.poll_unpin(&mut nobody).is_pending());
        assert!(turn.hands_on(0));
        drop(waiter);
        assert!(!turn.hands_on(0), "counts as somebody who waits");
    }

    /// Another thread may pass the turn on between the end of a waiter's future and its leave.
    #[test]
    fn turn_goes_by_who_gave_up_and_has_not_left_yet() {
        let queue = Arc::new(LocalQueue::new(1));
        assert!(lock(&queue.order).take());
        let (gone, of_gone) = oneshot::channel();
        let (next, mut of_next) = oneshot::channel();
        lock(&queue.order).enlist(gone);
        lock(&queue.order).enlist(next);
        drop(of_gone);
        drop(Turn::new(&queue, SharedNode::default()));
        drop(of_next.try_recv().unwrap());
        assert!(lock(&queue.order).take());
    }
}
