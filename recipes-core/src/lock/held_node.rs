//! A node of ours that was granted: what its session watches over.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::error::{LostError, LostReason};
use crate::lock::lease_state::{GuardState, LeaseState};
use crate::lock::revocation;
use crate::log::LOCK;
use crate::names::token::FencingToken;
use crate::session::epoch::{Epoch, Link};
use crate::session::own_watch::{Care, OwnWatch};
use crate::session::tenant::Tenant;
use crate::store::nodes::NodeStat;
use crate::sync::{AtomicU32, Mutex, lock};

/// What is known of a node when it is granted.
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

/// A node that is held. Several leases may share it, at one time or one after the other.
#[derive(Debug)]
pub(crate) struct HeldNode {
    id: u64,
    pub(crate) lock_path: Arc<str>,
    pub(crate) path: String,
    pub(super) czxid: i64,
    pub(super) was_alone: bool,
    pub(super) epoch: Arc<Epoch>,
    lapses: u64,
    care: Care,
    /// Why it is lost, first of all.
    lost: Mutex<Option<LostReason>>,
    /// True once a request to give the node up was seen.
    pub(super) revoked: watch::Sender<bool>,
    /// Counts what may continue after the release: readers of the owner next to the node, and
    /// transactions without an answer. While there are any, the node must be deleted before another
    /// contender holds the lock.
    pub(super) ties: AtomicU32,
    /// The leases that share it. `None` once the last one has ended.
    leases: Mutex<Option<BTreeMap<u64, Weak<LeaseState>>>>,
}

impl HeldNode {
    /// The first lease on a node that was granted in this epoch. From now on the epoch task takes care of
    /// the node.
    pub(super) fn granted(
        epoch: &Arc<Epoch>,
        lock_path: &Arc<str>,
        made: MadeNode,
        basis: LeaseBasis,
    ) -> Arc<LeaseState> {
        let LeaseBasis {
            connection,
            lapses,
            own_watch,
        } = basis;
        let node = Arc::new(Self {
            id: epoch.new_id(),
            lock_path: Arc::clone(lock_path),
            path: made.path,
            czxid: made.czxid,
            was_alone: made.was_alone,
            epoch: Arc::clone(epoch),
            lapses,
            care: Care::new(connection, own_watch.clone()),
            lost: Mutex::default(),
            revoked: watch::Sender::new(false),
            ties: AtomicU32::new(0),
            leases: Mutex::default(),
        });
        if made.is_revoked {
            node.revoke();
        }
        let lease = node.enter(
            lock(&node.leases).insert(BTreeMap::new()),
            made.fencing_token,
        );
        epoch.register(Arc::clone(&node) as Arc<dyn Tenant>, own_watch);
        lease
    }

    fn enter(
        self: &Arc<Self>,
        leases: &mut BTreeMap<u64, Weak<LeaseState>>,
        token: FencingToken,
    ) -> Arc<LeaseState> {
        let number = leases.last_key_value().map_or(0, |(last, _)| last + 1);
        let lease = Arc::new(LeaseState::new(self, number, token));
        leases.insert(number, Arc::downgrade(&lease));
        lease
    }

    /// Another lease on the node. `None` if the last one has ended: the node is being deleted.
    pub(super) fn join(self: &Arc<Self>, token: FencingToken) -> Option<Arc<LeaseState>> {
        let lease = {
            let mut leases = lock(&self.leases);
            self.enter(leases.as_mut()?, token)
        };
        // Those that are on the node when it is lost are told. This one may have come in that moment.
        if let Some(reason) = self.known_reason() {
            lease.note_lost(reason);
        }
        Some(lease)
    }

    fn known_reason(&self) -> Option<LostReason> {
        *lock(&self.lost)
    }

    /// Takes a lease away that has ended. True if it was the last: the node is to be deleted.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut leases = lock(&self.leases);
        let is_last = leases.as_mut().is_some_and(|it| {
            it.remove(&number);
            it.is_empty()
        });
        if is_last {
            *leases = None;
            self.epoch.deregister(self.id);
        }
        is_last
    }

    /// The leases that share the node.
    fn leases(&self) -> Vec<Arc<LeaseState>> {
        let leases = lock(&self.leases);
        let leases = leases.iter().flat_map(BTreeMap::values);
        leases.filter_map(Weak::upgrade).collect()
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
        if let Some(first) = self.known_reason() {
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

    /// Whether the node can be granted without a request: no news of this connection speaks against it.
    pub(super) fn is_vouched_for(&self, connection: Option<u64>) -> bool {
        connection.is_some_and(|it| self.care.vouches(it))
    }

    /// Makes the epoch task watch the node, if it does not yet.
    pub(super) fn look_soon(&self) {
        self.epoch.look_soon(self.id);
    }

    fn log_loss(&self, reason: LostReason) {
        let (lock, node) = (&self.lock_path, &self.path);
        // A service that closes its session knows that its guards go with it.
        if self.epoch.is_wanted(reason) {
            debug!(target: LOCK, %lock, %node, %reason, "lock given up with its session");
        } else {
            warn!(target: LOCK, %lock, %node, %reason, "lock lost");
        }
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
                lock = %self.lock_path, node = %self.path, "asked to give the lock up"
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

impl Tenant for HeldNode {
    fn id(&self) -> u64 {
        self.id
    }

    fn node_path(&self) -> &str {
        &self.path
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
        let (is_first, reason) = {
            let mut lost = lock(&self.lost);
            (lost.is_none(), *lost.get_or_insert(first))
        };
        if is_first {
            self.log_loss(reason);
        }
        for lease in self.leases() {
            lease.note_lost(reason);
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
