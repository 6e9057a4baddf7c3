//! A server of PostgreSQL at a Unix socket.

use std::time::Duration;

use lock_recipes::{ConnectError, Error, InterProcessMutex, Postgres};
use test_rig::PostgresServer;

use super::refused_by_postgres::chain;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_at_a_socket_go_on_over_a_restart() {
    let server = PostgresServer::builder()
        .setting("listen_addresses", "127.0.0.1")
        // In the folder of its data.
        .setting("unix_socket_directories", ".");
    let server = server.start().await.unwrap();
    let folder = server.sql("SHOW data_directory").await.unwrap();
    let (folder, port) = (&folder[0][0], server.port());
    let encoded = folder.replace('/', "%2F");
    let parameter = format!("postgres://postgres@/postgres?host={folder}&port={port}");
    for (url, restarts) in [
        // What stays on the machine is not encrypted.
        (format!("{parameter}&sslmode=require"), false),
        (
            format!("postgres://postgres@{encoded}:{port}/postgres"),
            true,
        ),
    ] {
        let builder = Postgres::builder().session_timeout(Duration::from_secs(40));
        let session = builder.new_server().connect(&url).await.unwrap();
        let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
        let guard = lock.acquire().await.unwrap();
        let here = "SELECT DISTINCT client_addr IS NULL FROM pg_stat_activity \
                    WHERE application_name = 'lock_recipes'";
        assert_eq!(server.sql(here).await.unwrap(), [["t"]]);
        if restarts {
            server.stop().await.unwrap();
            server.start_again().await.unwrap();
        }
        guard.release().await.unwrap();
        assert_eq!(session.epoch(), 1);
        session.close().await;
    }
}

/// As of a host at which nobody listens.
#[tokio::test]
async fn socket_that_is_not_there_on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!(
        "postgres://app:secret@/shop?host={}",
        folder.path().display()
    );
    let builder = Postgres::builder().connect_timeout(Duration::from_secs(2));
    let error = builder.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(text.contains(&url.replace("secret", "***")), "{text}");
    assert!(
        text.ends_with("No such file or directory (os error 2)"),
        "{text}"
    );
}
