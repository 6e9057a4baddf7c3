//! A store whose every answer the test gives. It is for behaviour that depends on when, and
//! over which connection, an answer comes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::attempt::wait_loop;
use crate::lock::held_node::{LeaseBasis, MadeNode};
use crate::lock::lease::Lease;
use crate::lock::local_queue::{AttemptFuture, LocalQueue};
use crate::lock::lock_path::LockPath;
use crate::lock::session::Session;
use crate::lock::target::Target;
use crate::names::node_name::LockKind;
use crate::names::token::FencingToken;
use crate::rules::acquire::Patience;
use crate::session::epoch::Epoch;
use crate::session::leftovers::Leftovers;
use crate::session::options::{LockOptions, SessionOptions};
use crate::session::own_watch::OwnWatch;
use crate::store::fence::{Dialect, Fence};
use crate::store::nodes::{
    Connection, Created, MultiError, NewNode, NodeEvent, NodeOp, NodeOpDone, NodeStat, NodeWatch,
    Nodes, NodesError, Reliant, Reply,
};
use crate::store::{Store, Traits};
use crate::sync::{AtomicBool, Mutex, lock};

mod requests;
mod sessions;

pub(crate) use requests::{Answer, Asked, Read, Watched};
pub(crate) use sessions::Sessions;

pub(crate) const SESSION: i64 = 7;
pub(crate) const T: Duration = Duration::from_secs(12);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);

/// The operations of one session.
#[derive(Debug)]
pub(crate) struct Scripted {
    timeout: Option<Duration>,
    asked: Mutex<VecDeque<Asked>>,
    connection: watch::Sender<Connection>,
    runs: AtomicU64,
    /// Nodes that are gone, as the session has learned.
    pub(crate) gone: Mutex<Vec<String>>,
    asleep: Arc<Mutex<Duration>>,
    /// Who counts on the session timeout.
    pub(crate) reliant: Mutex<Option<Weak<dyn Reliant>>>,
    /// When the store begins to grant.
    pub(crate) grants_from: Mutex<Option<Instant>>,
    /// How long the machine sleeps while a request is being sent.
    pub(crate) asleep_while_sending: Mutex<Duration>,
}

impl Scripted {
    pub(crate) fn new(timeout: Option<Duration>) -> Arc<Self> {
        Arc::new(Self {
            timeout,
            asked: Mutex::default(),
            connection: watch::Sender::new(Connection::Connected),
            runs: AtomicU64::new(0),
            gone: Mutex::default(),
            asleep: Arc::default(),
            reliant: Mutex::default(),
            grants_from: Mutex::default(),
            asleep_while_sending: Mutex::default(),
        })
    }

    /// The oldest request that the test has not taken yet.
    pub(crate) fn asked(&self) -> Option<Asked> {
        lock(&self.asked).pop_front()
    }

    /// All requests that the test has not taken yet, to compare with.
    pub(crate) fn log(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *lock(&self.asked));
        asked.iter().map(|it| format!("{it:?}")).collect()
    }

    /// Answers all syncs and all lone checks, and keeps the rest.
    pub(crate) fn beat(&self) -> usize {
        let all = std::mem::take(&mut *lock(&self.asked));
        let mut beats = 0;
        for asked in all {
            match asked {
                Asked::Sync(answer) => {
                    beats += 1;
                    drop(answer.send(Ok(())));
                }
                Asked::Multi(operations, answer) if is_beat(&operations) => {
                    beats += 1;
                    drop(answer.send(Ok(vec![NodeOpDone::Checked])));
                }
                other => lock(&self.asked).push_back(other),
            }
        }
        beats
    }

    pub(crate) fn connection_is(&self, connection: Connection) {
        self.connection.send_replace(connection);
    }

    /// Breaks the connection and makes another.
    pub(crate) fn reconnect(&self) {
        self.connection_is(Connection::Disconnected);
        self.connection_is(Connection::Connected);
    }

    /// As [`reconnect`](Self::reconnect), to a store that may have forgotten its last writes.
    pub(crate) fn reconnect_to_another_run(&self) {
        self.connection_is(Connection::Disconnected);
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.connection_is(Connection::Connected);
    }

    pub(crate) fn sleep(&self, time: Duration) {
        *lock(&self.asleep) += time;
    }

    fn ask<T: Send + 'static, E: Send + 'static>(
        &self,
        asked: impl FnOnce(Answer<T, E>) -> Asked,
    ) -> Reply<'static, T, E> {
        let (answer, reply) = oneshot::channel();
        lock(&self.asked).push_back(asked(answer));
        let slept = *lock(&self.asleep_while_sending);
        self.sleep(slept);
        async move {
            match reply.await {
                Ok(answer) => answer,
                Err(_) => future::pending().await,
            }
        }
        .boxed()
    }
}

/// Whether this is the committed kind of heartbeat.
pub(crate) fn is_beat(operations: &[NodeOp]) -> bool {
    matches!(operations, [NodeOp::Check { path, .. }] if path == "/")
}

impl Nodes for Scripted {
    fn session(&self) -> i64 {
        SESSION
    }

    fn session_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn gone(&self, path: &str) {
        lock(&self.gone).push(path.to_owned());
    }

    fn grants_from(&self) -> Option<Instant> {
        *lock(&self.grants_from)
    }

    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        Some(Fence::new(Dialect::Postgres, format!("{held:?}")))
    }

    fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        let mut changes = self.connection.subscribe();
        if *changes.borrow() != Connection::Connected {
            changes.mark_changed();
        }
        stream::unfold(changes, |mut changes| async {
            changes.changed().await.ok()?;
            let now = *changes.borrow_and_update();
            Some((now, changes))
        })
        .boxed()
    }

    fn relied_on_by(&self, reliant: Weak<dyn Reliant>) {
        *lock(&self.reliant) = Some(reliant);
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        self.ask(|answer| Asked::Create(node.clone(), answer))
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        self.ask(|answer| Asked::Delete(path.to_owned(), answer))
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        self.ask(|answer| Asked::List(path.to_owned(), answer))
    }

    fn read(&self, path: &str) -> Reply<'_, Read> {
        self.ask(|answer| Asked::Read(path.to_owned(), answer))
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        self.ask(|answer| Asked::Stat(path.to_owned(), answer))
    }

    fn watch(&self, path: &str) -> Reply<'_, Watched> {
        self.ask(|answer| Asked::Watch(path.to_owned(), answer))
    }

    fn sync(&self, _: &str) -> Reply<'_, ()> {
        self.ask(Asked::Sync)
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        self.ask(|answer| Asked::Multi(operations, answer))
    }
}

/// A session with one epoch.
pub(crate) struct Stage {
    pub(crate) session: Session,
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) nodes: Arc<Scripted>,
    /// When the session was requested.
    pub(crate) start: Instant,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::opened_within(Duration::ZERO).await
    }

    pub(crate) async fn opened_within(slow: Duration) -> Self {
        let nodes = Scripted::new(Some(T));
        let store = Sessions::of(&nodes, slow);
        Self::on(nodes, store).await
    }

    /// A stage, and the store session that comes once that of the stage is over.
    pub(crate) async fn with_next() -> (Self, Arc<Scripted>) {
        let (nodes, next) = (Scripted::new(Some(T)), Scripted::new(Some(T)));
        let store = Sessions::in_turn(&nodes, &next);
        (Self::on(nodes, store).await, next)
    }

    async fn on(nodes: Arc<Scripted>, store: Arc<dyn Store>) -> Self {
        let start = Instant::now();
        let session = SessionOptions::new().start(store);
        let epoch = session.core().open_epoch("/").await.unwrap();
        Self {
            session,
            epoch,
            nodes,
            start,
        }
    }

    /// A lock whose contenders share a node if `handoffs` is not 0.
    pub(crate) fn lock(&self, path: &str, handoffs: u32) -> Arc<LockPath> {
        let options = LockOptions::new().local_handoffs(handoffs);
        LockPath::open(&self.session, path, LockKind::Mutex, &options).unwrap()
    }

    /// A lease on a node that was granted over the present connection, as a contender gets it.
    pub(crate) fn lease(&self, czxid: i64) -> Lease {
        self.lease_of(&self.lock("/a", 0), czxid, None)
    }

    pub(crate) fn lease_of(
        &self,
        lock: &Arc<LockPath>,
        czxid: i64,
        own_watch: Option<OwnWatch>,
    ) -> Lease {
        self.lease_named(lock, &format!("n{czxid}"), czxid, own_watch)
    }

    pub(crate) fn lease_named(
        &self,
        lock: &Arc<LockPath>,
        name: &str,
        czxid: i64,
        own_watch: Option<OwnWatch>,
    ) -> Lease {
        let _in_use = self.epoch.contend(&Arc::new(Leftovers::new([])));
        let made = MadeNode {
            path: lock.node_path(name),
            czxid,
            fencing_token: FencingToken::new(czxid),
            is_revoked: false,
            was_alone: false,
        };
        let basis = LeaseBasis {
            connection: self.epoch.connection().unwrap_or_default(),
            lapses: self.epoch.lapses(),
            own_watch,
        };
        Lease::new(&self.epoch, lock, made, basis)
    }

    /// The next request, once every task has run. There must be one.
    pub(crate) async fn asked(&self) -> Asked {
        settle().await;
        self.nodes.asked().unwrap()
    }

    pub(crate) async fn log(&self) -> Vec<String> {
        settle().await;
        self.nodes.log()
    }

    /// Lets time pass in which every heartbeat is answered at once.
    pub(crate) async fn beat_for(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            settle().await;
            self.nodes.beat();
            settle().await;
            tokio::time::advance((until - Instant::now()).min(100 * MILLI)).await;
        }
        settle().await;
        self.nodes.beat();
        settle().await;
    }
}

/// Acquires among the contenders of this process, and then among the processes.
pub(crate) fn contend(queue: Arc<LocalQueue>, target: Target) -> AttemptFuture {
    async move {
        let has_turn = AtomicBool::new(false);
        queue
            .acquire(target, Patience::Wait, &has_turn, |target, patience| {
                let session = target.lock.session.clone();
                let progress = Mutex::default();
                async move { wait_loop::acquire(&session, &[target], patience, &progress).await }
                    .boxed()
            })
            .await
    }
    .boxed()
}

/// Lets every task run until it waits for something.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Moves the clock, without running the tasks that wait for it.
pub(crate) fn jump(time: Duration) {
    let moved = tokio::time::advance(time).now_or_never();
    assert!(moved.is_none(), "the clock moves at the first poll");
}

/// The node of a lease, with these data.
pub(crate) fn node(czxid: i64, data: &[u8]) -> (Vec<u8>, NodeStat) {
    let stat = NodeStat::new(czxid, czxid, 0, SESSION, 0);
    (data.to_vec(), stat)
}

/// A watch, and the sender of its event.
pub(crate) fn node_watch() -> (oneshot::Sender<NodeEvent>, NodeWatch) {
    let (event, heard) = oneshot::channel();
    let watch = async move {
        match heard.await {
            Ok(event) => event,
            Err(_) => future::pending().await,
        }
    };
    (event, watch.boxed())
}

pub(crate) fn unknown() -> NodesError {
    NodesError::Unknown(Arc::new(std::io::Error::other("connection lost")))
}

pub(crate) fn failed(source: NodesError) -> MultiError {
    MultiError {
        index: Some(0),
        source,
    }
}
