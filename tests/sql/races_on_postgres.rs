//! Transactions on PostgreSQL that cross.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, Member, MultiLock, Postgres, Session};
use test_rig::PostgresServer;
use tokio::time::{sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage};

use super::PATIENCE;

/// An eighth of it is how long a call waits for a lock: longer than a machine is busy.
const SESSION_TIMEOUT: Duration = Duration::from_secs(240);

async fn session(server: &PostgresServer) -> Session {
    let builder = Postgres::builder().new_server();
    let builder = builder.session_timeout(SESSION_TIMEOUT);
    builder.connect(&server.url()).await.unwrap()
}

/// A connection of somebody else, and the channels on which it is rung.
pub(crate) async fn connection(
    server: &PostgresServer,
) -> (Client, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let (rings, rung) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            futures::future::poll_fn(|cx| connection.poll_message(cx)).await
        {
            if let AsyncMessage::Notification(ring) = message {
                let ring = format!("{} {}", ring.channel(), ring.payload());
                drop(rings.send(ring.trim_end().to_owned()));
            }
        }
    });
    (client, rung)
}

/// The session of a process that dies while it holds a lock.
async fn dead_holder(server: &PostgresServer, path: &'static str) -> i64 {
    let url = server.url();
    let process = tokio::task::spawn_blocking(move || {
        let process = tokio::runtime::Runtime::new().unwrap();
        let id = process.block_on(async {
            let builder = Postgres::builder().new_server();
            let builder = builder.session_timeout(SESSION_TIMEOUT);
            let session = builder.connect(&url).await.unwrap();
            let mutex = InterProcessMutex::new(&session, path).unwrap();
            std::mem::forget(mutex.acquire().await.unwrap());
            session.session_id().unwrap()
        });
        process.shutdown_background();
        id
    });
    process.await.unwrap()
}

pub(crate) async fn until(server: &PostgresServer, condition: &str) {
    let holds = async {
        while server.sql(&format!("SELECT {condition}")).await.unwrap() != [["t"]] {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, holds).await.unwrap();
}

pub(crate) const WAITS_FOR_A_LOCK: &str =
    "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')";

/// A call locks the directories in which it creates. One of them does not exist yet. While the call waits
/// for the other, somebody makes it, and is granted the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_rises_in_a_directory_that_is_made_while_a_set_is_being_acquired() {
    let server = PostgresServer::start().await.unwrap();
    let (one, two) = (session(&server).await, session(&server).await);
    let mutex = |session: &Session, path: &str| InterProcessMutex::new(session, path).unwrap();
    let second = mutex(&one, "/locks/b");
    second.acquire().await.unwrap().release().await.unwrap();
    let (other, _) = connection(&server).await;
    let lock =
        "BEGIN; SELECT FROM lock_recipes.counts WHERE dir = '/locks' AND name = 'b' FOR UPDATE";
    other.batch_execute(lock).await.unwrap();
    let both = MultiLock::new(&one, ["/locks/a", "/locks/b"].map(Member::mutex)).unwrap();
    let granted = tokio::spawn(both.acquire());
    until(&server, WAITS_FOR_A_LOCK).await;
    let guard = mutex(&two, "/locks/a").acquire().await.unwrap();
    let token = guard.fencing_token();
    other.batch_execute("COMMIT").await.unwrap();
    guard.release().await.unwrap();
    let guard = timeout(PATIENCE, granted).await.unwrap().unwrap().unwrap();
    let next = guard.members()[0].fencing_token;
    assert!(next > token, "{next:?} after {token:?}");
}

/// Both are gone in one moment for whoever looks, and the waiter's own node was gone before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_node_is_removed_just_before_the_one_ahead_is_not_granted_on_it() {
    let server = PostgresServer::start().await.unwrap();
    let (one, two) = (session(&server).await, session(&server).await);
    let third = session(&server).await;
    let operator = third.session_id().unwrap();
    let [first, second] = [&one, &two].map(|it| InterProcessMutex::new(it, "/locks/a").unwrap());
    let (client, _) = connection(&server).await;
    let remove = |session: &Session, call: &str| {
        let owner = session.session_id().unwrap();
        format!(
            "SELECT {call} FROM lock_recipes.sessions s, lock_recipes.nodes n \
             WHERE s.id = {operator} AND n.o = {owner}"
        )
    };
    let leave = "lock_recipes.leave(s.name, s.id, s.timeout, '/locks', 'a', n.dir, n.name)::text";
    let request = "lock_recipes.requests(s.name, s.id, s.timeout, 0, 0, true, '{}', '{}', \
         ARRAY['delete', '/locks', 'a', n.dir, n.name, ''], '{}')::text";
    for round in 0..30 {
        let held = first.acquire().await.unwrap();
        let waiter = second.clone();
        let granted = tokio::spawn(async move {
            let guard = waiter.acquire().await.unwrap();
            // It fails if the node is not there.
            guard.verify().await.map(|()| guard)
        });
        let waits = "(SELECT count(*) FROM lock_recipes.nodes WHERE o <> 0) = 2";
        until(&server, waits).await;
        let own = remove(&two, if round % 2 == 0 { leave } else { request });
        let ahead = remove(&one, leave);
        // Two transactions, one right after the other: these are sent when they are polled.
        let removed = tokio::join!(client.simple_query(&own), client.simple_query(&ahead));
        for removed in [removed.0, removed.1] {
            let SimpleQueryMessage::Row(row) = &removed.unwrap()[1] else {
                panic!("no row")
            };
            assert!(row.get(0).is_some());
        }
        let guard = timeout(PATIENCE, granted).await.unwrap().unwrap();
        guard.unwrap().release().await.unwrap();
        drop(held);
    }
}

/// It is deleted and made again in one transaction, for which the create waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_granted_in_a_directory_that_is_made_anew_meanwhile() {
    let server = PostgresServer::start().await.unwrap();
    let session = session(&server).await;
    let mutex = InterProcessMutex::new(&session, "/locks/a").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let (other, _) = connection(&server).await;
    let anew = "BEGIN; CREATE TEMP TABLE kept ON COMMIT DROP AS \
                  SELECT * FROM lock_recipes.counts WHERE dir = '/locks' AND name = 'a'; \
                DELETE FROM lock_recipes.counts WHERE dir = '/locks' AND name = 'a'; \
                INSERT INTO lock_recipes.counts SELECT * FROM kept";
    other.batch_execute(anew).await.unwrap();
    let granted = tokio::spawn(mutex.acquire());
    until(&server, WAITS_FOR_A_LOCK).await;
    other.batch_execute("COMMIT").await.unwrap();
    drop(timeout(PATIENCE, granted).await.unwrap().unwrap().unwrap());
}

/// It would wait until its next look, half a second later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_watches_while_the_nodes_of_an_ended_session_are_deleted_is_rung() {
    let server = PostgresServer::start().await.unwrap();
    let holder = session(&server).await;
    let mutex = InterProcessMutex::new(&holder, "/locks/a").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let node = guard.members()[0].node_path.clone();
    let name = node.rsplit('/').next().unwrap();
    let (watcher, mut rung) = connection(&server).await;
    let stops = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                   PERFORM pg_advisory_xact_lock(1); RETURN old; END $$; \
                 CREATE TRIGGER wait BEFORE DELETE ON lock_recipes.nodes \
                   FOR EACH ROW EXECUTE FUNCTION wait(); \
                 LISTEN lock_recipes_7; SELECT pg_advisory_lock(1)";
    watcher.batch_execute(stops).await.unwrap();
    let id = holder.session_id().unwrap();
    let (ends, _) = connection(&server).await;
    let ended = tokio::spawn(async move {
        let end = format!(
            "BEGIN; DELETE FROM lock_recipes.sessions WHERE id = {id}; \
             INSERT INTO lock_recipes.ended VALUES ({id}); SELECT lock_recipes.purge(); COMMIT"
        );
        ends.batch_execute(&end).await.unwrap();
    });
    until(&server, WAITS_FOR_A_LOCK).await;
    let watch = format!("INSERT INTO lock_recipes.watches VALUES ('/locks/a', '{name}', 7, 1)");
    watcher.batch_execute(&watch).await.unwrap();
    watcher
        .batch_execute("SELECT pg_advisory_unlock(1)")
        .await
        .unwrap();
    timeout(PATIENCE, ended).await.unwrap().unwrap();
    // What was rung at the commit has come when a later statement of the connection is answered.
    watcher.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(rung.try_recv().unwrap(), "lock_recipes_7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_transactions_of_many_ended_sessions_keep_their_own_locks_only() {
    let server = PostgresServer::start().await.unwrap();
    let waiter = session(&server).await;
    let id = dead_holder(&server, "/locks/a").await;
    let (other, _) = connection(&server).await;
    let many = "INSERT INTO lock_recipes.nodes \
                  SELECT '/fenced/' || i, 'n-0000000000', 0, 1, 1, 0, i, '' \
                  FROM generate_series(1, 200) AS i";
    let fenced = "BEGIN; SELECT lock_recipes.fence('/fenced/' || i || '/n-0000000000', 1) \
                  FROM generate_series(1, 200) AS i";
    let ended = "INSERT INTO lock_recipes.ended SELECT generate_series(1, 200)";
    let granted = InterProcessMutex::new(&waiter, "/locks/a").unwrap();
    let granted = tokio::spawn(granted.acquire());
    until(&server, "(SELECT count(*) FROM lock_recipes.watches) > 0").await;
    other.batch_execute(many).await.unwrap();
    other.batch_execute(fenced).await.unwrap();
    server.sql(ended).await.unwrap();
    let end = format!(
        "DELETE FROM lock_recipes.sessions WHERE id = {id}; \
         INSERT INTO lock_recipes.ended VALUES ({id}); UPDATE lock_recipes.clock SET due = 0"
    );
    server.sql(&end).await.unwrap();
    drop(timeout(PATIENCE, granted).await.unwrap().unwrap().unwrap());
}

/// The release waits for the transaction. Nobody else of the session does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_of_a_fenced_lock_does_not_hold_up_other_locks_of_the_session() {
    let server = PostgresServer::start().await.unwrap();
    // A call would wait longer for the row than this test.
    let builder = Postgres::builder().session_timeout(8 * 2 * PATIENCE);
    let session = builder.new_server().connect(&server.url()).await.unwrap();
    let mutex = |path: &str| InterProcessMutex::new(&session, path).unwrap();
    let guard = mutex("/locks/a").acquire().await.unwrap();
    let (own, _) = connection(&server).await;
    own.batch_execute("BEGIN").await.unwrap();
    let fence = guard.fence().unwrap();
    own.batch_execute(fence.sql()).await.unwrap();
    drop(guard);
    for _ in 0..20 {
        let guard = timeout(PATIENCE, mutex("/locks/b").acquire()).await;
        guard.unwrap().unwrap().release().await.unwrap();
    }
    own.batch_execute("COMMIT").await.unwrap();
    let guard = timeout(PATIENCE, mutex("/locks/a").acquire()).await;
    guard.unwrap().unwrap().release().await.unwrap();
}
