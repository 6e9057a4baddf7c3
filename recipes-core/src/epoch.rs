//! One ZooKeeper session: how long it can be relied upon, and which leases do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::armed::Stakes;
use crate::error::LostReason;
use crate::lease::LeaseState;
use crate::nodes::{NodeStat, NodeWatch, Nodes, NodesError};
use crate::sync::lock;

/// A deadline that never comes, for sessions that never expire by time; as far as tokio's own.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// State of the connection, as the keeper of the epoch saw it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Up; counts the connections of the session.
    Connected(u64),
    /// Down, the session may live.
    Disconnected,
    /// The session is over.
    Ended(LostReason),
}

/// Until when the session cannot have been expired by the ensemble.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validity {
    pub(crate) until: Instant,
    /// How often `until` had passed before it was extended. A lease from before such a lapse may
    /// have been granted to somebody else in between and stays lost.
    pub(crate) lapses: u64,
}

/// A lease that the keeper has not seen yet.
pub(crate) struct Arrival {
    pub(crate) id: u64,
    pub(crate) at: Instant,
    pub(crate) own_watch: Option<NodeWatch>,
}

/// One ZooKeeper session of a [`Session`](crate::Session).
pub(crate) struct Epoch {
    pub(crate) number: u64,
    pub(crate) session_id: i64,
    timeout: Option<Duration>,
    /// `None` once the session is closed: whoever still has the epoch must not keep it open.
    nodes: Mutex<Option<Arc<dyn Nodes>>>,
    validity: Mutex<Validity>,
    /// The keeper owns the sender; a closed channel means that it is gone with its runtime.
    link: watch::Receiver<Link>,
    leases: Mutex<BTreeMap<u64, Arc<LeaseState>>>,
    arrivals: Mutex<Vec<Arrival>>,
    next_id: AtomicU64,
    contenders: Mutex<BTreeMap<u64, Arc<Stakes>>>,
    /// Whether the keeper looks for arrivals by itself, so that most acquires need not wake it.
    is_attended: AtomicBool,
    leaves_numbers_out: AtomicBool,
    pub(crate) wake_keeper: Notify,
}

impl Epoch {
    /// An epoch whose session was being opened at `sent`.
    pub(crate) fn new(
        number: u64,
        nodes: Arc<dyn Nodes>,
        link: watch::Receiver<Link>,
        sent: Instant,
    ) -> Self {
        let timeout = nodes.session_timeout();
        let validity = Validity {
            until: sent + lease_time(timeout),
            lapses: 0,
        };
        Self {
            number,
            session_id: nodes.session(),
            timeout,
            nodes: Mutex::new(Some(nodes)),
            validity: Mutex::new(validity),
            link,
            leases: Mutex::default(),
            arrivals: Mutex::default(),
            next_id: AtomicU64::new(0),
            contenders: Mutex::default(),
            is_attended: AtomicBool::new(false),
            leaves_numbers_out: AtomicBool::new(false),
            wake_keeper: Notify::new(),
        }
    }

    /// The operations of the session, an error once it is closed.
    pub(crate) fn nodes(&self) -> Result<Arc<dyn Nodes>, NodesError> {
        lock(&self.nodes).clone().ok_or(NodesError::SessionEnded)
    }

    /// Gives up the session, which closes it once nothing uses it any more.
    pub(crate) fn take_nodes(&self) -> Option<Arc<dyn Nodes>> {
        lock(&self.nodes).take()
    }

    /// How often a heartbeat is due: every sixth of the session timeout, `None` for never.
    pub(crate) fn heartbeat_every(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout / 6)
    }

    pub(crate) fn link(&self) -> Link {
        let link = *self.link.borrow();
        match link {
            Link::Ended(_) => link,
            _ if self.link.has_changed().is_err() => Link::Ended(LostReason::SessionClosed),
            _ => link,
        }
    }

    /// Completes when the session is over.
    pub(crate) async fn ended(&self) -> LostReason {
        let mut link = self.link.clone();
        match link
            .wait_for(|link| matches!(link, Link::Ended(_)))
            .await
            .as_deref()
        {
            Ok(Link::Ended(reason)) => *reason,
            _ => LostReason::SessionClosed,
        }
    }

    /// Completes when the link is not `known` any more.
    pub(crate) async fn link_differs(&self, known: Link) {
        // An error means that the keeper is gone, which `link` tells.
        drop(self.link.clone().wait_for(|link| *link != known).await);
    }

    pub(crate) fn validity(&self) -> Validity {
        *lock(&self.validity)
    }

    /// Notes that the leader has taken a request of this session that was sent at `sent`.
    ///
    /// It counts from the sending, not from the reply: the ensemble may have touched the session
    /// any time after the sending.
    pub(crate) fn acknowledged(&self, sent: Instant) {
        let lapsed = {
            let mut validity = lock(&self.validity);
            let lapsed = validity.until <= Instant::now();
            if lapsed {
                validity.lapses += 1;
            }
            validity.until = validity.until.max(sent + lease_time(self.timeout));
            lapsed
        };
        if lapsed {
            self.wake_keeper.notify_one();
        }
    }

    /// Whether a server of this session was seen not to tell the number of a transaction.
    pub(crate) fn leaves_numbers_out(&self) -> bool {
        self.leaves_numbers_out.load(Ordering::Relaxed)
    }

    pub(crate) fn left_numbers_out(&self) {
        self.leaves_numbers_out.store(true, Ordering::Relaxed);
    }

    /// Waits until the lease's deadline lies ahead, with a heartbeat if need be.
    pub(crate) async fn confirm(&self, path: &str) -> Result<(), NodesError> {
        while self.validity().until <= Instant::now() {
            let sent = Instant::now();
            self.nodes()?.sync(path).await?;
            self.acknowledged(sent);
        }
        Ok(())
    }

    /// Counts a contender in, for as long as it keeps the result: the session is kept alive by
    /// heartbeats while anybody waits or holds.
    pub(crate) fn contend(self: &Arc<Self>, stakes: &Arc<Stakes>) -> Contending {
        let id = self.new_id();
        lock(&self.contenders).insert(id, Arc::clone(stakes));
        if !self.is_attended.load(Ordering::SeqCst) {
            self.wake_keeper.notify_one();
        }
        Contending {
            epoch: Arc::clone(self),
            id,
        }
    }

    /// What may exist of the attempts that are under way.
    pub(crate) fn stakes(&self) -> Vec<Arc<Stakes>> {
        lock(&self.contenders).values().cloned().collect()
    }

    /// Whether anybody waits or holds; if not, the next one will wake the keeper.
    pub(crate) fn attend(&self) -> bool {
        let is_in_use = || !lock(&self.contenders).is_empty() || !lock(&self.leases).is_empty();
        self.is_attended.store(true, Ordering::SeqCst);
        if is_in_use() {
            return true;
        }
        self.is_attended.store(false, Ordering::SeqCst);
        // Looked at once more, for who came before that and took the keeper for awake.
        is_in_use()
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a lease into the keeper's care, with the watch on its node if there is one already. To be
    /// called by a contender.
    pub(crate) fn register(&self, lease: &Arc<LeaseState>, own_watch: Option<NodeWatch>) {
        lock(&self.leases).insert(lease.id, Arc::clone(lease));
        let is_watched = own_watch.is_some();
        lock(&self.arrivals).push(Arrival {
            id: lease.id,
            at: Instant::now(),
            own_watch,
        });
        // Without a watch there is nothing to do before the keeper looks by itself.
        if is_watched {
            self.wake_keeper.notify_one();
        }
    }

    /// Puts another lease in the place of the one with its id, which is released; it goes on with
    /// the care for the node.
    pub(crate) fn replace(&self, lease: &Arc<LeaseState>) {
        lock(&self.leases).insert(lease.id, Arc::clone(lease));
    }

    pub(crate) fn deregister(&self, id: u64) {
        lock(&self.leases).remove(&id);
    }

    /// Tells a lease what the ensemble said about its node over the given connection.
    pub(crate) fn observe(
        &self,
        id: u64,
        found: Option<&(Vec<u8>, NodeStat)>,
        connection: Option<u64>,
    ) {
        let mut told: Option<Arc<LeaseState>> = None;
        // It may be replaced meanwhile, which ends with the last waiter for a hand-off.
        while let Some(lease) = self.lease(id) {
            if told.is_some_and(|told| Arc::ptr_eq(&told, &lease)) {
                return;
            }
            lease.observe(found, connection);
            told = Some(lease);
        }
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut lock(&self.arrivals))
    }

    pub(crate) fn lease(&self, id: u64) -> Option<Arc<LeaseState>> {
        lock(&self.leases).get(&id).cloned()
    }

    pub(crate) fn leases(&self) -> Vec<Arc<LeaseState>> {
        lock(&self.leases).values().cloned().collect()
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch")
            .field("number", &self.number)
            .field("session_id", &self.session_id)
            .field("link", &self.link())
            .finish_non_exhaustive()
    }
}

/// How long after the sending of an acknowledged request the session cannot have been expired.
///
/// Half the session timeout T. The leader learns of a follower's sessions only with its own pings,
/// up to half a tick late, at most T/4 unless `minSessionTimeout` is below its default of two ticks,
/// and the touch that it learns of may be one heartbeat (T/6) older than the last: it may expire the
/// session 7/12 T after that sending, not before.
fn lease_time(timeout: Option<Duration>) -> Duration {
    timeout.map_or(FOREVER, |timeout| timeout / 2)
}

/// A contender of an epoch; counts itself out when dropped.
#[derive(Debug)]
pub(crate) struct Contending {
    epoch: Arc<Epoch>,
    id: u64,
}

impl Drop for Contending {
    fn drop(&mut self) {
        let stakes = lock(&self.epoch.contenders).remove(&self.id);
        // Not under the lock: it may be the last reference to a lock path.
        drop(stakes);
    }
}
