//! What a call has locked while it waits, and what it does when the wait is over.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use lock_recipes::{MySql, Postgres};
use recipes_core::{
    Connection, EndReason, MultiError, NewNode, NodeMode, NodeOp, NodeOpDone, Nodes, NodesError,
};
use test_rig::{MariaDbServer, PostgresServer, TestEnsemble};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::PATIENCE;
use super::database::Database;
use super::races_on_postgres::{WAITS_FOR_A_LOCK, connection, until};

/// An eighth of it is how long a call waits for a lock: longer than a machine is busy.
const SESSION_TIMEOUT: Duration = Duration::from_secs(240);

fn node(path: &str, mode: NodeMode) -> NewNode {
    NewNode {
        path: path.to_owned(),
        data: (*b"").into(),
        mode,
    }
}

async fn directories(nodes: &dyn Nodes, paths: &[&str]) {
    for path in paths {
        let directory = node(path, NodeMode::Persistent);
        nodes.create(&directory).await.unwrap();
    }
}

fn delete(path: &str, version: Option<i32>) -> NodeOp {
    NodeOp::Delete {
        path: path.to_owned(),
        version,
    }
}

async fn refused(call: impl Future<Output = Result<Vec<NodeOpDone>, MultiError>>) -> NodesError {
    timeout(PATIENCE, call).await.unwrap().unwrap_err().source
}

/// Commits what somebody has begun, once a call waits for it.
async fn commit_when_waited_for(server: &PostgresServer, other: &Client) {
    until(server, WAITS_FOR_A_LOCK).await;
    other.batch_execute("COMMIT").await.unwrap();
}

async fn on_postgres(server: &PostgresServer) -> Arc<dyn Nodes> {
    let builder = Postgres::builder().new_server();
    let store = builder.session_timeout(SESSION_TIMEOUT);
    store.store(&server.url()).unwrap().connect().await.unwrap()
}

/// Somebody creates a node in a directory, as the functions do, and a session deletes the directory before this
/// is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_in_which_somebody_creates_is_not_deleted_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    let nodes = on_postgres(&server).await;
    directories(&*nodes, &["/d"]).await;
    let (other, _) = connection(&server).await;
    let create = "BEGIN; UPDATE lock_recipes.counts SET q = q + 1 WHERE dir = '/' AND name = 'd'; \
         INSERT INTO lock_recipes.nodes VALUES ('/d', 'x', 0, 1, 1, 0, 0, '')";
    other.batch_execute(create).await.unwrap();
    let deletes = nodes.multi(vec![delete("/d", None)]);
    let (why, ()) = tokio::join!(refused(deletes), commit_when_waited_for(&server, &other));
    assert!(matches!(why, NodesError::Refused(_)), "{why}");
    assert!(nodes.stat("/d").await.unwrap().is_some());
}

/// Somebody changes a node that a session deletes if it is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_somebody_changes_is_not_deleted_as_it_was_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    let nodes = on_postgres(&server).await;
    directories(&*nodes, &["/d"]).await;
    let (other, _) = connection(&server).await;
    let change = "BEGIN; UPDATE lock_recipes.nodes SET v = v + 1 WHERE dir = '/' AND name = 'd'";
    other.batch_execute(change).await.unwrap();
    let deletes = nodes.multi(vec![delete("/d", Some(0))]);
    let (why, ()) = tokio::join!(refused(deletes), commit_when_waited_for(&server, &other));
    assert!(matches!(why, NodesError::BadVersion), "{why}");
}

/// A directory is deleted while somebody creates another next to it. Should it be made anew, its numbers go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_directory_that_is_deleted_stay_with_its_parent_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    let nodes = on_postgres(&server).await;
    directories(&*nodes, &["/d"]).await;
    let high = "UPDATE lock_recipes.counts SET p = 9000000000000000 WHERE dir = '/' AND name = 'd'";
    server.sql(high).await.unwrap();
    let (other, _) = connection(&server).await;
    let create =
        "BEGIN; UPDATE lock_recipes.counts SET q = q + 1, p = p + 1 WHERE dir = '' AND name = ''";
    other.batch_execute(create).await.unwrap();
    let deletes = nodes.delete("/d");
    let (deleted, ()) = tokio::join!(
        timeout(PATIENCE, deletes),
        commit_when_waited_for(&server, &other)
    );
    deleted.unwrap().unwrap();
    let created = nodes.create(&node("/d", NodeMode::Persistent)).await;
    assert!(created.unwrap().czxid.unwrap() > 9_000_000_000_000_000);
}

/// A server with somebody else's connection, and a session.
struct OnMariaDb {
    ensemble: TestEnsemble,
    other: Database,
    nodes: Arc<dyn Nodes>,
}

impl OnMariaDb {
    async fn start() -> Self {
        let server = MariaDbServer::start().await.unwrap();
        let builder = MySql::builder().new_server();
        let store = builder.session_timeout(SESSION_TIMEOUT);
        let nodes = store.store(&server.url()).unwrap().connect().await.unwrap();
        let ensemble = TestEnsemble::MariaDb(server.into());
        let other = Database::connect(&ensemble).await;
        for statement in [
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "START TRANSACTION",
        ] {
            other.run(statement).await.unwrap();
        }
        Self {
            ensemble,
            other,
            nodes,
        }
    }

    fn server(&self) -> &MariaDbServer {
        match &self.ensemble {
            TestEnsemble::MariaDb(server) => server,
            _ => panic!("another server"),
        }
    }

    async fn until_a_call_waits(&self) {
        let waits = async {
            let count =
                "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
            while self.server().sql(count).await.unwrap() == [["0"]] {
                // The server makes this table anew only for who has not looked for a tenth of a second.
                sleep(Duration::from_millis(250)).await;
            }
        };
        timeout(PATIENCE, waits).await.unwrap();
    }

    async fn is_locked(&self, rows: &str) -> bool {
        let ask = format!("SELECT 1 FROM lock_recipes_{rows} FOR UPDATE NOWAIT");
        self.server().sql(&ask).await.is_err()
    }

    async fn commit(&self) {
        self.other.run("COMMIT").await.unwrap();
    }
}

/// Nobody ends the session, and nobody else creates in its first directory, while a call waits for the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_waits_has_its_session_and_the_directories_before_on_mariadb() {
    let it = OnMariaDb::start().await;
    directories(&*it.nodes, &["/a", "/z"]).await;
    let last = "SELECT 1 FROM lock_recipes_nodes WHERE dir = '/' AND name = 'z' FOR UPDATE";
    it.other.run(last).await.unwrap();
    let create = |path| NodeOp::Create(node(path, NodeMode::EphemeralSequential));
    let both = it.nodes.multi(vec![create("/a/x-"), create("/z/x-")]);
    let looks = async {
        it.until_a_call_waits().await;
        assert!(it.is_locked("sessions").await, "its session can be ended");
        assert!(it.is_locked("nodes WHERE dir = '/' AND name = 'a'").await);
        it.commit().await;
    };
    let (created, ()) = tokio::join!(timeout(PATIENCE, both), looks);
    assert_eq!(created.unwrap().unwrap().len(), 2);
}

/// What a transaction checks is still so when it is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_was_checked_is_kept_until_the_commit_on_mariadb() {
    let it = OnMariaDb::start().await;
    directories(&*it.nodes, &["/c", "/z"]).await;
    let taken = "INSERT INTO lock_recipes_nodes VALUES ('/z', 'x', 0, 1, 1, 0, 0, 0, 1, 0, '')";
    it.other.run(taken).await.unwrap();
    let check = NodeOp::Check {
        path: "/c".to_owned(),
        version: None,
    };
    let create = NodeOp::Create(node("/z/x", NodeMode::Ephemeral));
    let both = it.nodes.multi(vec![check, create]);
    let looks = async {
        it.until_a_call_waits().await;
        assert!(it.is_locked("nodes WHERE dir = '/' AND name = 'c'").await);
        it.commit().await;
    };
    let (why, ()) = tokio::join!(refused(both), looks);
    assert!(matches!(why, NodesError::NodeExists), "{why}");
}

/// As on PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_in_which_somebody_creates_is_not_deleted_on_mariadb() {
    let it = OnMariaDb::start().await;
    directories(&*it.nodes, &["/d"]).await;
    for statement in [
        "UPDATE lock_recipes_nodes SET q = q + 1 WHERE dir = '/' AND name = 'd'",
        "INSERT INTO lock_recipes_nodes VALUES ('/d', 'x', 0, 1, 1, 0, 0, 0, 1, 0, '')",
    ] {
        it.other.run(statement).await.unwrap();
    }
    // It waits for nobody.
    let why = refused(it.nodes.multi(vec![delete("/d", None)])).await;
    assert!(matches!(why, NodesError::Throttled), "{why}");
    it.commit().await;
    let why = refused(it.nodes.multi(vec![delete("/d", None)])).await;
    assert!(matches!(why, NodesError::Refused(_)), "{why}");
    assert!(it.nodes.stat("/d").await.unwrap().is_some());
}

/// Two sessions that are opened at once get two numbers, and the store's clock never goes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_opened_by_the_clock_as_it_is_when_the_wait_is_over_on_mariadb() {
    let it = OnMariaDb::start().await;
    let later = "UPDATE lock_recipes_clock SET number = 9000000000000000";
    it.other.run(later).await.unwrap();
    let store = MySql::builder().session_timeout(SESSION_TIMEOUT);
    let store = store.store(&it.server().url()).unwrap();
    let commits = async {
        it.until_a_call_waits().await;
        it.commit().await;
    };
    let (opened, ()) = tokio::join!(timeout(PATIENCE, store.connect()), commits);
    let id = opened.unwrap().unwrap().session();
    assert!(id > 9_000_000_000_000_000, "{id}");
}

/// Somebody ends the session while it goes on over a new connection. It must not count as heard once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_is_ended_while_it_comes_back_does_not_go_on_on_mariadb() {
    let it = OnMariaDb::start().await;
    let mut link = it.nodes.connection();
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(Connection::Ended(_))) {
            seen.push(link.next().await.unwrap());
        }
        seen
    });
    let id = it.nodes.session();
    let end = format!("DELETE FROM lock_recipes_sessions WHERE id = {id}");
    it.other.run(&end).await.unwrap();
    let other = it.other.numbers("SELECT CONNECTION_ID()").await[0];
    let connections = format!(
        "SELECT id FROM information_schema.processlist \
         WHERE id NOT IN (CONNECTION_ID(), {other}) AND db = 'locks'"
    );
    for row in it.server().sql(&connections).await.unwrap() {
        // It may have gone by itself when the other was killed.
        drop(it.server().sql(&format!("KILL {}", row[0])).await);
    }
    it.until_a_call_waits().await;
    it.commit().await;
    let seen = timeout(PATIENCE, seen).await.unwrap().unwrap();
    let ended = Connection::Ended(EndReason::Expired);
    assert!(seen.ends_with(&[ended]), "{seen:?}");
    // Of changes that follow each other at once, only the last may be seen.
    assert!(!seen.contains(&Connection::Connected), "{seen:?}");
}
