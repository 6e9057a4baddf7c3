//! One store session of a [`Session`](crate::Session): how long it can be trusted, and the
//! leases that depend on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clock::{Clock, Moment};
use crate::error::LostReason;
use crate::rules::evidence::{Evidence, Proof};
use crate::session::connections::Connections;
use crate::session::free_uuids::FreeUuids;
use crate::session::leftovers::Leftovers;
use crate::session::own_watch::OwnWatch;
use crate::session::silence::Silence;
use crate::session::tenant::Tenant;
use crate::session::witness::{HighestNumber, Ledger, Witness};
use crate::store::Traits;
use crate::store::nodes::{NodeStat, Nodes, NodesError, Reliant};
use crate::sync::{AtomicBool, Mutex, lock};

/// A deadline that never comes, as far away as tokio's own. For sessions that have no timeout.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// State of the connection, as the epoch's task last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Up; counts the session's connections.
    Connected(u64),
    /// Down; the session may still be alive.
    Disconnected,
    /// The session is over.
    Ended(LostReason),
}

/// A lease for the epoch task to take care of.
pub(crate) struct Arrival {
    pub(crate) id: u64,
    /// When the lease came; `None` if the epoch task must look now.
    pub(crate) at: Option<Instant>,
    pub(crate) own_watch: Option<OwnWatch>,
}

/// The store's transaction numbers went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgot {
    /// The highest number that the session had seen.
    pub(crate) seen: i64,
    /// The lower number of a later transaction.
    pub(crate) now: i64,
}

/// What an epoch gets from its session.
pub(crate) struct Origin {
    pub(crate) clock: Clock,
    pub(crate) highest: Arc<HighestNumber>,
    pub(crate) traits: Traits,
}

/// One store session of a [`Session`](crate::Session).
pub(crate) struct Epoch {
    pub(crate) number: u64,
    pub(crate) session_id: i64,
    ledger: Arc<Ledger>,
    connections: Connections,
    forgot: OnceLock<Forgot>,
    /// `None` once the session is closed, so that references to the epoch do not keep it open.
    nodes: Mutex<Option<Arc<dyn Nodes>>>,
    /// The epoch task owns the sender. A closed channel means that it is gone with its runtime.
    link: watch::Receiver<Link>,
    leases: Mutex<BTreeMap<u64, Arc<dyn Tenant>>>,
    arrivals: Mutex<Vec<Arrival>>,
    next_id: AtomicU64,
    contenders: Mutex<BTreeMap<u64, Arc<Leftovers>>>,
    pub(crate) free_uuids: FreeUuids,
    /// Whether the epoch task looks for arrivals by itself, so that most acquires need not wake it.
    is_attended: AtomicBool,
    leaves_numbers_out: AtomicBool,
    /// The service has closed the session, so the losses that follow are what it wants.
    is_closed_by_us: AtomicBool,
    pub(crate) wake_task: Arc<Notify>,
}

impl Epoch {
    /// An epoch whose session was requested at `sent`.
    pub(crate) fn new(
        number: u64,
        nodes: Arc<dyn Nodes>,
        link: watch::Receiver<Link>,
        origin: Origin,
        sent: Moment,
    ) -> Self {
        let timeout = nodes.session_timeout();
        let wake_task = Arc::new(Notify::new());
        let ledger = Arc::new(Ledger {
            clock: origin.clock,
            evidence: Mutex::new(Evidence::new(timeout, origin.traits.pings_rarely, sent)),
            silence: Mutex::default(),
            highest: origin.highest,
            lapsed: Arc::clone(&wake_task),
        });
        let connections = Connections::of(&*nodes);
        let nodes: Arc<dyn Nodes> = Arc::new(Witness::new(nodes, Arc::clone(&ledger)));
        Self {
            number,
            session_id: nodes.session(),
            ledger,
            connections,
            forgot: OnceLock::new(),
            nodes: Mutex::new(Some(nodes)),
            link,
            leases: Mutex::default(),
            arrivals: Mutex::default(),
            next_id: AtomicU64::new(0),
            contenders: Mutex::default(),
            free_uuids: FreeUuids::new(origin.traits.remembers_names),
            is_attended: AtomicBool::new(false),
            leaves_numbers_out: AtomicBool::new(false),
            is_closed_by_us: AtomicBool::new(false),
            wake_task,
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

    /// When a heartbeat is due by tokio's clock, and what it has to prove.
    pub(crate) fn next_beat(&self) -> Option<(Instant, Proof)> {
        let now = self.ledger.clock.now();
        let (at, proof) = lock(&self.ledger.evidence).next_beat(now)?;
        Some((self.ledger.clock.timer(at), proof))
    }

    /// The number of the connection, `None` while there is none.
    pub(crate) fn connection(&self) -> Option<u64> {
        self.connections.current()
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

    /// Yields an item soon after the connection is lost or replaced.
    pub(crate) fn link_changes(&self) -> BoxStream<'static, ()> {
        let changes = stream::unfold(self.link.clone(), async |mut link| {
            link.changed().await.ok()?;
            Some(((), link))
        });
        changes.fuse().boxed()
    }

    /// Completes when the link differs from `known`.
    pub(crate) async fn link_differs(&self, known: Link) {
        // An error means that the epoch task is gone, which `link` reports.
        drop(self.link.clone().wait_for(|link| *link != known).await);
    }

    /// How many times the deadline passed before it was extended. In such a lapse the lock may have
    /// been granted to another contender, so a lease from before it stays lost.
    pub(crate) fn lapses(&self) -> u64 {
        lock(&self.ledger.evidence).lapses()
    }

    /// Whether a lock granted after this many lapses cannot have gone to another contender by now.
    pub(crate) fn is_good(&self, lapses: u64) -> bool {
        let now = self.ledger.clock.now();
        let evidence = lock(&self.ledger.evidence);
        evidence.lapses() == lapses && !evidence.is_over(now)
    }

    /// When the leases end if no further answer arrives, by tokio's clock.
    pub(crate) fn deadline(&self) -> Instant {
        match lock(&self.ledger.evidence).until() {
            Some(until) => self.ledger.clock.timer(until),
            None => Instant::now() + FOREVER,
        }
    }

    /// Notes that the connection is lost, for [`silence`](Self::silence); false if that is known.
    pub(crate) fn cut_off(&self) -> bool {
        lock(&self.ledger.silence).cut_off(Instant::now())
    }

    /// Notes that a server accepted the session on a new connection. Returns how long there was
    /// none, if it was lost before.
    pub(crate) fn connected(&self) -> Option<Duration> {
        lock(&self.ledger.silence).connected(Instant::now())
    }

    /// Notes that a heartbeat is sent.
    pub(crate) fn beat(&self) {
        lock(&self.ledger.silence).beat(Instant::now());
    }

    /// Notes that the heartbeat is over.
    pub(crate) fn beat_ended(&self) {
        lock(&self.ledger.silence).beat_ended();
    }

    /// Since when the store does not answer.
    pub(crate) fn silence(&self) -> Silence {
        lock(&self.ledger.silence).clone()
    }

    /// For how long the store grants nothing.
    pub(crate) fn quarantined(&self) -> Option<Duration> {
        let over = self.nodes().ok()?.grants_from()?;
        let left = over.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// The highest transaction number that the session has seen.
    pub(crate) fn highest_number(&self) -> i64 {
        self.ledger.highest.get()
    }

    /// Notes that the store's numbers went back, which ends the session.
    pub(crate) fn note_forgot(&self, forgot: Forgot) {
        self.forgot.get_or_init(|| forgot);
        self.wake_task.notify_one();
    }

    pub(crate) fn forgot(&self) -> Option<Forgot> {
        self.forgot.get().copied()
    }

    /// Whether a server of this session has left out the number of a transaction.
    pub(crate) fn leaves_numbers_out(&self) -> bool {
        self.leaves_numbers_out.load(Ordering::Relaxed)
    }

    pub(crate) fn left_numbers_out(&self) {
        self.leaves_numbers_out.store(true, Ordering::Relaxed);
    }

    /// Notes that the service closes the session; before the link ends.
    pub(crate) fn note_close(&self) {
        self.is_closed_by_us.store(true, Ordering::SeqCst);
    }

    /// Whether a loss for this reason is what the service has asked for.
    pub(crate) fn is_wanted(&self, reason: LostReason) -> bool {
        reason == LostReason::SessionClosed && self.is_closed_by_us.load(Ordering::SeqCst)
    }

    /// Counts a contender in, for as long as it keeps the result. While any contender waits or
    /// holds, heartbeats keep the session alive.
    pub(crate) fn contend(self: &Arc<Self>, leftovers: &Arc<Leftovers>) -> InUse {
        let id = self.new_id();
        lock(&self.contenders).insert(id, Arc::clone(leftovers));
        if !self.is_attended.load(Ordering::SeqCst) {
            self.wake_task.notify_one();
        }
        InUse {
            epoch: Arc::clone(self),
            id,
        }
    }

    /// The nodes that may exist of attempts in progress.
    pub(crate) fn leftovers(&self) -> Vec<Arc<Leftovers>> {
        lock(&self.contenders).values().cloned().collect()
    }

    /// Whether any contender waits or holds. If not, the next one wakes the epoch task.
    pub(crate) fn attend(&self) -> bool {
        let is_in_use = || !lock(&self.contenders).is_empty() || !lock(&self.leases).is_empty();
        self.is_attended.store(true, Ordering::SeqCst);
        if is_in_use() {
            return true;
        }
        self.is_attended.store(false, Ordering::SeqCst);
        // Check again: a contender may have seen `is_attended` still true and not woken the task.
        is_in_use()
    }

    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a lease to the epoch task, with the watch on its node if there is one already. The
    /// caller must count as a contender, so that the epoch task is awake.
    pub(crate) fn register(&self, lease: Arc<dyn Tenant>, own_watch: Option<OwnWatch>) {
        let id = lease.id();
        lock(&self.leases).insert(id, lease);
        let is_watched = own_watch.is_some();
        lock(&self.arrivals).push(Arrival {
            id,
            at: Some(Instant::now()),
            own_watch,
        });
        // Without a watch nothing is due before the epoch task's next look.
        if is_watched {
            self.wake_task.notify_one();
        }
    }

    /// Makes the epoch task look at a lease's node now, and watch it.
    pub(crate) fn look_soon(&self, id: u64) {
        lock(&self.arrivals).push(Arrival {
            id,
            at: None,
            own_watch: None,
        });
        self.wake_task.notify_one();
    }

    pub(crate) fn deregister(&self, id: u64) {
        lock(&self.leases).remove(&id);
    }

    /// Passes to a lease what was read of its node over the given connection; `None` if it is gone.
    pub(crate) fn observe(
        &self,
        id: u64,
        found: Option<&(Vec<u8>, NodeStat)>,
        connection: Option<u64>,
    ) {
        if let Some(lease) = self.lease(id) {
            lease.observe(found, connection);
        }
    }

    /// Lets the store say that the session has less time.
    pub(crate) fn rely(self: &Arc<Self>) {
        if let Ok(nodes) = self.nodes() {
            let epoch: Weak<dyn Reliant> = Arc::downgrade(self) as _;
            nodes.relied_on_by(epoch);
        }
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut lock(&self.arrivals))
    }

    pub(crate) fn lease(&self, id: u64) -> Option<Arc<dyn Tenant>> {
        lock(&self.leases).get(&id).cloned()
    }

    pub(crate) fn leases(&self) -> Vec<Arc<dyn Tenant>> {
        lock(&self.leases).values().cloned().collect()
    }
}

impl Reliant for Epoch {
    fn is_held(&self) -> bool {
        !lock(&self.leases).is_empty()
    }

    fn shortened(&self, timeout: Duration) {
        let now = self.ledger.clock.now();
        lock(&self.ledger.evidence).shortened(timeout, now);
        // Its timers are for the time before.
        self.wake_task.notify_one();
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

/// A contender of an epoch. It counts itself out when dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    epoch: Arc<Epoch>,
    id: u64,
}

impl Drop for InUse {
    fn drop(&mut self) {
        let leftovers = lock(&self.epoch.contenders).remove(&self.id);
        // Not under the mutex, because it may be the last reference to a lock path.
        drop(leftovers);
    }
}

#[cfg(test)]
mod tests;
