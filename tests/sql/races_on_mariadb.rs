//! Transactions on MariaDB that cross.

use std::time::Duration;

use futures::FutureExt as _;
use lock_recipes::{InterProcessMutex, MySql, Session};
use recipes_core::{NewNode, NodeEvent, NodeMode};
use test_rig::{MariaDbServer, TestEnsemble};
use tokio::time::timeout;

use super::database::Database;
use super::{PATIENCE, numbers};

const LONG: Duration = Duration::from_secs(60);

async fn session(url: &str, session_timeout: Duration) -> Session {
    let builder = MySql::builder().new_server();
    let builder = builder.session_timeout(session_timeout);
    builder.connect(url).await.unwrap()
}

fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}

/// A process dies while it holds a lock. Its session has a short timeout.
async fn dead_holder(server: &MariaDbServer, path: &'static str) {
    let url = server.url();
    let process = tokio::task::spawn_blocking(move || {
        let process = tokio::runtime::Runtime::new().unwrap();
        process.block_on(async {
            let session = session(&url, Duration::from_secs(2)).await;
            std::mem::forget(mutex(&session, path).acquire().await.unwrap());
        });
        process.shutdown_background();
    });
    process.await.unwrap();
}

/// Beats leave for the next time what is locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_somebody_keeps_locked_does_not_keep_other_ended_sessions_alive() {
    let server = MariaDbServer::start().await.unwrap();
    dead_holder(&server, "/locks/a").await;
    let ensemble = TestEnsemble::MariaDb(server.into());
    let operator = Database::connect(&ensemble).await;
    let TestEnsemble::MariaDb(server) = &ensemble else {
        panic!("another server")
    };
    let others = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    operator.run(others).await.unwrap();
    operator.run("START TRANSACTION").await.unwrap();
    let delete = "DELETE FROM lock_recipes_nodes WHERE dir = '/locks/a'";
    operator.run(delete).await.unwrap();
    let other = session(&server.url(), LONG).await;
    dead_holder(server, "/locks/b").await;
    let granted = timeout(PATIENCE, mutex(&other, "/locks/b").acquire()).await;
    drop(granted.unwrap().unwrap());
    operator.run("ROLLBACK").await.unwrap();
    let granted = timeout(PATIENCE, mutex(&other, "/locks/a").acquire()).await;
    drop(granted.unwrap().unwrap());
}

/// Listings of one call are longer together than a packet of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_kept_by_many_acquires_in_a_long_queue() {
    let server = MariaDbServer::start().await.unwrap();
    server.set("max_allowed_packet", "1048576").await.unwrap();
    let session = session(&server.url(), LONG).await;
    let lock = mutex(&session, "/locks/a");
    lock.acquire().await.unwrap().release().await.unwrap();
    let connections = "SELECT id FROM information_schema.processlist \
                       WHERE id <> CONNECTION_ID() AND db = 'locks' ORDER BY id";
    let before = server.sql(connections).await.unwrap();
    // Of a session that nobody ends: it is in no table.
    let queue = format!(
        "INSERT INTO lock_recipes_nodes SELECT '/locks/a', \
           CONCAT('_c_00000000-0000-0000-0000-000000000000-lock-', LPAD(seq, 10, '0')), \
           seq + 1, 1, 1, 0, 7, 0, 1, 0, '' FROM {}; \
         $$END$$ UPDATE lock_recipes_nodes SET q = 4001 WHERE dir = '/locks' AND name = 'a'",
        numbers(4_000)
    );
    server.sql(&queue).await.unwrap();
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    let granted = async {
        let count = "SELECT COUNT(*) FROM lock_recipes_nodes WHERE dir = '/locks/a' AND o <> 7";
        while server.sql(count).await.unwrap() != [["40"]] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let gone = "DELETE FROM lock_recipes_nodes WHERE o = 7";
        server.sql(gone).await.unwrap();
        for waiter in waiting {
            waiter.await.unwrap();
        }
    };
    timeout(PATIENCE, granted).await.unwrap();
    assert_eq!(server.sql(connections).await.unwrap(), before);
}

/// Each attempt to go on over a new connection has a number, and the server may know the session by any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_could_not_go_on_for_long_goes_on() {
    let server = MariaDbServer::start().await.unwrap();
    let session = session(&server.url(), LONG).await;
    let id = session.session_id().unwrap();
    let known_by = (1..=2_000).map(|it| it.to_string());
    let known_by = known_by.collect::<Vec<_>>().join(",");
    let resume = format!(
        "SET @secret = (SELECT secret FROM lock_recipes_sessions WHERE id = {id}); \
         $$END$$ CALL lock_recipes_resume({id}, @secret, 2000, '{known_by}', 'run')"
    );
    let answer = server.sql(&resume).await.unwrap();
    assert_eq!(answer[0][0], "0", "{answer:?}");
}

/// A waiter would not hear of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_is_told_before_what_came_after_it() {
    let server = MariaDbServer::start().await.unwrap();
    let builder = MySql::builder().new_server().session_timeout(LONG);
    let store = builder.store(&server.url()).unwrap();
    let nodes = store.connect().await.unwrap();
    for path in ["/a", "/b"] {
        let node = NewNode {
            path: path.to_owned(),
            data: (*b"").into(),
            mode: NodeMode::Persistent,
        };
        nodes.create(&node).await.unwrap();
    }
    let (_, _, deleted) = nodes.watch("/a").await.unwrap().unwrap();
    let (_, _, changed) = nodes.watch("/b").await.unwrap().unwrap();
    let delete = "DELETE FROM lock_recipes_nodes WHERE name = 'a'";
    server.sql(delete).await.unwrap();
    let change = "UPDATE lock_recipes_nodes SET m = m + 1, v = v + 1 WHERE name = 'b'";
    server.sql(change).await.unwrap();
    let told = timeout(PATIENCE, changed).await.unwrap();
    assert_eq!(told, NodeEvent::Changed);
    assert_eq!(deleted.now_or_never(), Some(NodeEvent::Deleted));
}
