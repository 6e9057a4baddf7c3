//! Proof of holding one lock, which can be lost.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures::future;
use tokio::time::Instant;
use tracing::debug;

use crate::error::{LostError, LostReason, VerifyError};
use crate::lock::lease_state::{GuardState, LeaseState, Upkeep};
use crate::lock::local_queue::Turn;
use crate::lock::lock_path::LockPath;
use crate::log::LOCK;
use crate::names::node_name::LockKind;
use crate::names::token::FencingToken;
use crate::session::cleanup::Deletion;
use crate::session::epoch::Epoch;
use crate::session::own_watch::{Care, OwnWatch};
use crate::session::tenant::Tenant;
use crate::store::nodes::{NodeOp, NodesError};
use crate::store::retry;
use crate::sync::lock;

/// A node that was granted.
pub(crate) struct MadeNode {
    pub(crate) path: String,
    pub(crate) czxid: i64,
    pub(crate) fencing_token: FencingToken,
    /// A request to give it up was seen while it waited.
    pub(crate) is_revoked: bool,
    /// The listing after its create showed no other node.
    pub(crate) was_alone: bool,
}

/// What a grant rests on.
pub(crate) struct LeaseBasis {
    /// The connection in which the node was known to exist.
    pub(crate) connection: u64,
    /// The count of lapses when the node was known to exist.
    pub(crate) lapses: u64,
    /// The watch on the node; only a contender that waited has one.
    pub(crate) own_watch: Option<OwnWatch>,
}

/// Proof that one lock is held; deletes the node when dropped.
pub(crate) struct Lease {
    pub(super) state: Arc<LeaseState>,
    pub(super) lock: Arc<LockPath>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Lease {
    /// A lease on a node that was granted in this epoch.
    pub(crate) fn new(
        epoch: &Arc<Epoch>,
        lock: &Arc<LockPath>,
        made: MadeNode,
        basis: LeaseBasis,
    ) -> Self {
        let LeaseBasis {
            connection,
            lapses,
            own_watch,
        } = basis;
        let upkeep = Upkeep {
            id: epoch.new_id(),
            lapses,
            care: Arc::new(Care::new(connection, own_watch.clone())),
        };
        let state = Arc::new(LeaseState::new(epoch, &lock.path, made, upkeep));
        epoch.register(Arc::clone(&state) as Arc<dyn Tenant>, own_watch);
        debug!(
            target: LOCK,
            lock = %lock.path, node = %state.node_path, token = %state.fencing_token, "granted"
        );
        Self {
            state,
            lock: Arc::clone(lock),
        }
    }

    pub(crate) fn lock(&self) -> &Arc<LockPath> {
        &self.lock
    }

    pub(crate) fn path(&self) -> &str {
        &self.lock.path
    }

    pub(crate) fn node_path(&self) -> &str {
        &self.state.node_path
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.state.czxid
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.state.epoch
    }

    /// What a reader of the same owner needs to know of the writer that it goes next to. Before
    /// anything is sent, the writer must be [tied](LeaseState::tie).
    pub(crate) fn writer(&self) -> Arc<LeaseState> {
        Arc::clone(&self.state)
    }

    /// Notes that a transaction under this lease is in flight, until [`settled`](Self::settled).
    /// The tie stays for good if the answer never comes.
    pub(crate) fn unsettled(&self) {
        self.state.ties.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that the outcome of a transaction is known.
    pub(crate) fn settled(&self) {
        self.state.ties.fetch_sub(1, Ordering::SeqCst);
    }

    /// Keeps the turn of this process until the lease ends.
    pub(crate) fn keep(&self, turn: Turn) {
        *lock(&self.state.turn) = Some(turn);
        // The lease may have been lost before it had a turn to pass on.
        if self.state.signal.borrow().is_some() {
            drop(self.state.take_turn());
        }
    }

    /// Starts to measure the hold: an owner has this lease now, by this kind of lock.
    pub(crate) fn begin(&self, kind: LockKind) {
        let state = &self.state;
        state
            .grant
            .begin(kind, self.path(), self.node_path(), self.fencing_token());
        // The lease may have been lost before there was a hold to end.
        let lost = *state.signal.borrow();
        if let Some(reason) = lost {
            state.grant.lost(reason);
        }
    }

    /// A lease on the same node for the next contender of this process.
    fn successor(&self) -> Self {
        let old = &self.state;
        let made = MadeNode {
            path: old.node_path.clone(),
            czxid: old.czxid,
            fencing_token: old.fencing_token.handed_on(),
            is_revoked: false,
            was_alone: old.was_alone,
        };
        let upkeep = Upkeep {
            id: old.id,
            lapses: old.lapses,
            care: Arc::clone(&old.care),
        };
        let state = Arc::new(LeaseState::new(&old.epoch, &old.lock_path, made, upkeep));
        old.epoch.replace(Arc::clone(&state) as Arc<dyn Tenant>);
        // Until then, the epoch task may have reported a loss or a request to the old lease.
        let lost = *old.signal.borrow();
        if let Some(reason) = lost {
            state.lose(reason);
        }
        if *old.revoked.borrow() {
            state.revoke();
        }
        debug!(
            target: LOCK,
            lock = %self.lock.path,
            node = %state.node_path,
            token = %state.fencing_token,
            "handed on"
        );
        Self {
            state,
            lock: Arc::clone(&self.lock),
        }
    }

    /// Loses the lease, and returns the first reason.
    pub(crate) fn note_loss(&self, reason: LostReason) -> LostError {
        self.state.lose(reason)
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.state.fencing_token
    }

    pub(crate) fn state(&self) -> GuardState {
        self.state.state()
    }

    /// When the lease is lost unless the store answers again; `None` if it is lost.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        let until = self.state.epoch.deadline();
        self.check().is_ok().then_some(until)
    }

    /// `Err` if the lock is lost. Loses the lease if it is over by now.
    pub(crate) fn check(&self) -> Result<(), LostError> {
        self.state.lose_if_over()
    }

    /// Completes when the lock is lost, never after a release. The future keeps nothing alive.
    pub(crate) fn lost(&self) -> impl Future<Output = LostError> + Send + use<> {
        self.state.lost()
    }

    /// Completes when the lock is requested, never after a release. The future keeps nothing alive.
    pub(crate) fn revocation_requested(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut revoked = self.state.revoked.subscribe();
        let state = Arc::downgrade(&self.state);
        async move {
            let is_revoked = revoked.wait_for(|it| *it).await.is_ok();
            // The request may be older than a release, if nothing polled this in between.
            let is_held = Weak::upgrade(&state).is_some_and(|it| !it.is_released());
            if !is_revoked || !is_held {
                future::pending().await
            }
        }
    }

    /// Verifies that the node exists and is ours. It commits a transaction, because a leader that
    /// was deposed and has not noticed still answers reads, but cannot commit.
    pub(crate) async fn verify(&self) -> Result<(), VerifyError> {
        self.check()?;
        let unknown = |source| VerifyError::Unknown {
            path: self.path().to_owned(),
            source,
        };
        let nodes = self.epoch().nodes().map_err(unknown)?;
        let connection = self.epoch().connection();
        let exists = NodeOp::Check {
            path: self.node_path().to_owned(),
            version: None,
        };
        let (checked, read) = (nodes.multi(vec![exists]), nodes.read(self.node_path()));
        let answer = async {
            match checked.await.map_err(|error| error.source) {
                Ok(_) => read.await,
                Err(NodesError::NoNode) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let answer = tokio::select! {
            biased;
            lost = self.lost() => return Err(lost.into()),
            answer = answer => answer,
        };
        match answer {
            Ok(found) => self.state.observe(found.as_ref(), connection),
            Err(NodesError::SessionEnded) => drop(self.state.lose(self.epoch().ended().await)),
            Err(source) => return Err(unknown(source)),
        }
        Ok(self.check()?)
    }

    /// Whether a node without a guard can be granted again. Its watch proves that, or a read does.
    pub(crate) async fn vouch(&self) -> bool {
        let (epoch, state) = (self.epoch(), &self.state);
        let is_good = || self.state() == GuardState::Held && !*state.revoked.borrow();
        let connection = epoch.connection();
        if connection.is_some_and(|it| state.care.vouches(it)) {
            return is_good();
        }
        let Ok(nodes) = epoch.nodes() else {
            return false;
        };
        // The next holder needs a watch on the node.
        epoch.look_soon(state.id);
        let found = tokio::select! {
            biased;
            _ = self.lost() => return false,
            found = retry::persist(|| nodes.read(self.node_path())) => found,
        };
        match found {
            Ok(found) => state.observe(found.as_ref(), connection),
            Err(_) => return false,
        }
        // A read over a connection that is lost by now proves nothing on the next one.
        is_good()
    }

    /// Deletes the node in the background.
    pub(crate) fn abandon(&self) {
        if let Some(mut deletion) = self.retire() {
            // The deletion continues after it is dropped.
            deletion.send(self.epoch());
        }
    }

    /// Ends the lease, which the epoch task then forgets. Only the first call has an effect. `None`
    /// if nothing is left to delete: the next contender of this process has the node.
    pub(crate) fn retire(&self) -> Option<Deletion> {
        self.state.grant.released();
        if self.state.is_released.swap(true, Ordering::SeqCst) {
            return None;
        }
        if let Some(turn) = self.state.take_turn() {
            let is_untied = self.state.ties.load(Ordering::SeqCst) == 0;
            // The process that requested the lock waits until the node is deleted.
            let is_wanted = *self.state.revoked.borrow();
            // A node that no watch vouches for is read by its receiver.
            let is_good = is_untied && !is_wanted && self.state() == GuardState::Held;
            if is_good && turn.hands_on(self.fencing_token().handoff()) {
                // If no contender of this process takes the node, it is deleted.
                let left = turn.hand_on(self.successor());
                return left.and_then(|successor| successor.retire());
            }
        }
        self.state.epoch.deregister(self.state.id);
        let cleanup = &self.lock.session.core().cleanup;
        Some(cleanup.deletion(self.node_path(), self.epoch()))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
impl Lease {
    /// Whether the node has ties.
    pub(crate) fn is_tied(&self) -> bool {
        self.state.ties.load(Ordering::SeqCst) > 0
    }

    /// Whether the metrics count it as held by an owner.
    pub(crate) fn is_measured(&self) -> bool {
        self.state.grant.is_running()
    }
}

#[cfg(test)]
mod tests;
