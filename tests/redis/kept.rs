//! What the server keeps of sessions, nodes and watches that are gone: nothing.

use std::time::Duration;

use recipes_core::NodeMode;
use test_rig::RedisServer;

use super::{node, options, until};

const LONG: Duration = Duration::from_secs(600);

/// The shortest of the timeouts in use decides how far the store's clock may advance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_that_no_session_has_is_forgotten() {
    let server = RedisServer::start().await.unwrap();
    let open = async |timeout| {
        let session = options(timeout).connect(&server.url()).await;
        session.unwrap()
    };
    let (long, short) = (open(LONG).await, open(Duration::from_secs(60)).await);
    let timeouts = async || {
        let counts = server.command::<Vec<String>>(&["HGETALL", "{locks}:h"]);
        let mut counts = counts.await.unwrap();
        counts.sort();
        counts
    };
    assert_eq!(timeouts().await, ["1", "1", "60000000", "600000000"]);
    short.close().await;
    assert_eq!(timeouts().await, ["1", "600000000"]);
    let step = server.store_clock("locks").await.unwrap().step;
    assert_eq!(Duration::from_micros(step.unsigned_abs()), LONG / 4);
    long.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_is_told_once() {
    let server = RedisServer::start().await.unwrap();
    let store = options(LONG).store(&server.url()).unwrap();
    let (here, there) = (
        store.connect().await.unwrap(),
        store.connect().await.unwrap(),
    );
    here.create(&node("/d", NodeMode::Persistent))
        .await
        .unwrap();
    let (_, _, watch) = there.watch("/d").await.unwrap().unwrap();
    let watchers = async || {
        let fields = server.command::<Vec<String>>(&["HKEYS", "{locks}:n:/d"]);
        let fields = fields.await.unwrap();
        fields.iter().filter(|it| it.starts_with('w')).count()
    };
    assert_eq!(watchers().await, 1);
    let changed = recipes_core::NodeOp::Set {
        path: "/d".to_owned(),
        data: b"new".to_vec(),
        version: None,
    };
    here.multi(vec![changed]).await.unwrap();
    assert_eq!(watchers().await, 0);
    assert_eq!(watch.await, recipes_core::NodeEvent::Changed);
}

/// Of a session that has ended, with a node that somebody has deleted by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_session_whose_node_was_deleted_by_hand() {
    let server = RedisServer::start().await.unwrap();
    let store = options(LONG).store(&server.url()).unwrap();
    let (here, there) = (
        store.connect().await.unwrap(),
        store.connect().await.unwrap(),
    );
    for path in ["/one", "/two"] {
        let node = node(path, NodeMode::Ephemeral);
        there.create(&node).await.unwrap();
    }
    let _: i64 = server.command(&["DEL", "{locks}:n:/one"]).await.unwrap();
    drop(there);
    let ended = async || {
        here.sync("/").await.unwrap();
        let keys = server.command::<Vec<String>>(&["KEYS", "{locks}:[go]*"]);
        keys.await.unwrap().is_empty().then_some(())
    };
    until("the end of all that the session had", ended).await;
    assert!(here.stat("/two").await.unwrap().is_none());
}
