//! Each mistake of a user on PostgreSQL gets one clear error.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{ConnectError, Error, InterProcessMutex, Postgres, PostgresBuilder, Session};
use test_rig::PostgresServer;
use tokio::net::TcpListener;

/// An error with its causes.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The error of a server that will never do, in one line.
pub(super) async fn refused(builder: PostgresBuilder, url: &str) -> String {
    let error = builder.connect(url).await.unwrap_err();
    let text = chain(&error);
    assert!(
        matches!(error, Error::Connect(ConnectError::Refused { .. })),
        "{text}"
    );
    assert!(!text.contains('\n') && !text.contains("secret"), "{text}");
    text
}

async fn start() -> PostgresServer {
    PostgresServer::start().await.unwrap()
}

/// A server with a user `app`, whose URL comes with it.
async fn with_user() -> (PostgresServer, String) {
    let server = PostgresServer::builder().user("app", "secret");
    let server = server.start().await.unwrap();
    let url = server.url_of("app", "secret");
    (server, url)
}

async fn locks(session: &Session) {
    let mutex = InterProcessMutex::new(session, "/locks/orders").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn no_server() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let url = format!("postgres://app:secret@127.0.0.1:{port}/shop");
    let builder = Postgres::builder().connect_timeout(Duration::from_secs(2));
    let error = builder.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(
        text.contains(&format!("postgres://app:***@127.0.0.1:{port}/shop")),
        "{text}"
    );
    assert!(text.contains("Connection refused"), "{text}");
}

#[tokio::test]
async fn wrong_password_user_and_database() {
    let (server, _) = with_user().await;
    let wrong = server.url_of("app", "secreter");
    let why = refused(Postgres::builder(), &wrong).await;
    assert!(
        why.contains("does not accept the user or the password"),
        "{why}"
    );
    let why = refused(Postgres::builder(), &server.url_of("nobody", "secret")).await;
    assert!(
        why.contains("does not accept the user or the password"),
        "{why}"
    );
    let elsewhere = format!("{}_of_others", server.url());
    let why = refused(Postgres::builder(), &elsewhere).await;
    assert!(
        why.to_string()
            .contains("\"postgres_of_others\" does not exist"),
        "{why}"
    );
}

/// What no retry mends is told at once.
#[tokio::test]
async fn user_who_may_not_log_in_and_encryption_that_there_is_not() {
    let (server, url) = with_user().await;
    let plain = format!("{url}?sslmode=require");
    let why = refused(Postgres::builder(), &plain).await;
    assert!(why.contains("does not encrypt"), "{why}");
    let none = url.replace(":secret@", "@");
    let why = refused(Postgres::builder(), &none).await;
    assert!(why.contains("password missing"), "{why}");
    for (change, says) in [
        ("NOLOGIN", "not permitted to log in"),
        (
            "LOGIN VALID UNTIL '2020-01-01'",
            "password authentication failed",
        ),
    ] {
        let change = format!("ALTER ROLE app {change}");
        server.sql(&change).await.unwrap();
        let why = refused(Postgres::builder(), &url).await;
        assert!(why.contains(says), "{why}");
    }
}

#[tokio::test]
async fn user_who_may_not_create_the_schema() {
    let (server, url) = with_user().await;
    let why = refused(Postgres::builder(), &url).await;
    let says = "user \"app\" may not create schema \"lock_recipes\"";
    assert!(why.contains(says), "{why}");
    // Whoever may does.
    server
        .sql(&Postgres::schema("lock_recipes").unwrap())
        .await
        .unwrap();
    let why = refused(Postgres::builder(), &url).await;
    assert!(why.contains("grant USAGE on it"), "{why}");
    server
        .sql("GRANT USAGE ON SCHEMA lock_recipes TO app")
        .await
        .unwrap();
    let why = refused(Postgres::builder(), &url).await;
    assert!(why.contains("grant USAGE on it"), "{why}");
    let select = "GRANT SELECT ON ALL TABLES IN SCHEMA lock_recipes TO app";
    server.sql(select).await.unwrap();
    let why = refused(Postgres::builder(), &url).await;
    assert!(why.contains("INSERT"), "{why}");
    server
        .sql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_recipes FROM PUBLIC")
        .await
        .unwrap();
    // As it says.
    let all = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lock_recipes TO app";
    server.sql(all).await.unwrap();
    let why = refused(Postgres::builder(), &url).await;
    assert!(why.contains("EXECUTE on all of its functions"), "{why}");
    server
        .sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lock_recipes TO app")
        .await
        .unwrap();
    let session = Postgres::builder()
        .new_server()
        .connect(&url)
        .await
        .unwrap();
    locks(&session).await;
    session.close().await;
}

#[tokio::test]
async fn schema_that_is_missing_or_of_another_version() {
    let server = start().await;
    let strict = Postgres::builder().create_schema(false);
    let why = refused(strict.clone(), &server.url()).await;
    assert!(why.contains("\"lock_recipes\" does not exist"), "{why}");
    let url = format!("{}?schema=orders_locks", server.url());
    let session = Postgres::builder()
        .new_server()
        .connect(&url)
        .await
        .unwrap();
    locks(&session).await;
    session.close().await;
    server
        .sql("UPDATE orders_locks.meta SET version = 0")
        .await
        .unwrap();
    for builder in [strict, Postgres::builder()] {
        let why = refused(builder, &url).await;
        assert!(why.contains("\"orders_locks\" is of version 0"), "{why}");
    }
}

#[tokio::test]
async fn server_that_takes_no_writes() {
    let primary = PostgresServer::builder().read_only().start().await.unwrap();
    let why = refused(Postgres::builder(), &primary.url()).await;
    assert!(why.contains("is read-only"), "{why}");
    let replica = PostgresServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let why = refused(Postgres::builder(), &replica.url()).await;
    assert!(why.contains("is a replica"), "{why}");
}

#[tokio::test]
async fn database_that_cannot_have_every_path() {
    let server = start().await;
    let create = "CREATE DATABASE old ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    server.sql(create).await.unwrap();
    let url = server.url().replace("/postgres", "/old");
    let url = url
        .replace("old://", "postgres://")
        .replace("//old@", "//postgres@");
    let why = refused(Postgres::builder(), &url).await;
    assert!(why.contains("LATIN1"), "{why}");
}

#[tokio::test]
async fn limit_of_connections_is_reached() {
    let (server, url) = with_user().await;
    server
        .sql("GRANT CREATE ON DATABASE postgres TO app")
        .await
        .unwrap();
    server
        .sql("ALTER ROLE app CONNECTION LIMIT 3")
        .await
        .unwrap();
    let builder = Postgres::builder().new_server();
    let session = builder.clone().connect(&url).await.unwrap();
    let impatient = builder.clone().connect_timeout(Duration::from_secs(10));
    let error = impatient.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(
        text.contains("no more connections") && text.contains("max_connections"),
        "{text}"
    );
    // It goes on as soon as there is room.
    let waiting = tokio::spawn(async move { builder.connect(&url).await });
    session.close().await;
    locks(&waiting.await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn settings_of_the_server_that_do_not_suit_locks_are_made_for_the_session() {
    let server = PostgresServer::builder()
        .setting("fsync", "on")
        .setting("synchronous_commit", "off")
        .setting("default_transaction_isolation", "serializable")
        .setting("enable_indexscan", "off")
        .setting("statement_timeout", "60s")
        .start()
        .await
        .unwrap();
    let session = Postgres::builder()
        .new_server()
        .connect(&server.url())
        .await
        .unwrap();
    assert_eq!(session.guarantee(), lock_recipes::Guarantee::OneCopy);
    locks(&session).await;
    let unwatched = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lock_recipes'";
    assert_eq!(server.sql(unwatched).await.unwrap(), [["2"]]);
    session.close().await;
}

#[tokio::test]
async fn what_cannot_be_used_is_reported_before_anything_is_sent() {
    for (builder, url, says) in [
        (Postgres::builder(), "postgres://db:none/shop", "port"),
        (
            Postgres::builder().schema("Locks"),
            "postgres://db",
            "lower-case",
        ),
        (
            Postgres::builder().session_timeout(Duration::from_millis(9)),
            "postgres://db",
            "100ms to",
        ),
    ] {
        let error = builder.connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(chain(&error).contains(says), "{}", chain(&error));
    }
    assert!(Postgres::schema("a b").is_err());
}
