//! Proof of holding one lock, which can be lost.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::debug;

use crate::error::{LostError, LostReason, VerifyError};
use crate::lock::held_node::{HeldNode, LeaseBasis, MadeNode};
use crate::lock::lease_state::{GuardState, LeaseState};
use crate::lock::local_queue::Turn;
use crate::lock::lock_path::LockPath;
use crate::log::LOCK;
use crate::names::node_name::LockKind;
use crate::names::token::FencingToken;
use crate::session::cleanup::Deletion;
use crate::session::epoch::Epoch;
use crate::session::tenant::Tenant;
use crate::store::nodes::{NodeOp, NodesError};
use crate::store::retry;
use crate::sync::lock;

/// Proof that one lock is held. The node is deleted when the last lease on it is dropped.
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
    /// The first lease on a node that was granted in this epoch.
    pub(crate) fn new(
        epoch: &Arc<Epoch>,
        lock: &Arc<LockPath>,
        made: MadeNode,
        basis: LeaseBasis,
    ) -> Self {
        let state = HeldNode::granted(epoch, &lock.path, made, basis);
        debug!(
            target: LOCK,
            lock = %lock.path, node = %state.node.path, token = %state.fencing_token, "granted"
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
        &self.state.node.path
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.state.node.czxid
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.state.node.epoch
    }

    /// What a reader of the same owner needs to know of the writer that it goes next to. Before
    /// anything is sent, the writer must be [tied](LeaseState::tie).
    pub(crate) fn writer(&self) -> Arc<LeaseState> {
        Arc::clone(&self.state)
    }

    /// Notes that a transaction under this lease is in flight, until [`settled`](Self::settled).
    /// The tie stays for good if the answer never comes.
    pub(crate) fn unsettled(&self) {
        self.state.node.ties.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that the outcome of a transaction is known.
    pub(crate) fn settled(&self) {
        self.state.node.ties.fetch_sub(1, Ordering::SeqCst);
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

    /// A lease on a node that is held by others of this session. `None` if the last one has ended: the
    /// node is being deleted.
    fn on(node: &Arc<HeldNode>, lock: &Arc<LockPath>, token: FencingToken) -> Option<Self> {
        let state = node.join(token)?;
        debug!(
            target: LOCK,
            lock = %lock.path, node = %node.path, token = %state.fencing_token, "shared"
        );
        let lock = Arc::clone(lock);
        Some(Self { state, lock })
    }

    /// A lease for a reader, next to others. `None` if the node is being deleted.
    pub(crate) fn join(node: &Arc<HeldNode>, lock: &Arc<LockPath>) -> Option<Self> {
        Self::on(node, lock, FencingToken::new(node.czxid))
    }

    pub(crate) fn node(&self) -> &Arc<HeldNode> {
        &self.state.node
    }

    /// Loses the lease, and returns the first reason.
    pub(crate) fn note_loss(&self, reason: LostReason) -> LostError {
        self.state.node.lose(reason)
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.state.fencing_token
    }

    pub(crate) fn state(&self) -> GuardState {
        self.state.state()
    }

    /// When the lease is lost unless the store answers again; `None` if it is lost.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        let until = self.epoch().deadline();
        self.check().is_ok().then_some(until)
    }

    /// `Err` if the lock is lost. Loses the lease if it is over by now.
    pub(crate) fn check(&self) -> Result<(), LostError> {
        self.state.node.lose_if_over()
    }

    /// Completes when the lock is lost, never after a release. The future keeps nothing alive.
    pub(crate) fn lost(&self) -> impl Future<Output = LostError> + Send + use<> {
        self.state.lost()
    }

    /// Completes when the lock is requested, never after a release. The future keeps nothing alive.
    pub(crate) fn revocation_requested(&self) -> impl Future<Output = ()> + Send + use<> {
        self.state.revocation_requested()
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
            Ok(found) => self.state.node.observe(found.as_ref(), connection),
            Err(NodesError::SessionEnded) => drop(self.note_loss(self.epoch().ended().await)),
            Err(source) => return Err(unknown(source)),
        }
        Ok(self.check()?)
    }

    /// Whether the node can be granted again. Its watch proves that, or a read does.
    pub(crate) async fn vouch(&self) -> bool {
        let (epoch, node) = (self.epoch(), &self.state.node);
        let is_good = || self.state() == GuardState::Held && !*node.revoked.borrow();
        let connection = epoch.connection();
        if node.is_vouched_for(connection) {
            return is_good();
        }
        let Ok(nodes) = epoch.nodes() else {
            return false;
        };
        // The next holder needs a watch on the node.
        node.look_soon();
        let found = tokio::select! {
            biased;
            _ = self.lost() => return false,
            found = retry::persist(|| nodes.read(self.node_path())) => found,
        };
        match found {
            Ok(found) => node.observe(found.as_ref(), connection),
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

    /// Ends the lease. Only the first call has an effect. `None` if nothing is left to delete: others
    /// have the node, at the same time or next.
    pub(crate) fn retire(&self) -> Option<Deletion> {
        let (state, node) = (&self.state, &self.state.node);
        state.grant.released();
        if state.is_released.swap(true, Ordering::SeqCst) {
            return None;
        }
        if let Some(turn) = state.take_turn() {
            let is_untied = node.ties.load(Ordering::SeqCst) == 0;
            // The process that requested the lock waits until the node is deleted.
            let is_wanted = *node.revoked.borrow();
            // A node that no watch vouches for is read by its receiver.
            let is_good = is_untied && !is_wanted && self.state() == GuardState::Held;
            if is_good && turn.hands_on(self.fencing_token().handoff()) {
                // Before this lease leaves the node. If no contender of this process takes it, it ends here.
                let next = Self::on(node, &self.lock, self.fencing_token().handed_on());
                drop(next.and_then(|next| turn.hand_on(next)));
            }
        }
        if !state.leave() {
            return None;
        }
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
        self.state.node.ties.load(Ordering::SeqCst) > 0
    }

    /// Whether the metrics count it as held by an owner.
    pub(crate) fn is_measured(&self) -> bool {
        self.state.grant.is_running()
    }
}

#[cfg(test)]
mod tests;
