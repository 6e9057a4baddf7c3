//! The users of the guide for operators of PostgreSQL can do what it says, and no more.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, Postgres, SessionOptions};
use test_rig::PostgresServer;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::guide::block;
use super::reads::{assert_reads, assert_shows_no_silence, assert_shows_silence};
use super::refused_by_postgres::refused;

async fn connected(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// What the guide's query shows.
async fn locks_and_tokens(client: &Client) -> Vec<[String; 2]> {
    let query = block("postgres.md", "query");
    let rows = client.simple_query(&query).await.unwrap();
    let rows = rows.iter().filter_map(|it| match it {
        SimpleQueryMessage::Row(row) => {
            Some(["lock", "token"].map(|it| row.get(it).unwrap().to_owned()))
        }
        _ => None,
    });
    rows.collect()
}

#[tokio::test]
async fn service_takes_locks_and_a_watcher_reads_who_holds_them() {
    let names = ["locks_owner", "orders", "watcher"];
    let add = |server: test_rig::PostgresServerBuilder, name: &&str| server.user(name, "secret");
    let server = names.iter().fold(PostgresServer::builder(), add);
    let server = server.start().await.unwrap();
    let [owner, orders, watcher] = names.map(|name| server.url_of(name, "secret"));
    let run = async |name| {
        let statements = block("postgres.md", name).replace("DATABASE shop", "DATABASE postgres");
        server.sql(&statements).await.unwrap();
    };
    let strict = Postgres::builder().create_schema(false).new_server();
    // A busy machine loses no session with it.
    let strict = strict.session_timeout(Duration::from_secs(60));
    let why = refused(Postgres::builder(), &orders).await;
    assert!(why.contains("may not create schema"), "{why}");
    let why = refused(strict.clone(), &orders).await;
    assert!(why.contains("does not exist"), "{why}");

    run("owner").await;
    let schema = Postgres::schema("lock_recipes").unwrap();
    connected(&owner)
        .await
        .batch_execute(&schema)
        .await
        .unwrap();
    let why = refused(strict.clone(), &orders).await;
    assert!(why.contains("may not use schema"), "{why}");

    run("service").await;
    run("watcher").await;
    let session = strict.clone().connect(&orders).await.unwrap();
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let guard = lock.acquire().await.unwrap();

    let client = connected(&watcher).await;
    assert_eq!(
        locks_and_tokens(&client).await,
        [["/locks/orders", &guard.fencing_token().to_string()]]
    );
    for statement in [
        "DELETE FROM lock_recipes.nodes",
        "SELECT name FROM lock_recipes.nodes FOR UPDATE",
        "SELECT name FROM lock_recipes.sessions",
        guard.fence().unwrap().sql(),
    ] {
        let error = client.batch_execute(statement).await.unwrap_err();
        let code = error.code();
        assert_eq!(code, Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{statement}");
    }
    let why = refused(strict, &watcher).await;
    assert!(why.contains("may not use schema"), "{why}");
    assert_reads(&watcher, &guard).await;
    let silence = async || {
        let late = "UPDATE lock_recipes.sessions
            SET deadline = (SELECT max(own) FROM lock_recipes.clock) + timeout / 10 * 4";
        server.sql(late).await.unwrap();
    };
    assert_shows_no_silence(&watcher, &guard, silence).await;
    run("silence").await;
    assert_shows_silence(&watcher, &guard, silence).await;
    let secret = client.batch_execute("SELECT name FROM lock_recipes.sessions");
    secret.await.unwrap_err();
    server
        .sql("REVOKE SELECT ON lock_recipes.counts FROM watcher")
        .await
        .unwrap();
    let reads = SessionOptions::new().read_only(true);
    let why = refused(reads.into(), &watcher).await;
    assert!(
        why.contains("may not read schema \"lock_recipes\""),
        "{why}"
    );
    guard.release().await.unwrap();
    session.close().await;
}
