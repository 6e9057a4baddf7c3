//! The background task of a session: opens ZooKeeper sessions one after the other, keeps the
//! present one alive while it is needed, and tells its leases when they are lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::backend::Backend;
use crate::cleanup::{Cleanup, Target};
use crate::epoch::{Epoch, Link};
use crate::error::LostReason;
use crate::nodes::{Connection, EndReason, NodeEvent, NodeStat, NodeWatch, Nodes, NodesError};
use crate::retry::Backoff;
use crate::session::Phase;

/// A lease that is released within this time costs no watch on its own node. A removal by an
/// operator in that time is noticed that much later; it grants to the next contender at once
/// whatever we do.
const OWN_WATCH_GRACE: Duration = Duration::from_millis(250);

/// Upper bound of a pause with nothing to do; any length would do.
const IDLE: Duration = Duration::from_secs(3600);

pub(crate) struct Keeper {
    backend: Arc<dyn Backend>,
    phase: watch::Sender<Phase>,
    /// True when the session is to be closed; its end when nobody uses the session any more.
    close: watch::Receiver<bool>,
    cleanup: Cleanup,
    close_patience: Duration,
}

impl Keeper {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        phase: watch::Sender<Phase>,
        close: watch::Receiver<bool>,
        cleanup: Cleanup,
        close_patience: Duration,
    ) -> Self {
        Self {
            backend,
            phase,
            close,
            cleanup,
            close_patience,
        }
    }

    /// Serves the session until it is closed, unused or cannot be opened.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::default();
        for number in 1.. {
            let opened = loop {
                let sent = Instant::now();
                let opened = tokio::select! {
                    biased;
                    () = closed(&mut self.close) => break Err(Phase::Closed),
                    opened = self.backend.connect() => opened,
                };
                match opened {
                    Ok(nodes) => break Ok((nodes, sent)),
                    Err(error) if error.is_transient() => {
                        warn!(%error, "no ZooKeeper session yet");
                        backoff.wait().await;
                    }
                    Err(error) => break Err(Phase::Ended(error)),
                }
            };
            let end = match opened {
                Ok((nodes, sent)) => {
                    backoff = Backoff::default();
                    self.serve(number, nodes, sent).await
                }
                Err(phase) => Some(phase),
            };
            if let Some(phase) = end {
                info!(?phase, "session over");
                self.phase.send_replace(phase);
                return;
            }
            self.phase.send_replace(Phase::Connecting);
        }
    }

    /// Serves one epoch; returns the last phase of the session if there is no next one.
    async fn serve(&mut self, number: u64, nodes: Arc<dyn Nodes>, sent: Instant) -> Option<Phase> {
        let (link_sender, link) = watch::channel(Link::Connected(1));
        let epoch = Arc::new(Epoch::new(number, Arc::clone(&nodes), link, sent));
        info!(
            epoch = number,
            session = epoch.session_id,
            "ZooKeeper session open"
        );
        self.phase.send_replace(Phase::Open(Arc::clone(&epoch)));
        let mut watch = EpochKeeper::new(Arc::clone(&epoch), nodes, link_sender);
        let ended = tokio::select! {
            biased;
            () = closed(&mut self.close) => None,
            reason = watch.run() => Some(reason),
        };
        let mut was_connected = false;
        let end = match ended {
            None => {
                was_connected = watch.end(LostReason::SessionClosed) != Link::Disconnected;
                self.drain(&epoch).await;
                Some(Phase::Closed)
            }
            Some(EndReason::Expired) => {
                watch.end(LostReason::SessionExpired);
                (!self.backend.reconnects()).then(|| Phase::Ended(NodesError::SessionEnded))
            }
            Some(EndReason::Closed | EndReason::AuthFailed) => {
                watch.end(LostReason::SessionClosed);
                Some(Phase::Ended(NodesError::SessionEnded))
            }
        };
        warn_if_expired(ended, number);
        drop(epoch.take_nodes());
        // Nobody can be told without a connection; the ensemble will expire it.
        if was_connected {
            watch.closed(self.close_patience).await;
        }
        end
    }

    /// Lets the clean-up finish, so that nothing waits for the ensemble to notice.
    async fn drain(&self, epoch: &Arc<Epoch>) {
        self.phase.send_replace(Phase::Closing(Arc::clone(epoch)));
        let paths: Vec<_> = epoch
            .leases()
            .iter()
            .map(|it| it.node_path.clone())
            .collect();
        if !paths.is_empty() {
            drop(self.cleanup.delete(Target::Nodes(paths)));
        }
        if tokio::time::timeout(self.close_patience, self.cleanup.drained())
            .await
            .is_err()
        {
            warn!("session closed before all lock nodes were deleted; they go with it");
        }
    }
}

fn warn_if_expired(ended: Option<EndReason>, epoch: u64) {
    if ended == Some(EndReason::Expired) {
        warn!(epoch, "ZooKeeper session expired, its locks are lost");
    }
}

/// Completes when the session is to be closed or nobody has it any more.
async fn closed(close: &mut watch::Receiver<bool>) {
    // An error means that all handles are gone.
    drop(close.wait_for(|asked| *asked).await);
}

type Adopted = (u64, u64, Result<Option<(NodeStat, NodeWatch)>, NodesError>);

/// Watches over one epoch.
struct EpochKeeper {
    epoch: Arc<Epoch>,
    nodes: Arc<dyn Nodes>,
    link: watch::Sender<Link>,
    connections: u64,
    heartbeat: Option<BoxFuture<'static, (Instant, Result<(), NodesError>)>>,
    heartbeat_at: Option<Instant>,
    /// When to watch the nodes of which leases.
    unwatched: BTreeSet<(Instant, u64)>,
    lapses: u64,
    adoptions: FuturesUnordered<BoxFuture<'static, Adopted>>,
    own_watches: FuturesUnordered<BoxFuture<'static, (u64, NodeEvent)>>,
}

impl EpochKeeper {
    fn new(epoch: Arc<Epoch>, nodes: Arc<dyn Nodes>, link: watch::Sender<Link>) -> Self {
        Self {
            epoch,
            nodes,
            link,
            connections: 1,
            heartbeat: None,
            heartbeat_at: None,
            unwatched: BTreeSet::new(),
            lapses: 0,
            adoptions: FuturesUnordered::new(),
            own_watches: FuturesUnordered::new(),
        }
    }

    /// Runs until the session ends.
    async fn run(&mut self) -> EndReason {
        let mut connection = self.nodes.connection();
        loop {
            let timer_at = self.plan();
            let epoch = Arc::clone(&self.epoch);
            tokio::select! {
                biased;
                change = connection.next() => match change {
                    Some(Connection::Connected) => self.reconnected(),
                    Some(Connection::Disconnected) => {
                        self.link.send_replace(Link::Disconnected);
                    }
                    Some(Connection::Ended(reason)) => return reason,
                    None => return EndReason::Closed,
                },
                (id, event) = next(&mut self.own_watches) => self.own_node(id, event),
                (id, connection, found) = next(&mut self.adoptions) => {
                    self.adopted(id, connection, found);
                }
                (sent, answer) = heartbeat(&mut self.heartbeat) => self.answered(sent, answer),
                () = epoch.wake_keeper.notified() => self.take_arrivals(),
                () = tokio::time::sleep_until(timer_at) => {}
            }
        }
    }

    /// Does what is due and says when the next thing is.
    fn plan(&mut self) -> Instant {
        let now = Instant::now();
        let validity = self.epoch.validity();
        if validity.until <= now || validity.lapses != self.lapses {
            self.lapses = validity.lapses;
            // To ask a lease for its state is what ends it once its deadline has passed.
            self.epoch.leases().iter().for_each(|lease| {
                lease.state();
            });
        }
        while self.unwatched.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, id)) = self.unwatched.pop_first() {
                self.adopt(id);
            }
        }
        self.beat(now);
        let loss_at = Some(validity.until).filter(|until| *until > now && self.epoch.is_held());
        let adoption_at = self.unwatched.first().map(|(at, _)| *at);
        let heartbeat_at = self.heartbeat_at.filter(|_| self.heartbeat.is_none());
        let next = [loss_at, adoption_at, heartbeat_at]
            .into_iter()
            .flatten()
            .min();
        next.unwrap_or(now + IDLE)
    }

    fn beat(&mut self, now: Instant) {
        let Some(every) = self.epoch.heartbeat_every() else {
            return;
        };
        if !self.epoch.is_in_use() {
            self.heartbeat_at = None;
            return;
        }
        let at = *self.heartbeat_at.get_or_insert(now);
        if at <= now && self.heartbeat.is_none() {
            self.heartbeat_at = Some(now + every);
            let nodes = Arc::clone(&self.nodes);
            let beat = async move {
                let answer = nodes.sync("/").await;
                (now, answer)
            };
            self.heartbeat = Some(Box::pin(beat));
        }
    }

    fn answered(&mut self, sent: Instant, answer: Result<(), NodesError>) {
        match answer {
            Ok(()) => self.epoch.acknowledged(sent),
            // The next one is due soon; if none gets through, the leases end by their deadline.
            Err(error) => debug!(%error, "heartbeat failed"),
        }
    }

    fn reconnected(&mut self) {
        self.connections += 1;
        self.link.send_replace(Link::Connected(self.connections));
        // At once, unless sessions never expire here and no heartbeat is ever due.
        self.heartbeat_at = self.epoch.heartbeat_every().map(|_| Instant::now());
        self.epoch
            .leases()
            .iter()
            .for_each(|lease| self.adopt(lease.id));
    }

    fn take_arrivals(&mut self) {
        let watch_at = Instant::now() + OWN_WATCH_GRACE;
        for (id, own_watch) in self.epoch.arrivals() {
            match own_watch {
                Some(own_watch) => self.follow(id, own_watch),
                None => {
                    self.unwatched.insert((watch_at, id));
                }
            }
        }
    }

    /// Asks whether a lease's node is there and ours, and watches it from then on.
    fn adopt(&mut self, id: u64) {
        let Some(lease) = self.epoch.lease(id) else {
            return;
        };
        let (nodes, connection) = (Arc::clone(&self.nodes), self.connections);
        let adoption = async move { (id, connection, nodes.watch(&lease.node_path).await) };
        self.adoptions.push(Box::pin(adoption));
    }

    fn adopted(
        &mut self,
        id: u64,
        connection: u64,
        found: Result<Option<(NodeStat, NodeWatch)>, NodesError>,
    ) {
        let Some(lease) = self.epoch.lease(id) else {
            return;
        };
        match found {
            Ok(Some((stat, own_watch))) => {
                lease.observe(Some(&stat), Some(connection));
                self.follow(id, own_watch);
            }
            Ok(None) => lease.observe(None, None),
            Err(error) => {
                debug!(node = %lease.node_path, %error, "own node not watched yet");
                self.unwatched
                    .insert((Instant::now() + OWN_WATCH_GRACE, id));
            }
        }
    }

    fn follow(&self, id: u64, own_watch: NodeWatch) {
        self.own_watches
            .push(Box::pin(async move { (id, own_watch.await) }));
    }

    fn own_node(&mut self, id: u64, event: NodeEvent) {
        match (event, self.epoch.lease(id)) {
            (NodeEvent::Deleted, Some(lease)) => lease.observe(None, None),
            // For example a revocation request: still ours, watch again.
            (NodeEvent::Changed, Some(_)) => self.adopt(id),
            // Released, or the end of the session, which the connection tells.
            (NodeEvent::SessionEnded, _) | (_, None) => {}
        }
    }

    /// Ends the epoch for everybody; returns how the link was.
    fn end(&self, reason: LostReason) -> Link {
        let link = self.link.send_replace(Link::Ended(reason));
        for lease in self.epoch.leases() {
            lease.lose(reason);
        }
        link
    }

    /// Waits until the session is closed, so that its nodes are gone.
    async fn closed(self, patience: Duration) {
        let mut connection = self.nodes.connection();
        drop((self.nodes, self.heartbeat, self.adoptions, self.own_watches));
        let over = async {
            while let Some(change) = connection.next().await {
                if let Connection::Ended(_) = change {
                    return;
                }
            }
        };
        if tokio::time::timeout(patience, over).await.is_err() {
            warn!("session not closed in time; the ensemble will expire it");
        }
    }
}

/// The next of a set that may be empty for now.
async fn next<T>(futures: &mut FuturesUnordered<BoxFuture<'static, T>>) -> T {
    match futures.next().await {
        Some(output) => output,
        None => std::future::pending().await,
    }
}

async fn heartbeat<T>(running: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(future) = running.as_mut() else {
        return std::future::pending().await;
    };
    let output = future.await;
    *running = None;
    output
}
