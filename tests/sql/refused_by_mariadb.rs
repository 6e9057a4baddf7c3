//! Each mistake of a user on MariaDB gets one clear error.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{
    ConnectError, Error, Guarantee, InterProcessMutex, MySql, MySqlBuilder, MySqlRefusal, Session,
};
use test_rig::{Durability, MariaDbServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// An error with its causes.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The error of a server that will never do, in one line.
pub(super) async fn refused(builder: MySqlBuilder, url: &str) -> String {
    let error = builder.connect(url).await.unwrap_err();
    let text = chain(&error);
    assert!(
        matches!(error, Error::Connect(ConnectError::Refused { .. })),
        "{text}"
    );
    assert!(!text.contains('\n') && !text.contains("secret"), "{text}");
    text
}

/// A server with a user `app`, whose URL comes with it.
async fn with_user() -> (MariaDbServer, String) {
    let server = MariaDbServer::builder().user("app", "secret");
    let server = server.start().await.unwrap();
    let url = server.url_of("app", "secret");
    (server, url)
}

/// Carries out what a person gives to the client.
async fn carry_out(server: &MariaDbServer, script: &str) {
    server.sql(&format!("DELIMITER ;\n{script}")).await.unwrap();
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
    let url = format!("mysql://app:secret@127.0.0.1:{port}/shop");
    let builder = MySql::builder().connect_timeout(Duration::from_secs(2));
    let error = builder.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    let shown = format!("mysql://app:***@127.0.0.1:{port}/shop");
    assert!(text.contains(&shown), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
}

#[tokio::test]
async fn wrong_password_user_and_database() {
    let (server, url) = with_user().await;
    for wrong in [
        server.url_of("app", "secreter"),
        server.url_of("nobody", "secret"),
    ] {
        let why = refused(MySql::builder(), &wrong).await;
        assert!(why.contains("does not accept user or password"), "{why}");
    }
    let why = refused(MySql::builder(), &url).await;
    assert!(why.contains("the database cannot be used"), "{why}");
    let elsewhere = server.url().replace("/locks", "/shop");
    let why = refused(MySql::builder(), &elsewhere).await;
    assert!(why.contains("Unknown database 'shop'"), "{why}");
}

/// What no retry mends is told at once.
#[tokio::test]
async fn account_that_is_locked_or_expired_and_encryption_that_there_is_not() {
    let (server, url) = with_user().await;
    server.sql("GRANT ALL ON locks.* TO app@'%'").await.unwrap();
    let plain = format!("{url}?ssl-mode=required");
    let why = refused(MySql::builder(), &plain).await;
    assert!(why.contains("does not encrypt"), "{why}");
    for (change, says) in [
        ("ACCOUNT LOCK", "account is locked"),
        ("ACCOUNT UNLOCK PASSWORD EXPIRE", "password"),
    ] {
        server
            .sql(&format!("ALTER USER app {change}"))
            .await
            .unwrap();
        let why = refused(MySql::builder(), &url).await;
        assert!(why.contains("does not accept user or password"), "{why}");
        assert!(why.to_lowercase().contains(says), "{why}");
    }
}

/// A packet, with the number that it has in a conversation.
fn packet(number: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[length, 0, 0, number][..], &body].concat()
}

async fn heard(stream: &mut TcpStream) -> Vec<u8> {
    let length = usize::from(stream.read_u16_le().await.unwrap());
    // The rest of the length, and the number of the packet.
    stream.read_u16_le().await.unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    body
}

/// The server says how a user logs in. Debian has the plugin for it in another package than the server.
async fn let_in_by_ed25519(mut stream: TcpStream) -> usize {
    // Protocol 4.1, a database, transactions, plugins.
    let capabilities: [&[u8]; 4] = [&[0x09, 0xa2], &[63], &[2, 0], &[0x08, 0]];
    let greeting: [&[u8]; 5] = [
        b"\x0a5.5.5-10.11.0-MariaDB\0",
        &[1, 0, 0, 0],
        b"12345678\0",
        &capabilities.concat(),
        &[21],
    ];
    let plugin = b"\0\0\0\0\0\0\0\0\0\x00123456789012\0mysql_native_password\0";
    let greeting = packet(0, &[&greeting.concat(), plugin]);
    stream.write_all(&greeting).await.unwrap();
    heard(&mut stream).await;
    let switch = packet(2, &[b"\xfeclient_ed25519\0", &[7; 32]]);
    stream.write_all(&switch).await.unwrap();
    let signature = heard(&mut stream).await;
    let denied = packet(4, &[b"\xff\x15\x04#28000Access denied"]);
    stream.write_all(&denied).await.unwrap();
    signature.len()
}

#[tokio::test]
async fn user_of_the_plugin_ed25519_logs_in_with_a_signature() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("mysql://app:secret@{}/shop", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let_in_by_ed25519(stream).await
    });
    let why = refused(MySql::builder(), &url).await;
    assert!(why.contains("does not accept user or password"), "{why}");
    assert_eq!(server.await.unwrap(), 64);
}

#[tokio::test]
async fn user_who_may_not_create_the_schema() {
    let (server, url) = with_user().await;
    let rights = "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON locks.* TO app@'%'";
    server.sql(rights).await.unwrap();
    let why = refused(MySql::builder(), &url).await;
    assert!(
        why.contains("a right is missing (CREATE command denied"),
        "{why}"
    );
    let why = refused(MySql::builder().create_schema(false), &url).await;
    assert!(why.contains("`MySql::schema` returns"), "{why}");
    // Whoever may does.
    carry_out(&server, &MySql::schema("lock_recipes_").unwrap()).await;
    let builder = MySql::builder().create_schema(false).new_server();
    let session = builder.connect(&url).await.unwrap();
    locks(&session).await;
    session.close().await;
    server
        .sql("REVOKE EXECUTE ON locks.* FROM app@'%'")
        .await
        .unwrap();
    let why = refused(MySql::builder(), &url).await;
    assert!(
        why.contains("a right is missing (execute command denied"),
        "{why}"
    );
}

#[tokio::test]
async fn schema_of_another_version_or_incomplete() {
    let server = MariaDbServer::start().await.unwrap();
    let url = format!("{}?prefix=orders_", server.url());
    let session = MySql::builder().new_server().connect(&url).await.unwrap();
    locks(&session).await;
    session.close().await;
    // All that is there is left alone.
    carry_out(&server, &MySql::schema("orders_").unwrap()).await;
    server
        .sql("UPDATE orders_meta SET version = 99")
        .await
        .unwrap();
    for builder in [MySql::builder().create_schema(false), MySql::builder()] {
        let why = refused(builder, &url).await;
        assert!(why.contains("tables of orders_ have schema 99"), "{why}");
    }
    let drop = "UPDATE orders_meta SET version = 4; $$END$$ DROP PROCEDURE orders_enter";
    server.sql(drop).await.unwrap();
    let why = refused(MySql::builder().create_schema(false), &url).await;
    assert!(why.contains("9 of 10 procedures are there"), "{why}");
    // Who may creates what is missing.
    let session = MySql::builder().connect(&url).await.unwrap();
    locks(&session).await;
    session.close().await;
}

#[tokio::test]
async fn server_that_takes_no_writes() {
    let server = MariaDbServer::builder().read_only().start().await.unwrap();
    let why = refused(MySql::builder(), &server.url()).await;
    assert!(
        why.contains("is read-only: connect to the primary"),
        "{why}"
    );
}

#[tokio::test]
async fn server_that_becomes_read_only_is_waited_for() {
    let server = MariaDbServer::builder()
        .user("app", "secret")
        .start()
        .await
        .unwrap();
    server.sql("GRANT ALL ON locks.* TO app@'%'").await.unwrap();
    let url = server.url_of("app", "secret");
    let session = MySql::builder().new_server().connect(&url).await.unwrap();
    locks(&session).await;
    server.set_read_only(true).await.unwrap();
    let mutex = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let waiting = tokio::spawn(mutex.acquire());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    server.set_read_only(false).await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    session.close().await;
}

#[tokio::test]
async fn limit_of_connections_is_reached() {
    let (server, url) = with_user().await;
    server.sql("GRANT ALL ON locks.* TO app@'%'").await.unwrap();
    server
        .sql("ALTER USER app WITH MAX_USER_CONNECTIONS 3")
        .await
        .unwrap();
    let builder = MySql::builder().new_server();
    let session = builder.clone().connect(&url).await.unwrap();
    let impatient = builder.clone().connect_timeout(Duration::from_secs(10));
    let error = impatient.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(
        text.contains("no connection is left") && text.contains("max_connections"),
        "{text}"
    );
    // It goes on as soon as there is room.
    let waiting = tokio::spawn(async move { builder.connect(&url).await });
    session.close().await;
    locks(&waiting.await.unwrap().unwrap()).await;
}

#[tokio::test]
async fn settings_of_the_server_that_do_not_suit_locks_are_made_for_the_session() {
    let server = MariaDbServer::builder()
        .setting("autocommit", "OFF")
        .setting("transaction_isolation", "SERIALIZABLE")
        .setting(
            "sql_mode",
            "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
        )
        .setting("group_concat_max_len", "4")
        .setting("character_set_server", "latin1")
        .setting("default_time_zone", "+05:30")
        .setting("innodb_rollback_on_timeout", "ON")
        .setting("log_bin", "ON")
        .start()
        .await
        .unwrap();
    let session = MySql::builder()
        .new_server()
        .connect(&server.url())
        .await
        .unwrap();
    let path = "/locks/größe ✓";
    let mutex = InterProcessMutex::new(&session, path).unwrap();
    let guard = mutex.acquire().await.unwrap();
    assert!(mutex.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    session.close().await;
}

#[tokio::test]
async fn log_of_statements() {
    let server = MariaDbServer::builder().setting("log_bin", "ON");
    let server = server.setting("binlog_format", "STATEMENT");
    let server = server.start().await.unwrap();
    let why = refused(MySql::builder(), &server.url()).await;
    assert!(why.contains("binlog_format"), "{why}");
}

#[tokio::test]
async fn guarantee_is_that_of_the_server() {
    for (durability, guarantee) in [
        (Durability::Flushed, Guarantee::OneCopy),
        (Durability::Written, Guarantee::BestEffort),
    ] {
        let server = MariaDbServer::builder()
            .durability(durability)
            .start()
            .await
            .unwrap();
        let session = MySql::builder()
            .new_server()
            .connect(&server.url())
            .await
            .unwrap();
        assert_eq!(session.guarantee(), guarantee, "{durability:?}");
        session.close().await;
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_reported_before_anything_is_sent() {
    for (builder, url, says) in [
        (MySql::builder(), "mysql://db:none/shop", "no URL"),
        (MySql::builder(), "mysql://db", "names no database"),
        (
            MySql::builder().prefix("a-b"),
            "mysql://db/shop",
            "letters, digits",
        ),
        (
            MySql::builder().session_timeout(Duration::from_millis(9)),
            "mysql://db/shop",
            "100ms to",
        ),
    ] {
        let error = builder.connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(chain(&error).contains(says), "{}", chain(&error));
    }
    assert!(MySql::schema("a b").is_err());
    let found = MySqlRefusal::Version {
        found: "8.0.36".to_owned(),
    };
    assert!(found.to_string().contains("MariaDB 10.6"));
}
