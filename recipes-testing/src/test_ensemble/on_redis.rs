//! What an operator does to a Redis server.

use std::sync::Arc;
use std::time::Duration;

use recipes_core::{
    NewNode, NodeMode, NodeOp, NodeStat, Nodes, NodesError, Session, SessionOptions,
};
use recipes_redis::RedisBuilder;

use super::must;
use crate::server::{RedisServer, StoreClock};

/// A guard, which is valid for half of it, outlasts a busy machine; a quarantine takes three quarters
/// of it, and tests are more patient.
pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
/// The default prefix.
const PREFIX: &str = "locks";
/// How long a container may be empty: nearly nothing, instead of a minute. Locks must cope with it.
const CONTAINER_REST: Duration = Duration::from_millis(200);

pub(super) fn options(options: SessionOptions) -> RedisBuilder {
    // Nobody held a lock before the server was started.
    RedisBuilder::from(options)
        .new_server()
        .container_rest(CONTAINER_REST)
}

pub(super) async fn session(server: &RedisServer, builder: RedisBuilder) -> Session {
    must("connect", builder.connect(&server.url()).await)
}

/// A session of the operator's own.
async fn operator(server: &RedisServer) -> Arc<dyn Nodes> {
    let options = SessionOptions::new().session_timeout(SESSION_TIMEOUT);
    let store = must("connect", self::options(options).store(&server.url()));
    must("connect", store.connect().await)
}

pub(super) async fn expire(server: &RedisServer, id: i64) {
    let sessions: Vec<String> = must(
        "list sessions",
        server.command(&["ZRANGE", "{locks}:s", "0", "-1"]).await,
    );
    let prefix = format!("{id}:");
    let session = sessions.iter().find(|it| it.starts_with(&prefix));
    let Some(session) = session else {
        panic!("session has ended already")
    };
    let silent = ["ZADD", "{locks}:s", "0", session];
    let silenced: i64 = must("expire a session", server.command(&silent).await);
    assert_eq!(silenced, 0, "session ended meanwhile");
    // Somebody is due.
    let clock = must("read the clock", server.store_clock(PREFIX).await);
    let due = StoreClock {
        due: -clock.due,
        ..StoreClock::default()
    };
    must("set it", server.change_store_clock(PREFIX, due).await);
    // Any call sweeps it.
    drop(operator(server).await);
}

pub(super) async fn children(server: &RedisServer, path: &str) -> Vec<String> {
    let mut children = match operator(server).await.list(path).await {
        Err(NodesError::NoNode) => Vec::new(),
        children => must("list", children),
    };
    children.sort_unstable();
    children
}

pub(super) async fn read(server: &RedisServer, path: &str) -> Option<(Vec<u8>, NodeStat)> {
    must("read", operator(server).await.read(path).await)
}

pub(super) async fn create(server: &RedisServer, path: &str, data: &[u8]) {
    let operator = operator(server).await;
    let node = |path: &str, data: &[u8]| NewNode {
        path: path.to_owned(),
        data: data.into(),
        mode: NodeMode::Persistent,
    };
    let ends = path.match_indices('/').skip(1).map(|(end, _)| end);
    for parent in ends.filter_map(|end| path.get(..end)) {
        match operator.create(&node(parent, b"")).await {
            Err(NodesError::NodeExists) => {}
            created => drop(must("create parents", created)),
        }
    }
    must("create", operator.create(&node(path, data)).await);
}

pub(super) async fn set(server: &RedisServer, path: &str, data: &[u8]) {
    let set = NodeOp::Set {
        path: path.to_owned(),
        data: data.to_vec(),
        version: None,
    };
    must("set", operator(server).await.multi(vec![set]).await);
}

pub(super) async fn delete(server: &RedisServer, path: &str) {
    must("delete", operator(server).await.delete(path).await);
}

/// Has the server look for containers to remove.
pub(super) async fn reap(server: &RedisServer) {
    must("reap", operator(server).await.sync("/").await);
}

pub(super) async fn watch_count(server: &RedisServer) -> usize {
    let asked = server.command::<Vec<String>>(&["KEYS", "{locks}:w:*"]);
    let mut count = 0;
    for key in must("list watches", asked.await) {
        let watchers: usize = must("count", server.command(&["HLEN", &key]).await);
        count += watchers;
    }
    count
}

pub(super) async fn zxid(server: &RedisServer) -> i64 {
    let clock = server.store_clock(PREFIX).await;
    must("read the last number", clock).number
}
