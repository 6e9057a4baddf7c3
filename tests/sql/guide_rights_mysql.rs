//! The users of the guide for operators of MySQL and MariaDB can do what it says, and no more.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, MySql, SessionOptions};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use test_rig::{MariaDbServer, MariaDbServerBuilder};

use super::guide::block;
use super::reads::{assert_reads, assert_shows_no_silence, assert_shows_silence};
use super::refused_by_mariadb::refused;

async fn connected(url: &str) -> Conn {
    Conn::from_url(url).await.unwrap()
}

/// As the client of the server does, to which a person gives it.
async fn carry_out(connection: &mut Conn, script: &str) {
    let is_statement = |line: &&str| !line.trim_start().starts_with("--");
    let script: Vec<_> = script.lines().filter(is_statement).collect();
    let script = format!("DELIMITER ;\n{}", script.join("\n"));
    for part in script.split("DELIMITER ").skip(1) {
        let (delimiter, statements) = part.split_once('\n').unwrap();
        let statements = statements.split(delimiter).map(str::trim);
        for statement in statements.filter(|it| !it.is_empty()) {
            connection.query_drop(statement).await.unwrap();
        }
    }
}

#[tokio::test]
async fn service_takes_locks_and_a_watcher_reads_who_holds_them() {
    let names = ["locks_owner", "orders", "watcher"];
    let add = |server: MariaDbServerBuilder, name: &&str| server.user(name, "secret");
    let server = names.iter().fold(MariaDbServer::builder(), add);
    let server = server.start().await.unwrap();
    let [owner, orders, watcher] = names.map(|name| server.url_of(name, "secret"));
    let run = async |name| server.sql(&block("mysql.md", name)).await.unwrap();
    let strict = MySql::builder().create_schema(false).new_server();
    // A busy machine loses no session with it.
    let strict = strict.session_timeout(Duration::from_secs(60));
    let why = refused(strict.clone(), &orders).await;
    assert!(why.contains("the database cannot be used"), "{why}");

    run("owner").await;
    let schema = MySql::schema("lock_recipes_").unwrap();
    carry_out(&mut connected(&owner).await, &schema).await;

    run("service").await;
    run("watcher").await;
    let session = strict.clone().connect(&orders).await.unwrap();
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let guard = lock.acquire().await.unwrap();

    let mut client = connected(&watcher).await;
    let rows: Vec<Row> = client.query(block("mysql.md", "query")).await.unwrap();
    let told = |row: &Row| (row.get("path").unwrap(), row.get("token").unwrap());
    let told: Vec<(String, i64)> = rows.iter().map(told).collect();
    let token = guard.fencing_token().as_i64();
    assert_eq!(told, [("/locks/orders".to_owned(), token)]);
    for statement in [
        "DELETE FROM lock_recipes_nodes",
        "SELECT * FROM lock_recipes_sessions",
    ] {
        let error = client.query_drop(statement).await.unwrap_err();
        assert!(error.to_string().contains("denied"), "{error}");
    }
    assert_reads(&watcher, &guard).await;
    let silence = async || {
        let late = "UPDATE locks.lock_recipes_beats b, locks.lock_recipes_sessions s, locks.lock_recipes_clock k
            SET b.deadline = k.own + s.timeout DIV 10 * 4 WHERE s.id = b.session";
        server.sql(late).await.unwrap();
    };
    assert_shows_no_silence(&watcher, &guard, silence).await;
    run("silence").await;
    assert_shows_silence(&watcher, &guard, silence).await;
    let mut client = connected(&watcher).await;
    let secret = client.query_drop("SELECT secret FROM lock_recipes_sessions");
    secret.await.unwrap_err();
    let why = refused(strict.clone(), &watcher).await;
    assert!(why.contains("a right is missing"), "{why}");
    server
        .sql("GRANT SELECT, EXECUTE ON locks.* TO watcher@'%'")
        .await
        .unwrap();
    let why = refused(strict, &watcher).await;
    // INSERT, or on MySQL a SELECT that locks.
    assert!(why.contains("command denied"), "{why}");
    server
        .sql(
            "REVOKE SELECT, EXECUTE ON locks.* FROM watcher@'%';
             REVOKE SELECT ON locks.lock_recipes_nodes FROM watcher@'%'",
        )
        .await
        .unwrap();
    let reads = SessionOptions::new().read_only(true);
    let why = refused(reads.into(), &watcher).await;
    assert!(why.contains("a right is missing"), "{why}");
    guard.release().await.unwrap();
    session.close().await;
}
