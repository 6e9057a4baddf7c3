//! What others do on a PostgreSQL server: its operator, and the service's own transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_recipes::{InterProcessMutex, Member, MultiLock, Postgres, Session};
use test_rig::PostgresServer;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

use super::PATIENCE;

/// A busy machine loses no session with it.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// An eighth of it is how long a call waits for a lock, and that is soon.
const SHORT: Duration = Duration::from_secs(12);
/// An eighth of it is longer than a machine is busy.
const LONG: Duration = Duration::from_secs(240);

async fn session(server: &PostgresServer) -> Session {
    session_of(server, SESSION_TIMEOUT).await
}

async fn session_of(server: &PostgresServer, session_timeout: Duration) -> Session {
    let builder = Postgres::builder().new_server();
    let builder = builder.session_timeout(session_timeout);
    builder.connect(&server.url()).await.unwrap()
}

/// A connection of somebody else.
async fn connection(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The statement that locks a directory as a create there does.
fn lock(name: &str) -> String {
    format!("SELECT FROM lock_recipes.counts WHERE dir = '/locks' AND name = '{name}' FOR UPDATE")
}

async fn until(server: &PostgresServer, condition: &str) {
    let holds = async {
        while server.sql(&format!("SELECT {condition}")).await.unwrap() != [["t"]] {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, holds).await.unwrap();
}

const WAITS_FOR_A_LOCK: &str = "EXISTS (SELECT FROM pg_stat_activity \
     WHERE application_name = 'lock_recipes' AND wait_event_type = 'Lock')";

#[tokio::test]
async fn connections_that_an_operator_ends_are_made_again_and_locks_are_kept() {
    let server = PostgresServer::start().await.unwrap();
    let (one, two) = (session(&server).await, session(&server).await);
    let [first, second] = [&one, &two].map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let mut guard = first.acquire().await.unwrap();
    for round in 0..10_u32 {
        let (holder, waiter) = match round % 2 {
            0 => (&first, second.clone()),
            _ => (&second, first.clone()),
        };
        let granted = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        let waits = "(SELECT count(*) FROM lock_recipes.nodes WHERE o <> 0) = 2";
        until(&server, waits).await;
        // Once all of them are made again that were ended before.
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'lock_recipes' AND (SELECT count(*) \
                   FROM pg_stat_activity WHERE application_name = 'lock_recipes') = 4";
        let ended = async {
            while server.sql(end).await.unwrap().len() != 4 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, ended).await.unwrap();
        // What is sent before the session knows has no answer.
        let verified = async {
            while let Err(unanswered) = guard.verify().await {
                assert!(guard.is_valid(), "{unanswered}");
            }
        };
        timeout(PATIENCE, verified).await.unwrap();
        assert!(holder.try_acquire().await.unwrap().is_none());
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        guard = timeout(PATIENCE, granted).await.unwrap().unwrap();
        assert!(guard.fencing_token() > token);
    }
    one.close().await;
    two.close().await;
    let left = "SELECT (SELECT count(*) FROM lock_recipes.sessions), \
                (SELECT count(*) FROM lock_recipes.nodes WHERE o <> 0), \
                (SELECT count(*) FROM lock_recipes.watches)";
    assert_eq!(server.sql(left).await.unwrap(), [["0", "0", "0"]]);
}

/// Waits until a session has sent what the server logs so.
async fn sent(server: &PostgresServer, statement: &str) {
    let sent = async {
        while !server.log().contains(statement) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, sent).await.unwrap();
}

/// Each ring wakes all processes of the server that listen in the database.
#[tokio::test]
async fn session_listens_only_while_it_waits() {
    let builder = PostgresServer::builder().setting("log_statement", "all");
    let server = builder.start().await.unwrap();
    let (one, two) = (session(&server).await, session(&server).await);
    let idle = session(&server).await;
    let [first, second] = [&one, &two].map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let guard = first.acquire().await.unwrap();
    let waits = tokio::spawn(async move { second.acquire().await.unwrap() });
    let channel = |it: &Session| format!("LISTEN lock_recipes_{}", it.session_id().unwrap());
    sent(&server, &format!(": {}", channel(&two))).await;
    guard.release().await.unwrap();
    let granted = timeout(PATIENCE, waits).await.unwrap().unwrap();
    granted.release().await.unwrap();
    sent(&server, &format!(": UN{}", channel(&two))).await;
    // Not that of the holder: one that is slow watches its node.
    let log = server.log();
    assert_eq!(log.matches(&channel(&two)).count(), 2, "{log}");
    assert_eq!(log.matches(&channel(&idle)).count(), 0, "{log}");
}

/// Answers of a server at which nothing ever happens.
const BLIND: &str = "
    CREATE OR REPLACE FUNCTION lock_recipes.poll(
      me bigint, numbers bigint[], dirs text[], names text[], created bigint[], changed bigint[],
      wants_ahead boolean, OUT news text[], OUT ahead bigint, OUT still boolean, OUT own_still boolean
    ) LANGUAGE sql AS $$
      SELECT array_fill(''::text, ARRAY[cardinality(numbers)]), NULL::bigint, true, true
    $$";

/// Waits until a session has looked twice at what it watches now, and knows what the first look has shown.
async fn has_looked(server: &PostgresServer, session: &Session) {
    let id = session.session_id().unwrap();
    let watches = format!("(SELECT count(*) FROM lock_recipes.watches WHERE session = {id}) > 1");
    until(server, &watches).await;
    let looks = || {
        let look = format!("$1 = '{id}', $2 = '{{");
        server.log().matches(&look).count()
    };
    let before = looks();
    let looked = async {
        while looks() < before + 3 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, looked).await.unwrap();
}

#[tokio::test]
async fn ring_tells_of_a_deletion_before_a_look() {
    let builder = PostgresServer::builder().setting("log_statement", "all");
    let server = builder.start().await.unwrap();
    let (one, two) = (session(&server).await, session(&server).await);
    let [first, second] = [&one, &two].map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let guard = first.acquire().await.unwrap();
    let waits = tokio::spawn(async move { second.acquire().await.unwrap() });
    // A fence leaves a trace on the holder's node for good.
    let fence = guard.fence().unwrap();
    connection(&server)
        .await
        .batch_execute(fence.sql())
        .await
        .unwrap();
    has_looked(&server, &two).await;
    server.sql(BLIND).await.unwrap();
    guard.release().await.unwrap();
    let granted = timeout(PATIENCE, waits).await.unwrap().unwrap();
    granted.release().await.unwrap();
}

/// Any user of the database may ring.
#[tokio::test]
async fn deletion_is_told_by_nobody_who_only_says_so() {
    let builder = PostgresServer::builder().setting("log_statement", "all");
    let server = builder.start().await.unwrap();
    let (one, two) = (session(&server).await, session(&server).await);
    let [first, second] = [&one, &two].map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let guard = first.acquire().await.unwrap();
    let beside = InterProcessMutex::new(&two, "/locks/b").unwrap();
    let beside = beside.acquire().await.unwrap();
    let is_released = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_released);
    let waits = tokio::spawn(async move {
        let _guard = second.acquire().await.unwrap();
        seen.load(Ordering::SeqCst)
    });
    has_looked(&server, &two).await;
    let other = connection(&server).await;
    let sees = "SELECT pg_get_functiondef('lock_recipes.poll'::regproc)";
    let sees: String = other.query_one(sees, &[]).await.unwrap().get(0);
    server.sql(BLIND).await.unwrap();
    let channel = format!("lock_recipes_{}", two.session_id().unwrap());
    for what in ["", "D", "F"] {
        for said in ["'/'", "'/1'", "'/' || encode(sha256('/1'), 'hex')", "''"] {
            for number in 1..=20 {
                let ring = format!("SELECT pg_notify('{channel}', '{what}' || {number} || {said})");
                other.batch_execute(&ring).await.unwrap();
            }
        }
    }
    // Behind the rings, on the connection that they come on.
    beside.verify().await.unwrap();
    is_released.store(true, Ordering::SeqCst);
    other.batch_execute(&sees).await.unwrap();
    guard.release().await.unwrap();
    assert!(
        timeout(PATIENCE, waits).await.unwrap().unwrap(),
        "too early"
    );
}

#[tokio::test]
async fn acquire_that_the_server_ends_because_of_a_deadlock_is_sent_again() {
    // Whoever waits looks for one once, after so long.
    let server = PostgresServer::builder().setting("deadlock_timeout", "10s");
    let server = server.start().await.unwrap();
    let session = session_of(&server, LONG).await;
    let members = || ["/locks/a", "/locks/b"].map(Member::mutex);
    let both = MultiLock::new(&session, members()).unwrap();
    both.acquire().await.unwrap().release().await.unwrap();
    let other = connection(&server).await;
    other
        .batch_execute("BEGIN; SET LOCAL deadlock_timeout = '1h'")
        .await
        .unwrap();
    other.batch_execute(&lock("b")).await.unwrap();
    let granted = tokio::spawn(async move { both.acquire().await.map(|_| ()) });
    until(&server, WAITS_FOR_A_LOCK).await;
    // It has locked the one and waits for the other.
    other.batch_execute(&lock("a")).await.unwrap();
    other.batch_execute("COMMIT").await.unwrap();
    timeout(PATIENCE, granted).await.unwrap().unwrap().unwrap();
    assert!(server.log().contains("deadlock detected"), "there was none");
    session.close().await;
}

#[tokio::test]
async fn transaction_that_locks_a_directory_for_long_delays_an_acquire_and_no_more() {
    let server = PostgresServer::start().await.unwrap();
    let session = session_of(&server, SHORT).await;
    let mutex = InterProcessMutex::new(&session, "/locks/a").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let other = connection(&server).await;
    other
        .batch_execute(&format!("BEGIN; {}", lock("a")))
        .await
        .unwrap();
    let granted = tokio::spawn(async move { mutex.acquire().await.map(|_| ()) });
    // More than once: the first wait is given up.
    for _ in 0..2 {
        until(&server, WAITS_FOR_A_LOCK).await;
        until(&server, &format!("NOT {WAITS_FOR_A_LOCK}")).await;
    }
    other.batch_execute("COMMIT").await.unwrap();
    timeout(PATIENCE, granted).await.unwrap().unwrap().unwrap();
    session.close().await;
}

/// What it cannot delete is left to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_cannot_delete_all_of_its_nodes_is_closed_once() {
    let server = PostgresServer::builder().setting("track_functions", "pl");
    let server = server.start().await.unwrap();
    let session = session_of(&server, SHORT).await;
    let mutex = InterProcessMutex::new(&session, "/locks/a").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let other = connection(&server).await;
    other.batch_execute("BEGIN").await.unwrap();
    other
        .batch_execute(guard.fence().unwrap().sql())
        .await
        .unwrap();
    drop(guard);
    session.close().await;
    let is_gone =
        "NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'lock_recipes')";
    until(&server, is_gone).await;
    let calls = "SELECT calls FROM pg_stat_user_functions WHERE funcname = 'close'";
    assert_eq!(server.sql(calls).await.unwrap(), [["1"]]);
}

/// The timers of the server's connections: their kind, and how long they still run.
#[cfg(target_os = "linux")]
fn timers(port: u16) -> Vec<(u8, Duration)> {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let of_server = format!(":{port:04X}");
    // sl local remote state queues kind:hundredths
    let rows = table
        .lines()
        .map(|it| it.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1].ends_with(&of_server) && row[3] == ESTABLISHED)
        .map(|row| {
            let (kind, left) = row[5].split_once(':').unwrap();
            let left = u64::from_str_radix(left, 16).unwrap();
            (kind.parse().unwrap(), Duration::from_millis(10 * left))
        })
        .collect()
}

/// A call of which only the first part has arrived keeps what it has locked.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn server_asks_a_silent_client_soon_whether_it_is_still_there() {
    const KEEPALIVE: u8 = 2;
    let server = PostgresServer::start().await.unwrap();
    let builder = Postgres::builder().new_server();
    let session_timeout = Duration::from_secs(20);
    let builder = builder.session_timeout(session_timeout);
    let session = builder.connect(&server.url()).await.unwrap();
    let soon = async {
        // Another timer runs for a moment when something was sent.
        loop {
            let timers = timers(server.port());
            let is_soon = |it: &(u8, Duration)| it.0 == KEEPALIVE && it.1 <= session_timeout / 4;
            if timers.len() == 2 && timers.iter().all(is_soon) {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        timeout(PATIENCE, soon).await.is_ok(),
        "{:?}",
        timers(server.port())
    );
    session.close().await;
}

/// A call that creates the directory `/locks/a` unless it is there, and enters it.
fn enter(session: &Session, seen: i64) -> String {
    format!(
        "SELECT lock_recipes.requests(name, id, timeout, 60000000, {seen}, true,
           ARRAY['/', '/locks'], ARRAY['locks', 'a'],
           ARRAY['create', '/', 'locks', '/locks', 'a', 'C', '1',
                 'create', '/locks', 'a', '/locks/a', 'n-', 'S', '1'], ARRAY[''::bytea])
         FROM lock_recipes.sessions WHERE id = {}",
        session.session_id().unwrap()
    )
}

/// A directory that another call is about to create is not locked first.
#[tokio::test]
async fn tokens_rise_if_two_sessions_create_the_directory_of_a_lock() {
    let server = PostgresServer::start().await.unwrap();
    let (one, two) = (
        session_of(&server, LONG).await,
        session_of(&server, LONG).await,
    );
    // The root of the locks is there.
    drop(
        InterProcessMutex::new(&one, "/locks/b")
            .unwrap()
            .acquire()
            .await
            .unwrap(),
    );
    let (first, second) = (connection(&server).await, connection(&server).await);
    first.batch_execute("BEGIN").await.unwrap();
    first.batch_execute(&enter(&one, 0)).await.unwrap();
    // A minute later by the numbers.
    let high = "SELECT max(p) + 60000000 FROM lock_recipes.counts";
    let high: i64 = first.query_one(high, &[]).await.unwrap().get(0);
    first.batch_execute(&enter(&one, high)).await.unwrap();
    let entered = enter(&two, 0);
    let entered = tokio::spawn(async move { second.batch_execute(&entered).await });
    let waits = "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')";
    until(&server, waits).await;
    first.batch_execute("COMMIT").await.unwrap();
    entered.await.unwrap().unwrap();
    let tokens = "SELECT c FROM lock_recipes.nodes WHERE dir = '/locks/a' ORDER BY seq";
    let tokens = first.query(tokens, &[]).await.unwrap();
    let tokens: Vec<i64> = tokens.iter().map(|row| row.get(0)).collect();
    assert_eq!(tokens.len(), 3);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}
