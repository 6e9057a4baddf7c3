//! A schema that is new on a server that is old may stand for one that was dropped while others held locks. One that
//! was restored brings back what was before.

use std::time::Duration;

use lock_recipes::{Error, InterProcessMutex, MySql, Postgres, Session};
use test_rig::{MariaDbServer, PostgresServer};
use tokio::time::Instant;

use super::on_mariadb::until;

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
/// In seconds. Whoever held a lock before such a server was started has noticed.
const OLD_S: u64 = 4;

/// Connects and takes a lock.
async fn assert_waits(connected: impl Future<Output = Result<Session, Error>>) {
    let begun = Instant::now();
    let session = connected.await.unwrap();
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let waited = begun.elapsed();
    assert!(waited >= SESSION_TIMEOUT * 3 / 4, "{waited:?}");
    session.close().await;
}

#[tokio::test]
async fn new_schema_on_an_old_postgres_grants_no_lock_at_once() {
    let server = PostgresServer::start().await.unwrap();
    let is_old = async || {
        let age =
            "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::bigint";
        let age = server.sql(age).await.unwrap();
        age[0][0].parse::<u64>().unwrap() > OLD_S
    };
    until("a server that is old", is_old).await;
    let builder = Postgres::builder().session_timeout(SESSION_TIMEOUT);
    assert_waits(builder.connect(&server.url())).await;
}

#[tokio::test]
async fn new_tables_on_an_old_mariadb_grant_no_lock_at_once() {
    let server = MariaDbServer::start().await.unwrap();
    let is_old = async || {
        let uptime = server
            .sql("SHOW GLOBAL STATUS LIKE 'Uptime'")
            .await
            .unwrap();
        uptime[0][1].parse::<u64>().unwrap() > OLD_S
    };
    until("a server that is old", is_old).await;
    let builder = MySql::builder().session_timeout(SESSION_TIMEOUT);
    assert_waits(builder.connect(&server.url())).await;
}

/// As from a dump: all that the tables have, in tables that are made anew.
#[tokio::test]
async fn schema_that_was_restored_on_postgres_grants_no_lock_at_once() {
    let server = PostgresServer::start().await.unwrap();
    let builder = || Postgres::builder().session_timeout(SESSION_TIMEOUT);
    let first = builder().new_server().connect(&server.url()).await.unwrap();
    first.close().await;
    for statements in [
        "CREATE TABLE dump AS SELECT * FROM lock_recipes.clock",
        "DROP SCHEMA lock_recipes CASCADE",
        &Postgres::schema("lock_recipes").unwrap(),
        "DELETE FROM lock_recipes.clock",
        "INSERT INTO lock_recipes.clock SELECT * FROM dump",
    ] {
        server.sql(statements).await.unwrap();
    }
    assert_waits(builder().connect(&server.url())).await;
}

#[tokio::test]
async fn tables_that_were_restored_on_mariadb_grant_no_lock_at_once() {
    let server = MariaDbServer::start().await.unwrap();
    let builder = || MySql::builder().session_timeout(SESSION_TIMEOUT);
    let first = builder().new_server().connect(&server.url()).await.unwrap();
    first.close().await;
    let old = "SELECT TIMESTAMPDIFF(SECOND, CREATE_TIME, NOW()) FROM information_schema.TABLES
        WHERE TABLE_NAME = 'lock_recipes_clock'";
    // It tells tables apart by the second in which they were made.
    let is_old = async || server.sql(old).await.unwrap()[0][0].parse::<u64>().unwrap() > 1;
    until("tables that are old", is_old).await;
    for statement in [
        "CREATE TABLE dump LIKE lock_recipes_clock",
        "INSERT INTO dump SELECT * FROM lock_recipes_clock",
        "DROP TABLE lock_recipes_clock",
        "CREATE TABLE lock_recipes_clock LIKE dump",
        "INSERT INTO lock_recipes_clock SELECT * FROM dump",
    ] {
        server.sql(statement).await.unwrap();
    }
    assert_waits(builder().connect(&server.url())).await;
}

/// Otherwise sessions of two zones would take the store for two, and begin a quarantine whenever one comes.
#[tokio::test]
async fn run_of_the_tables_is_the_same_in_every_time_zone_on_mariadb() {
    let server = MariaDbServer::start().await.unwrap();
    let run = async |zone: &str| {
        let set = format!("SET GLOBAL time_zone = '{zone}'");
        server.sql(&set).await.unwrap();
        let session = MySql::builder().new_server().connect(&server.url()).await;
        session.unwrap().close().await;
        let run = "SELECT run FROM lock_recipes_clock";
        server.sql(run).await.unwrap()
    };
    let first = run("SYSTEM").await;
    assert_eq!(run("+05:00").await, first);
    assert_eq!(run("-11:00").await, first);
}

/// What is known of the run before is gone, and a quarantine with it: the run may be a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_goes_on_where_the_run_is_unknown_begins_a_quarantine_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    let builder = Postgres::builder().new_server();
    let builder = builder.session_timeout(Duration::from_secs(600));
    let session = builder.connect(&server.url()).await.unwrap();
    let ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE application_name = 'lock_recipes'";
    for statement in ["UPDATE lock_recipes.clock SET run = NULL", ends] {
        server.sql(statement).await.unwrap();
    }
    let is_known = async || {
        let known = "SELECT run IS NOT NULL FROM lock_recipes.clock";
        server.sql(known).await.unwrap() == [["t"]]
    };
    until("a session that goes on", is_known).await;
    // By the store's clock, which has been running for some seconds at most.
    let quarantine = "SELECT quarantine - own > 300000000 FROM lock_recipes.clock";
    assert_eq!(server.sql(quarantine).await.unwrap(), [["t"]]);
    session.close().await;
}
