//! What is known of one lease.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures::future;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{LostError, LostReason};
use crate::lock::held_node::HeldNode;
use crate::lock::local_queue::Turn;
use crate::names::token::FencingToken;
use crate::sync::{AtomicBool, Mutex, lock};
use crate::telemetry::Grant;

/// What a guard knows about its lock at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is held, and the store answered not long ago.
    Held,
    /// The connection is down, or it is new and the node has not been verified on it. The lock is
    /// still held: no other contender can get it before `until`. If nothing changes, it is lost
    /// then.
    Suspended {
        /// When the lock is lost.
        until: Instant,
    },
    /// The lock is lost for good; another contender may hold it.
    Lost(LostReason),
}

/// One lease on a node that is held.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) node: Arc<HeldNode>,
    /// Its number among the leases of the node.
    number: u64,
    pub(super) grant: Grant,
    /// Why it was lost, before it ended.
    pub(super) signal: watch::Sender<Option<LostReason>>,
    pub(crate) fencing_token: FencingToken,
    pub(super) is_released: AtomicBool,
    /// The turn, if contenders of this process hand the node on. It is passed on when the lease ends.
    pub(super) turn: Mutex<Option<Turn>>,
}

impl LeaseState {
    pub(super) fn new(node: &Arc<HeldNode>, number: u64, fencing_token: FencingToken) -> Self {
        Self {
            node: Arc::clone(node),
            number,
            grant: Grant::default(),
            signal: watch::Sender::new(None),
            fencing_token,
            is_released: AtomicBool::new(false),
            turn: Mutex::default(),
        }
    }

    /// What is known of the lock now. Changes nothing.
    pub(crate) fn state(&self) -> GuardState {
        self.node.state()
    }

    /// Completes when the lock is lost, never after a release. The future keeps nothing alive.
    pub(crate) fn lost(&self) -> impl Future<Output = LostError> + Send + use<> {
        let mut signal = self.signal.subscribe();
        let path = Arc::clone(&self.node.lock_path);
        async move {
            let lost = signal.wait_for(Option::is_some).await.map(|reason| *reason);
            match lost {
                Ok(Some(reason)) => LostError {
                    path: path.to_string(),
                    reason,
                },
                _ => future::pending().await,
            }
        }
    }

    /// Completes when the lock is requested, never after a release. The future keeps nothing alive.
    pub(crate) fn revocation_requested(
        self: &Arc<Self>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut revoked = self.node.revoked.subscribe();
        let lease = Arc::downgrade(self);
        async move {
            let is_revoked = revoked.wait_for(|it| *it).await.is_ok();
            // The request may be older than a release, if nothing polled this in between.
            let is_held = Weak::upgrade(&lease).is_some_and(|it| !it.is_released());
            if !is_revoked || !is_held {
                future::pending().await
            }
        }
    }

    /// The node is lost. Contenders of this process need not wait until its guards are dropped.
    pub(super) fn note_lost(&self, reason: LostReason) {
        self.signal.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert(reason);
            is_first
        });
        self.grant.lost(reason);
        drop(self.take_turn());
    }

    pub(super) fn take_turn(&self) -> Option<Turn> {
        lock(&self.turn).take()
    }

    /// Whether the lease was given up: released or dropped.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }

    /// Takes it from the node. True if it was the last, and the node is to be deleted.
    pub(super) fn leave(&self) -> bool {
        self.node.leave(self.number)
    }

    /// Ties the node for good to a reader that is about to be made next to it, because the reader
    /// may still be held when this lease is released; false if it is released already.
    pub(crate) fn tie(&self) -> bool {
        // In this order, either the release sees the tie or this call sees the release.
        self.node.ties.fetch_add(1, Ordering::SeqCst);
        !self.is_released()
    }

    /// Takes back a [`tie`](Self::tie), because no reader is made next to the node.
    pub(crate) fn untie(&self) {
        self.node.ties.fetch_sub(1, Ordering::SeqCst);
    }
}
