//! A lock on MariaDB is handed on, over lost connections and sessions.

use std::time::Duration;

use lock_recipes::{GuardState, InterProcessMutex, MySql, Session};
use test_rig::MariaDbServer;
use tokio::time::timeout;

use super::PATIENCE;

const LOCK: &str = "/locks/orders";

async fn start() -> MariaDbServer {
    MariaDbServer::start().await.unwrap()
}

async fn session(server: &MariaDbServer, session_timeout: Duration) -> Session {
    let builder = MySql::builder().new_server();
    let builder = builder.session_timeout(session_timeout);
    builder.connect(&server.url()).await.unwrap()
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, LOCK).unwrap()
}

/// Ends all connections of sessions, as an operator does.
async fn kill_connections(server: &MariaDbServer) {
    let ids = "SELECT id FROM information_schema.processlist \
               WHERE id <> CONNECTION_ID() AND db = 'locks'";
    for id in server.sql(ids).await.unwrap().concat() {
        // It may be gone.
        drop(server.sql(&format!("KILL {id}")).await);
    }
}

pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_of_another_session_is_granted_the_lock_when_it_is_released() {
    let server = start().await;
    let long = Duration::from_secs(20);
    let (first, second) = (session(&server, long).await, session(&server, long).await);
    let guard = mutex(&first).acquire().await.unwrap();
    assert!(mutex(&second).try_acquire().await.unwrap().is_none());
    let token = guard.fencing_token();
    let waiting = tokio::spawn(mutex(&second).acquire());
    until("two in the queue", async || {
        let count = "SELECT COUNT(*) FROM lock_recipes_nodes WHERE o <> 0";
        server.sql(count).await.unwrap() == [["2"]]
    })
    .await;
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    first.close().await;
    second.close().await;
    let left = "SELECT (SELECT COUNT(*) FROM lock_recipes_sessions), \
                (SELECT COUNT(*) FROM lock_recipes_beats), (SELECT COUNT(*) FROM lock_recipes_ended), \
                (SELECT COUNT(*) FROM lock_recipes_nodes WHERE o <> 0)";
    assert_eq!(server.sql(left).await.unwrap(), [["0", "0", "0", "0"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_session_that_is_not_heard_is_free_after_its_timeout() {
    let server = start().await;
    let silent = session(&server, Duration::from_secs(2)).await;
    let other = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&silent).acquire().await.unwrap();
    let waiting = tokio::spawn(mutex(&other).acquire());
    let id = silent.session_id().unwrap();
    // Nobody may connect as it any more.
    let changed = format!("UPDATE lock_recipes_sessions SET secret = 'other' WHERE id = {id}");
    server.sql(&changed).await.unwrap();
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    timeout(PATIENCE, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_and_waiter_survive_the_loss_of_their_connections() {
    let server = start().await;
    let long = Duration::from_secs(60);
    let (first, second) = (session(&server, long).await, session(&server, long).await);
    let guard = mutex(&first).acquire().await.unwrap();
    let waiting = tokio::spawn(mutex(&second).acquire());
    for _ in 0..5 {
        kill_connections(&server).await;
        until("the lock is held", async || {
            guard.verify().await.is_ok() && guard.state() == GuardState::Held
        })
        .await;
    }
    assert!(!waiting.is_finished());
    let token = guard.fencing_token();
    drop(guard);
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_many_sessions_are_served_in_turn() {
    let server = start().await;
    let mut served = Vec::new();
    for _ in 0..6 {
        let session = session(&server, Duration::from_secs(60)).await;
        served.push(tokio::spawn(async move {
            for _ in 0..20 {
                let guard = mutex(&session).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
            session.close().await;
        }));
    }
    for task in served {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    let numbers = "SELECT q FROM lock_recipes_nodes WHERE dir = '/locks' AND name = 'orders'";
    assert_eq!(server.sql(numbers).await.unwrap(), [["120"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_back_clock_and_removed_directory_do_not_repeat_a_token() {
    let server = start().await;
    let first = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&first).acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let directory = "DELETE FROM lock_recipes_nodes WHERE dir = '/locks' AND name = 'orders'";
    // As the numbers of a clock that was an hour ahead.
    let ahead = format!(
        "UPDATE lock_recipes_nodes SET p = {} WHERE q > 0",
        i64::MAX / 2
    );
    server
        .sql(&format!("{ahead}; $$END$$ {directory}"))
        .await
        .unwrap();
    let second = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&second).acquire().await.unwrap();
    assert!(guard.fencing_token() > token);
    guard.release().await.unwrap();
}

/// One lock for each order. Beats are rare, and 16 directories each would never do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_of_locks_go_as_fast_as_they_are_made() {
    const ORDERS: usize = 1_200;
    let server = start().await;
    let builder = MySql::builder().new_server();
    let builder = builder.session_timeout(Duration::from_secs(600));
    let builder = builder.container_rest(Duration::from_millis(100));
    let session = builder.connect(&server.url()).await.unwrap();
    for order in 0..ORDERS {
        let lock = InterProcessMutex::new(&session, &format!("/orders/{order}")).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    for count in ["nodes", "containers"] {
        let count = format!("SELECT COUNT(*) FROM lock_recipes_{count}");
        let left: usize = server.sql(&count).await.unwrap()[0][0].parse().unwrap();
        assert!(left < ORDERS / 4, "{left} rows: {count}");
    }
}
