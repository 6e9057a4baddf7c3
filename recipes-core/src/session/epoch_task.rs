//! Watches over one epoch: its link, its heartbeats and the nodes of its leases.

use std::collections::BTreeSet;
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
use crate::session::link::LinkSender;
use crate::session::own_watch::OwnWatch;
use crate::session::under_way::{next, output};
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

/// Data and stat of a lease's node, and the watch on it unless there is one.
type SeenNode = ((Vec<u8>, NodeStat), Option<OwnWatch>);

/// The id of a lease, the connection over which its node was read, and the answer.
type Looked = (u64, Option<u64>, Result<Option<SeenNode>, NodesError>);

/// Why an epoch is over.
pub(crate) enum Over {
    Session(EndReason),
    /// The store's transaction numbers went back.
    Forgot(Forgot),
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
    /// When to read own nodes: those that are not watched yet, and all of them after a reconnect.
    looks: CheckSchedule,
    lapses: u64,
    under_way: FuturesUnordered<BoxFuture<'static, Looked>>,
    own_watches: FuturesUnordered<BoxFuture<'static, (u64, NodeEvent)>>,
    /// The leases of `own_watches`, also those that were released and whose nodes are going away.
    followed: BTreeSet<u64>,
}

impl EpochTask {
    pub(crate) fn new(epoch: Arc<Epoch>, nodes: Arc<dyn Nodes>, link: watch::Sender<Link>) -> Self {
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
            followed: BTreeSet::new(),
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
                    Some(Connection::Disconnected) => self.link.disconnected(),
                    Some(Connection::Ended(reason)) => return Over::Session(reason),
                    None => return Over::Session(EndReason::Closed),
                },
                (id, event) = next(&mut self.own_watches) => self.own_node(id, event),
                looked = next(&mut self.under_way) => self.looked(looked),
                answer = output(&mut self.heartbeat) => self.answered(answer),
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
        let others = [loss_at, look_due_at, heartbeat_at];
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

    fn reconnected(&mut self) {
        self.link.connected();
        let now = Instant::now();
        self.beat_after = now;
        for lease in self.epoch.leases() {
            self.looks.schedule(lease.id(), now);
        }
    }

    fn take_arrivals(&mut self) {
        for Arrival { id, at, own_watch } in self.epoch.arrivals() {
            match own_watch {
                // Also if it is released already: removing the watch would cost a request.
                Some(own_watch) => self.follow(id, own_watch),
                None if self.epoch.lease(id).is_some() => {
                    let at = at.map_or_else(Instant::now, |at| at + OWN_WATCH_GRACE);
                    self.looks.schedule(id, at);
                }
                None => {}
            }
        }
    }

    /// Reads whether a lease's node exists and is ours, and watches it.
    fn look_at(&mut self, id: u64) {
        let Some(lease) = self.epoch.lease(id) else {
            return;
        };
        if let Some(at) = self.refusals.postponed(lease.lock_path(), Instant::now()) {
            return self.looks.schedule(id, at);
        }
        let (nodes, connection) = (Arc::clone(&self.nodes), self.epoch.connection());
        // A watch survives reconnects.
        let is_followed = self.followed.contains(&id);
        let look = async move {
            let path = lease.node_path();
            let found = if is_followed {
                let read = nodes.read(path).await;
                read.map(|found| found.map(|read| (read, None)))
            } else {
                let watched = nodes.watch(path).await;
                watched.map(|found| {
                    found.map(|(data, stat, it)| ((data, stat), Some(OwnWatch::new(it))))
                })
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
                if let Some(own_watch) = own_watch {
                    lease.care().watch(Some(own_watch.clone()));
                    self.follow(id, own_watch);
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

    fn follow(&mut self, id: u64, own_watch: OwnWatch) {
        if self.followed.insert(id) {
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
