//! What is known of one lease: the part that its session watches over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::error::{LostError, LostReason};
use crate::lock::lease::MadeNode;
use crate::lock::local_queue::Turn;
use crate::lock::revocation;
use crate::log::LOCK;
use crate::names::token::FencingToken;
use crate::session::epoch::{Epoch, Link};
use crate::session::own_watch::Care;
use crate::session::tenant::Tenant;
use crate::store::nodes::NodeStat;
use crate::sync::{AtomicBool, AtomicU32, Mutex, lock};
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

/// The part of a lease that the task of its epoch watches over.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(super) grant: Grant,
    pub(crate) id: u64,
    pub(crate) lock_path: Arc<str>,
    pub(crate) node_path: String,
    pub(super) czxid: i64,
    pub(super) was_alone: bool,
    pub(crate) fencing_token: FencingToken,
    pub(super) epoch: Arc<Epoch>,
    pub(super) lapses: u64,
    pub(crate) care: Arc<Care>,
    pub(super) signal: watch::Sender<Option<LostReason>>,
    /// True once a request to give the node up was seen.
    pub(super) revoked: watch::Sender<bool>,
    pub(super) is_released: AtomicBool,
    /// Counts what may continue after the release: readers of the owner next to the node, and
    /// transactions without an answer. While there are any, the node must be deleted before another
    /// contender holds the lock.
    pub(super) ties: AtomicU32,
    /// The turn, if contenders of this process share the node. It is passed on when the lease ends.
    pub(super) turn: Mutex<Option<Turn>>,
}

/// What a lease that takes over a node takes over with it.
pub(crate) struct Upkeep {
    /// The number of the lease in its epoch.
    pub(crate) id: u64,
    /// The count of lapses when the node was known to exist.
    pub(crate) lapses: u64,
    pub(crate) care: Arc<Care>,
}

impl LeaseState {
    pub(crate) fn new(
        epoch: &Arc<Epoch>,
        lock_path: &Arc<str>,
        made: MadeNode,
        upkeep: Upkeep,
    ) -> Self {
        let Upkeep { id, lapses, care } = upkeep;
        let state = Self {
            grant: Grant::default(),
            id,
            lock_path: Arc::clone(lock_path),
            node_path: made.path,
            czxid: made.czxid,
            was_alone: made.was_alone,
            fencing_token: made.fencing_token,
            epoch: Arc::clone(epoch),
            lapses,
            care,
            signal: watch::Sender::new(None),
            revoked: watch::Sender::new(false),
            is_released: AtomicBool::new(false),
            ties: AtomicU32::new(0),
            turn: Mutex::default(),
        };
        if made.is_revoked {
            state.revoke();
        }
        state
    }

    /// What is known of the lock now. Changes nothing.
    pub(crate) fn state(&self) -> GuardState {
        if let Some(reason) = self.reason() {
            return GuardState::Lost(reason);
        }
        match self.epoch.connection() {
            Some(connection) if self.care.is_verified(connection) => GuardState::Held,
            _ => GuardState::Suspended {
                until: self.epoch.deadline(),
            },
        }
    }

    /// Why the lock is lost, whether that has been recorded or not; `None` if it is not.
    fn reason(&self) -> Option<LostReason> {
        if let Some(first) = *self.signal.borrow() {
            return Some(first);
        }
        // First what a query may have said before the other came.
        if !self.epoch.is_good(self.lapses) {
            return Some(LostReason::DeadlinePassed);
        }
        match self.epoch.link() {
            Link::Ended(reason) => Some(reason),
            Link::Connected(_) | Link::Disconnected => None,
        }
    }

    fn log_loss(&self, reason: LostReason) {
        let (lock, node) = (&self.lock_path, &self.node_path);
        // A service that closes its session knows that its guards go with it.
        if self.epoch.is_wanted(reason) {
            debug!(target: LOCK, %lock, %node, %reason, "lock given up with its session");
        } else {
            warn!(target: LOCK, %lock, %node, %reason, "lock lost");
        }
    }

    /// Completes when the lock is lost, never after a release. The future keeps nothing alive.
    pub(crate) fn lost(&self) -> impl Future<Output = LostError> + Send + use<> {
        let mut signal = self.signal.subscribe();
        let path = Arc::clone(&self.lock_path);
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

    pub(crate) fn take_turn(&self) -> Option<Turn> {
        lock(&self.turn).take()
    }

    /// Whether the lease was given up: released or dropped.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }

    /// Ties the node for good to a reader that is about to be made next to it, because the reader
    /// may still be held when this lease is released; false if it is released already.
    pub(crate) fn tie(&self) -> bool {
        // In this order, either the release sees the tie or this call sees the release.
        self.ties.fetch_add(1, Ordering::SeqCst);
        !self.is_released()
    }

    /// Takes back a [`tie`](Self::tie), because no reader is made next to the node.
    pub(crate) fn untie(&self) {
        self.ties.fetch_sub(1, Ordering::SeqCst);
    }

    /// The session that owns the node.
    pub(crate) fn session_id(&self) -> i64 {
        self.epoch.session_id
    }

    /// Records a request to give the node up.
    pub(crate) fn revoke(&self) {
        let was_revoked = self.revoked.send_replace(true);
        if !was_revoked {
            info!(
                target: LOCK,
                lock = %self.lock_path, node = %self.node_path, "asked to give the lock up"
            );
        }
    }

    fn is_ours(&self, stat: &NodeStat) -> bool {
        stat.ephemeral_owner == self.epoch.session_id && stat.czxid == self.czxid
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> LostError {
        LostError {
            path: self.lock_path.to_string(),
            reason,
        }
    }
}

impl Tenant for LeaseState {
    fn id(&self) -> u64 {
        self.id
    }

    fn node_path(&self) -> &str {
        &self.node_path
    }

    fn lock_path(&self) -> &Arc<str> {
        &self.lock_path
    }

    fn care(&self) -> &Care {
        &self.care
    }

    fn lose_if_over(&self) -> Result<(), LostError> {
        match self.reason() {
            Some(reason) => Err(self.lose(reason)),
            None => Ok(()),
        }
    }

    fn lose(&self, reason: LostReason) -> LostError {
        // A query may have given a reason that nobody has recorded yet.
        let first = self.reason().unwrap_or(reason);
        let is_first = self.signal.send_if_modified(|lost| {
            let is_first = lost.is_none();
            lost.get_or_insert(first);
            is_first
        });
        let reason = self.signal.borrow().unwrap_or(first);
        self.grant.lost(reason);
        if is_first {
            self.log_loss(reason);
            // Contenders of this process need not wait until its guards are dropped.
            drop(self.take_turn());
        }
        self.lost_error(reason)
    }

    fn observe(&self, found: Option<&(Vec<u8>, NodeStat)>, connection: Option<u64>) {
        match found {
            Some((data, stat)) if self.is_ours(stat) => {
                if let Some(connection) = connection {
                    self.care.verified(connection);
                }
                if revocation::is_request(data) {
                    self.revoke();
                }
            }
            _ => drop(self.lose(LostReason::NodeRemoved)),
        }
    }
}
