//! What vouches for a node of ours: a watch, and the connection on which the node was seen.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::Shared;
use tokio::task::unconstrained;

use crate::store::nodes::{NodeEvent, NodeWatch};
use crate::sync::{Mutex, lock};

/// A watch on a node of ours, shared by all that wait for its event.
#[derive(Clone)]
pub(crate) struct OwnWatch(Shared<NodeWatch>);

impl OwnWatch {
    pub(crate) fn new(watch: NodeWatch) -> Self {
        Self(watch.shared())
    }

    /// Waits for what happens to the node.
    pub(crate) fn event(&self) -> impl Future<Output = NodeEvent> + Send + use<> {
        self.0.clone()
    }

    /// As [`event`](Self::event). Must not be polled again after the event was returned.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<NodeEvent> {
        self.0.poll_unpin(cx)
    }

    /// What has happened to the node, even when the task's budget is used up.
    fn happened(&self) -> Option<NodeEvent> {
        unconstrained(self.0.clone()).now_or_never()
    }
}

impl fmt::Debug for OwnWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnWatch").finish_non_exhaustive()
    }
}

/// What is known of a node that is held. It goes with the node from one lease to the next.
#[derive(Debug, Default)]
pub(crate) struct Care {
    /// The connection on which the node was last known to exist.
    verified: AtomicU64,
    watch: Mutex<Option<OwnWatch>>,
}

impl Care {
    pub(crate) fn new(verified: u64, watch: Option<OwnWatch>) -> Self {
        Self {
            verified: AtomicU64::new(verified),
            watch: Mutex::new(watch),
        }
    }

    /// Notes that the node existed on a connection. Answers of an earlier one may come later.
    pub(crate) fn verified(&self, connection: u64) {
        self.verified.fetch_max(connection, Ordering::SeqCst);
    }

    pub(crate) fn is_verified(&self, connection: u64) -> bool {
        self.verified.load(Ordering::SeqCst) == connection
    }

    /// Replaces the watch that would report the node's deletion, if there is one.
    pub(crate) fn watch(&self, watch: Option<OwnWatch>) {
        let old = std::mem::replace(&mut *lock(&self.watch), watch);
        drop(old);
    }

    /// Whether the node existed on this connection and a watch on it has reported nothing. The
    /// client sets watches again before it sends anything else on another connection.
    pub(crate) fn vouches(&self, connection: u64) -> bool {
        let watch = lock(&self.watch).clone();
        self.is_verified(connection) && watch.is_some_and(|it| it.happened().is_none())
    }
}

#[cfg(test)]
mod tests;
