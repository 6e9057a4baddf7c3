//! What it takes on PostgreSQL to hand a lock on, as the server counts it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use lock_recipes::{InterProcessMutex, Postgres, Session};
use recipes_core::{NewNode, NodeEvent, NodeMode, Nodes};
use test_rig::PostgresServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::PATIENCE;
use super::races_on_postgres::until;

/// No heartbeat comes meanwhile.
const SESSION_TIMEOUT: Duration = Duration::from_secs(600);
const HAND_OFFS: usize = 60;
/// Whoever waits looks as often, to be safe.
const SAFE: Duration = Duration::from_millis(500);

async fn session(server: &PostgresServer) -> Session {
    let builder = Postgres::builder().new_server();
    let builder = builder.session_timeout(SESSION_TIMEOUT);
    builder.connect(&server.url()).await.unwrap()
}

/// Waits for the lock.
fn acquires(session: &Session) -> JoinHandle<lock_recipes::MutexGuard> {
    let mutex = InterProcessMutex::new(session, "/locks/a").unwrap();
    tokio::spawn(async move { mutex.acquire().await.unwrap() })
}

async fn number(server: &PostgresServer, sql: &str) -> usize {
    server.sql(sql).await.unwrap()[0][0].parse().unwrap()
}

async fn calls(server: &PostgresServer, function: &str) -> usize {
    let calls = format!(
        "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
           WHERE query LIKE 'SELECT %\"lock\\_recipes\".{function}(%'"
    );
    number(server, &calls).await
}

/// Three sessions take turns: one holds the lock, and two wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handing_on_takes_three_statements_and_two_commits() {
    let builder = PostgresServer::builder()
        .setting("shared_preload_libraries", "pg_stat_statements")
        .setting("autovacuum", "off");
    let server = builder.start().await.unwrap();
    let extension = "CREATE EXTENSION pg_stat_statements";
    server.sql(extension).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(session(&server).await);
    }
    let transactions = "SELECT txid_current()";
    let all_wait = "(SELECT count(*) FROM lock_recipes.nodes WHERE o <> 0) = 3";
    let mut guard = acquires(&sessions[0]).await.unwrap();
    let second = acquires(&sessions[1]);
    until(
        &server,
        "(SELECT count(*) FROM lock_recipes.nodes WHERE o <> 0) = 2",
    )
    .await;
    let mut waiting = [second, acquires(&sessions[2])];
    until(&server, all_wait).await;
    // Who has not waited watches its node a moment later, by a statement of its own.
    let first = sessions[0].session_id().unwrap();
    let watched = format!("EXISTS (SELECT FROM lock_recipes.watches WHERE session = {first})");
    until(&server, &watched).await;
    server
        .sql("SELECT pg_stat_statements_reset()")
        .await
        .unwrap();
    let (before, begun) = (number(&server, transactions).await, Instant::now());
    for turn in 0..HAND_OFFS {
        guard.release().await.unwrap();
        let [next, last] = waiting;
        guard = timeout(PATIENCE, next).await.unwrap().unwrap();
        waiting = [last, acquires(&sessions[turn % 3])];
        until(&server, all_wait).await;
    }
    let commits = number(&server, transactions).await - before;
    let looks = calls(&server, "poll").await;
    let counted = ["enter", "leave", "look", "requests"].map(|it| calls(&server, it));
    let counted = futures::future::join_all(counted).await;
    assert_eq!(counted, [HAND_OFFS, HAND_OFFS, 0, 0]);
    // Each session looks now and then, too, and once more if somebody was leaving when it came.
    let safe = begun.elapsed().as_millis() / SAFE.as_millis() * 3;
    let most = HAND_OFFS * 5 / 4 + usize::try_from(safe).unwrap();
    assert!(looks <= most, "{looks} looks of {most}");
    assert!(commits <= HAND_OFFS * 9 / 4, "{commits} commits");
    drop((guard, waiting, sessions));
}

fn node(path: &str, mode: NodeMode) -> NewNode {
    NewNode {
        path: path.to_owned(),
        data: (*b"").into(),
        mode,
    }
}

/// Nobody rings a session for what it does itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_deletes_what_it_watches_has_been_told_when_that_is_answered() {
    let server = PostgresServer::start().await.unwrap();
    let builder = Postgres::builder().new_server();
    let store = builder.session_timeout(SESSION_TIMEOUT);
    let nodes = store.store(&server.url()).unwrap().connect().await;
    let nodes: Arc<dyn Nodes> = nodes.unwrap();
    nodes
        .create(&node("/d", NodeMode::Persistent))
        .await
        .unwrap();
    let contender = node("/d/n-", NodeMode::EphemeralSequential);
    nodes.create(&contender).await.unwrap();
    let both = nodes.together();
    let (created, listed) = (nodes.create(&contender), nodes.list_entered(&["/d"]));
    drop(both);
    let (created, listed) = tokio::join!(created, listed);
    let path = created.unwrap().path;
    assert_eq!(listed.unwrap()[0].as_ref().unwrap().len(), 2);
    let (_, _, watch) = nodes.watch(&path).await.unwrap().unwrap();
    nodes.delete(&path).await.unwrap();
    assert_eq!(watch.now_or_never(), Some(NodeEvent::Deleted));
    let watches = "SELECT count(*) FROM lock_recipes.watches WHERE name LIKE '%1'";
    assert_eq!(number(&server, watches).await, 0);
}
