//! What an operator does to a server that runs our functions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use recipes_core::{
    ConnectError, Error, NewNode, NodeMode, NodeOp, NodeStat, Nodes, NodesError, Session,
    SessionOptions, Store,
};

use tokio::time::{Instant, sleep};

use super::must;
use recipes_testing::ServerError;

/// A guard, which is valid for half of it, outlasts a busy machine; a quarantine takes three quarters
/// of it, and tests are more patient.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a container may be empty: little, instead of a minute. Locks must cope with it; one whose directory is gone
/// again after each of five tries is refused, which 200 ms did on a machine with a load of 40.
pub(super) const CONTAINER_REST: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// A server that runs our functions, and the store on it. The methods panic as those of
/// [`TestEnsemble`](super::TestEnsemble) do.
pub(super) trait Served: fmt::Debug + Sync {
    /// Its host and port.
    fn address(&self) -> String;

    /// The operator's session.
    fn operator(&self) -> BoxFuture<'_, Arc<dyn Nodes>>;

    /// The store, reached at this host and port, whose locks nobody held before the server was started
    /// and whose containers may be empty for so long.
    fn store(&self, address: &str, options: SessionOptions, rest: Duration) -> Arc<dyn Store>;

    /// Opens a session under test.
    fn connect(&self, options: SessionOptions) -> BoxFuture<'_, Result<Session, Error>>;

    /// Makes a session one that was silent for too long, so that the next call ends it. False if it has
    /// ended already.
    fn silence(&self, session: i64) -> BoxFuture<'_, bool>;

    /// Number of watches of all sessions.
    fn watch_count(&self) -> BoxFuture<'_, usize>;

    /// Changes when a watch takes the place of another. 0 where a watch is gone as soon as there is something to
    /// tell, so that counting shows it.
    fn watch_numbers(&self) -> BoxFuture<'_, usize> {
        future::ready(0).boxed()
    }

    /// The number of the last transaction.
    fn zxid(&self) -> BoxFuture<'_, i64>;

    /// Ends the process.
    fn stop(&self) -> BoxFuture<'_, Result<(), ServerError>>;

    /// Starts it again.
    fn start_again(&self) -> BoxFuture<'_, Result<(), ServerError>>;
}

/// A new session of the operator's own. On a busy machine, the server may not answer in time at first.
pub(super) async fn new_operator(server: &dyn Served) -> Result<Arc<dyn Nodes>, NodesError> {
    let options = SessionOptions::new().session_timeout(SESSION_TIMEOUT);
    let store = server.store(&server.address(), options, CONTAINER_REST);
    let until = Instant::now() + PATIENCE;
    loop {
        match store.connect().await {
            Err(NodesError::Unknown(_)) if Instant::now() < until => sleep(POLL).await,
            connected => return connected,
        }
    }
}

/// Opens a session under test, with the same patience.
pub(super) async fn session(
    server: &dyn Served,
    options: SessionOptions,
) -> Result<Session, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        match server.connect(options.clone()).await {
            Err(Error::Connect(ConnectError::TimedOut { .. })) if Instant::now() < until => {}
            connected => return connected,
        }
    }
}

/// Asks as the operator until the server answers, which may also have lost sight of the operator's session. Tells
/// whether it was asked more than once.
async fn asked<'a, T>(
    server: &dyn Served,
    ask: impl Fn(Arc<dyn Nodes>) -> BoxFuture<'a, Result<T, NodesError>>,
) -> (Result<T, NodesError>, bool) {
    let until = Instant::now() + PATIENCE;
    let mut is_again = false;
    loop {
        match ask(server.operator().await).await {
            Err(NodesError::Unknown(_) | NodesError::SessionEnded) if Instant::now() < until => {
                is_again = true;
                sleep(POLL).await;
            }
            answer => return (answer, is_again),
        }
    }
}

/// Ends a session. False if it has ended already.
pub(super) async fn expire(server: &dyn Served, session: i64) -> bool {
    let mut was_alive = false;
    // A beat of the session may come in between, or a call end others first. So this is repeated until
    // the session is gone.
    while server.silence(session).await {
        was_alive = true;
        reap(server).await;
    }
    was_alive
}

pub(super) async fn children(server: &dyn Served, path: &str) -> Vec<String> {
    let mut children = match asked(server, |it| async move { it.list(path).await }.boxed())
        .await
        .0
    {
        Err(NodesError::NoNode) => Vec::new(),
        children => must("list", children),
    };
    children.sort_unstable();
    children
}

pub(super) async fn read(server: &dyn Served, path: &str) -> Option<(Vec<u8>, NodeStat)> {
    let (read, _) = asked(server, |it| async move { it.read(path).await }.boxed()).await;
    must("read", read)
}

pub(super) async fn create(server: &dyn Served, path: &str, data: &[u8]) {
    let node = |path: &str, data: &[u8]| NewNode {
        path: path.to_owned(),
        data: data.into(),
        mode: NodeMode::Persistent,
    };
    let store = server.store(&server.address(), SessionOptions::new(), CONTAINER_REST);
    let parents = match store.traits().keeps_directories {
        true => usize::MAX,
        false => 0,
    };
    let ends = path.match_indices('/').skip(1).map(|(end, _)| end);
    for parent in ends.filter_map(|end| path.get(..end)).take(parents) {
        let parent = &node(parent, b"");
        match asked(server, |it| async move { it.create(parent).await }.boxed()).await {
            (Err(NodesError::NodeExists), _) => {}
            (created, _) => drop(must("create parents", created)),
        }
    }
    let node = &node(path, data);
    match asked(server, |it| async move { it.create(node).await }.boxed()).await {
        (Err(NodesError::NodeExists), true) => {}
        (created, _) => drop(must("create", created)),
    }
}

pub(super) async fn set(server: &dyn Served, path: &str, data: &[u8]) {
    let set = NodeOp::Set {
        path: path.to_owned(),
        data: data.to_vec(),
        version: None,
    };
    let set = |it: Arc<dyn Nodes>| {
        let set = vec![set.clone()];
        async move { it.multi(set).await.map_err(|it| it.source) }.boxed()
    };
    let (set, _) = asked(server, set).await;
    must("set", set);
}

pub(super) async fn delete(server: &dyn Served, path: &str) {
    match asked(server, |it| async move { it.delete(path).await }.boxed()).await {
        (Err(NodesError::NoNode), true) => {}
        (deleted, _) => must("delete", deleted),
    }
}

/// Has the server look for sessions to end and containers to remove.
pub(super) async fn reap(server: &dyn Served) {
    let (reaped, _) = asked(server, |it| async move { it.sync("/").await }.boxed()).await;
    must("reap", reaped);
}
