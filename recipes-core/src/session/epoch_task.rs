//! Watches over one epoch: its link, its heartbeats and the nodes of its leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::error::LostReason;
use crate::log::SESSION;
use crate::rules::evidence::{BEATS, Proof};
use crate::session::check_schedule::{CheckSchedule, Refusals};
use crate::session::epoch::{Arrival, Epoch, Forgot, Link};
use crate::session::inquiry::{Inquiry, Seen};
use crate::session::link::LinkSender;
use crate::session::own_watch::OwnWatch;
use crate::session::under_way::{next, output};
use crate::session::watch_budget::{WatchBudget, WatchPermit};
use crate::store::nodes::{Connection, EndReason, NodeEvent, NodeStat, Nodes, NodesError, commit};

/// A lease that is released within this time costs no watch on its own node. If an operator removes
/// the node in that time, we notice up to this much later. The next contender is granted the lock
/// at once, whatever we do.
const OWN_WATCH_GRACE: Duration = Duration::from_millis(250);

/// Pause after a heartbeat that failed.
const BEAT_PAUSE: Duration = Duration::from_millis(100);

/// Looks in flight at a time. Any other request of the session may have to wait for this many
/// reads. A server makes its clients wait only beyond a thousand requests.
const LOOKS_MAX: usize = 256;

/// An attempt that has not noticed the close of its session within this time is not polled.
pub(crate) const UNPOLLED_GRACE: Duration = Duration::from_millis(100);

/// Upper bound of a pause with nothing to do; any length is fine.
const IDLE: Duration = Duration::from_secs(3600);

/// Data and stat of a lease's node, and the watch on it if the budget allowed one.
type Found = ((Vec<u8>, NodeStat), Option<(OwnWatch, WatchPermit)>);

/// The id of a lease, the connection over which its node was read, and the answer.
type Looked = (u64, Option<u64>, Result<Option<Found>, NodesError>);

/// Why an epoch is over.
pub(crate) enum Over {
    Session(EndReason),
    /// The store's transaction numbers went back.
    Forgot(Forgot),
    /// The store may end the session earlier than the leases count on.
    Shortened(Shortened),
}

/// A server may have granted the session less time at a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortened {
    /// The session timeout that the leases count on.
    pub(crate) counted: Duration,
    /// What the store grants now.
    pub(crate) granted: Duration,
}

/// Watches over one epoch.
pub(crate) struct EpochTask {
    epoch: Arc<Epoch>,
    nodes: Arc<dyn Nodes>,
    link: LinkSender,
    heartbeat: Option<BoxFuture<'static, Result<(), NodesError>>>,
    /// No heartbeat before this time: one has just failed, or new contenders send requests anyway.
    beat_after: Instant,
    is_in_use: bool,
    refusals: Refusals,
    /// When to read own nodes: unwatched ones periodically, all of them after a reconnect.
    looks: CheckSchedule,
    lapses: u64,
    under_way: FuturesUnordered<BoxFuture<'static, Looked>>,
    own_watches: FuturesUnordered<BoxFuture<'static, (u64, NodeEvent)>>,
    /// The leases of `own_watches`. `None` if the lease was released and its node is going away.
    followed: BTreeMap<u64, Option<WatchPermit>>,
    budget: WatchBudget,
    inquiry: Inquiry,
    /// What the store grants since the last reconnect, until that is known.
    granted: Option<BoxFuture<'static, Option<Duration>>>,
}

impl EpochTask {
    pub(crate) fn new(epoch: Arc<Epoch>, nodes: Arc<dyn Nodes>, link: watch::Sender<Link>) -> Self {
        let budget = WatchBudget::of_holders(&epoch.traits);
        Self {
            link: LinkSender::new(Arc::clone(&epoch), link),
            epoch,
            nodes,
            heartbeat: None,
            beat_after: Instant::now(),
            is_in_use: false,
            refusals: Refusals::default(),
            looks: CheckSchedule::default(),
            lapses: 0,
            under_way: FuturesUnordered::new(),
            own_watches: FuturesUnordered::new(),
            followed: BTreeMap::new(),
            budget,
            inquiry: Inquiry::default(),
            granted: None,
        }
    }

    /// Runs until the session ends.
    pub(crate) async fn run(&mut self) -> Over {
        let mut connection = self.nodes.connection();
        loop {
            if let Some(forgot) = self.epoch.forgot() {
                return Over::Forgot(forgot);
            }
            let timer_at = self.plan();
            let epoch = Arc::clone(&self.epoch);
            tokio::select! {
                biased;
                change = connection.next() => match change {
                    Some(Connection::Connected) => self.reconnected(),
                    Some(Connection::Disconnected) => self.disconnected(),
                    Some(Connection::Ended(reason)) => return Over::Session(reason),
                    None => return Over::Session(EndReason::Closed),
                },
                (id, event) = next(&mut self.own_watches) => self.own_node(id, event),
                looked = next(&mut self.under_way) => self.looked(looked),
                answer = output(&mut self.heartbeat) => self.answered(answer),
                seen = self.inquiry.answer() => self.seen_by_others(seen),
                granted = output(&mut self.granted) => {
                    if let Some(shortened) = self.shortened(granted) {
                        return Over::Shortened(shortened);
                    }
                }
                () = epoch.wake_task.notified() => {}
                () = tokio::time::sleep_until(timer_at) => {}
            }
        }
    }

    /// Does what is due, and returns when something is due next.
    fn plan(&mut self) -> Instant {
        let now = Instant::now();
        let is_in_use = self.epoch.attend();
        let was_in_use = std::mem::replace(&mut self.is_in_use, is_in_use);
        if !is_in_use {
            // Drops looks at ended leases, before new arrivals are scheduled.
            self.looks = CheckSchedule::default();
        }
        self.take_arrivals();
        if !self.epoch.is_good(self.lapses) {
            self.lapses = self.epoch.lapses();
            for lease in self.epoch.leases() {
                // The lease itself reports it.
                drop(lease.lose_if_over());
            }
        }
        while self.under_way.len() < LOOKS_MAX {
            let Some(id) = self.looks.take_due(now) else {
                break;
            };
            self.look_at(id);
        }
        if !is_in_use {
            return now + IDLE;
        }
        if !was_in_use {
            // A new contender sends requests of its own.
            let timeout = self.nodes.session_timeout().unwrap_or_default();
            self.beat_after = self.beat_after.max(now + timeout / BEATS);
        }
        let heartbeat_at = self.beat(now);
        let loss_at = Some(self.epoch.deadline()).filter(|until| *until > now);
        // A look that is due already waits until one in flight ends.
        let look_due_at = self.looks.next_at().filter(|at| *at > now);
        // Soon enough to schedule a lease that arrives from now on before its grace is over.
        let look_at = now + OWN_WATCH_GRACE;
        let ask_at = self.inquiry.ask(now, &self.epoch, &*self.nodes);
        let others = [loss_at, look_due_at, heartbeat_at, ask_at];
        let others = others.into_iter().flatten();
        others.fold(look_at, Instant::min)
    }

    /// Sends a heartbeat if one is due. Returns when the next one is due, unless one is in flight.
    fn beat(&mut self, now: Instant) -> Option<Instant> {
        if self.heartbeat.is_some() {
            return None;
        }
        let (at, proof) = self.epoch.next_beat()?;
        let at = at.max(self.beat_after);
        if at > now {
            return Some(at);
        }
        let nodes = Arc::clone(&self.nodes);
        self.heartbeat = Some(match proof {
            Proof::Leader => Box::pin(async move { nodes.sync("/").await }),
            Proof::Quorum => Box::pin(async move { commit(&*nodes, "/").await }),
        });
        self.epoch.beat();
        None
    }

    fn answered(&mut self, answer: Result<(), NodesError>) {
        self.epoch.beat_ended();
        // The epoch's ledger has recorded the answer. If none gets through, the leases end by their
        // deadline.
        if let Err(error) = answer {
            debug!(target: SESSION, %error, "heartbeat failed");
            self.beat_after = Instant::now() + BEAT_PAUSE;
        }
    }

    fn disconnected(&mut self) {
        self.link.disconnected();
        if let Some(timeout) = self.nodes.session_timeout() {
            self.inquiry.disconnected(timeout);
        }
    }

    /// Ends the leases whose nodes the store does not have any more.
    fn seen_by_others(&mut self, seen: Seen) {
        for (id, is_seen) in seen {
            if !is_seen {
                self.epoch.observe(id, None, None);
            }
        }
    }

    fn reconnected(&mut self) {
        self.inquiry = Inquiry::default();
        self.granted = Some(Box::pin(granted(Arc::clone(&self.nodes))));
        self.nodes.reconnected();
        self.link.connected();
        let now = Instant::now();
        self.beat_after = now;
        for lease in self.epoch.leases() {
            self.looks.schedule(lease.id(), now);
        }
    }

    /// Whether the store may end the session before its deadline.
    fn shortened(&self, granted: Option<Duration>) -> Option<Shortened> {
        let (counted, granted) = (self.nodes.session_timeout()?, granted?);
        (granted < counted).then_some(Shortened { counted, granted })
    }

    fn take_arrivals(&mut self) {
        for Arrival { id, at, own_watch } in self.epoch.arrivals() {
            match own_watch {
                Some(own_watch) => self.arrived(id, own_watch),
                None if self.epoch.lease(id).is_some() => {
                    let at = at.map_or_else(Instant::now, |at| at + OWN_WATCH_GRACE);
                    self.looks.schedule(id, at);
                }
                None => {}
            }
        }
    }

    /// Takes over the watch of a node that has waited.
    fn arrived(&mut self, id: u64, own_watch: OwnWatch) {
        let Some(lease) = self.epoch.lease(id) else {
            // Released already. Removing the watch would cost a request, keeping it does not.
            return self.follow(id, own_watch, None);
        };
        match self.permit(lease.node_path()) {
            Some(permit) => {
                own_watch.leave_room();
                self.follow(id, own_watch, Some(permit));
            }
            // The watch may have fired, and it is dropped here.
            None => {
                lease.care().watch(None);
                self.looks.schedule(id, Instant::now());
            }
        }
    }

    fn permit(&self, path: &str) -> Option<WatchPermit> {
        self.budget.take(path)
    }

    /// Reads whether a lease's node exists and is ours, and watches it if the budget allows.
    fn look_at(&mut self, id: u64) {
        let Some(lease) = self.epoch.lease(id) else {
            return;
        };
        if let Some(at) = self.refusals.postponed(lease.lock_path(), Instant::now()) {
            return self.looks.schedule(id, at);
        }
        let (nodes, connection) = (Arc::clone(&self.nodes), self.epoch.connection());
        // A watch survives reconnects.
        let is_followed = self.followed.contains_key(&id);
        let permit = match is_followed {
            true => None,
            false => self.permit(lease.node_path()),
        };
        let look = async move {
            let path = lease.node_path();
            let found = if let Some(permit) = permit {
                let watched = nodes.watch(path).await;
                watched.map(|found| {
                    found.map(|(data, stat, it)| ((data, stat), Some((OwnWatch::new(it), permit))))
                })
            } else {
                let read = nodes.read(path).await;
                read.map(|found| found.map(|read| (read, None)))
            };
            (id, connection, found)
        };
        self.under_way.push(Box::pin(look));
    }

    fn looked(&mut self, (id, connection, found): Looked) {
        let Some(lease) = self.epoch.lease(id) else {
            return;
        };
        let now = Instant::now();
        match found {
            Ok(Some((read, own_watch))) => {
                self.epoch.observe(id, Some(&read), connection);
                self.refusals.answered(lease.lock_path(), now);
                match own_watch {
                    Some((own_watch, permit)) => {
                        lease.care().watch(Some(own_watch.clone()));
                        self.follow(id, own_watch, Some(permit));
                    }
                    None if self.followed.contains_key(&id) => {}
                    None => self.looks.schedule_next(id, now),
                }
            }
            Ok(None) => self.epoch.observe(id, None, None),
            Err(error) if error.is_lasting() => {
                if self.refusals.refused(lease.lock_path(), now) {
                    warn!(
                        target: SESSION,
                        node = %lease.node_path(),
                        %error,
                        "own lock node may not be read: if it is removed, or the lock is asked \
                         for, this is noticed only when the session ends"
                    );
                }
                // At the time that its lock's refusals allow.
                self.looks.schedule(id, now);
            }
            Err(error) => {
                debug!(target: SESSION, node = %lease.node_path(), %error, "own node not seen yet");
                self.looks.schedule(id, now + OWN_WATCH_GRACE);
            }
        }
    }

    fn follow(&mut self, id: u64, own_watch: OwnWatch, permit: Option<WatchPermit>) {
        if self.followed.insert(id, permit).is_none() {
            self.own_watches
                .push(Box::pin(async move { (id, own_watch.event().await) }));
        }
    }

    fn own_node(&mut self, id: u64, event: NodeEvent) {
        self.followed.remove(&id);
        if let Some(lease) = self.epoch.lease(id) {
            lease.care().watch(None);
        }
        match event {
            NodeEvent::Deleted | NodeEvent::DeletedAsFirst => self.epoch.observe(id, None, None),
            // For example a request to give the lock up: still ours, so read and watch it again.
            NodeEvent::Changed => self.look_at(id),
            // The connection reports this.
            NodeEvent::SessionEnded => {}
        }
    }

    pub(crate) fn end(&self, reason: LostReason) -> Link {
        self.link.end(reason)
    }

    /// Completes with the end of the session.
    pub(crate) fn session_over(&self) -> impl Future<Output = ()> + use<> {
        session_over(self.nodes.connection())
    }

    /// Waits until the session is closed, so that its nodes are gone.
    pub(crate) async fn closed(self, patience: Duration) {
        let (connection, others) = (self.nodes.connection(), Arc::downgrade(&self.nodes));
        drop(self);
        let over = async {
            while others.strong_count() > 0 {
                tokio::time::sleep(UNPOLLED_GRACE / 20).await;
            }
            session_over(connection).await;
        };
        let unused = async {
            tokio::time::sleep(UNPOLLED_GRACE).await;
            if others.strong_count() == 0 {
                tokio::time::sleep(patience).await;
            }
        };
        tokio::select! {
            biased;
            () = over => {}
            // An acquire that is not polled keeps the client. The nodes that it made are deleted.
            () = unused => warn!(
                target: SESSION,
                "session not closed in time; it goes with the last acquire"
            ),
        }
    }
}

/// The session timeout that the store grants now. It is asked until it answers, the session is over, or the
/// connection is another.
async fn granted(nodes: Arc<dyn Nodes>) -> Option<Duration> {
    let timeout = nodes.session_timeout()?;
    loop {
        match nodes.granted().await {
            Ok(granted) => return granted,
            Err(error) => {
                debug!(target: SESSION, %error, "what the store grants is not known yet");
                tokio::time::sleep(timeout / BEATS).await;
            }
        }
    }
}

/// Waits for the end of a session.
async fn session_over(mut connection: BoxStream<'static, Connection>) {
    while let Some(change) = connection.next().await {
        if let Connection::Ended(_) = change {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
