//! A server at a Unix socket.

use std::time::Duration;

use lock_recipes::{ConnectError, Error, Redis};
use test_rig::RedisServer;

use super::refused::chain;
use super::{mutex, options, take_and_give_back, verified};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_at_a_socket_go_on_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b.sock").display().to_string();
    let server = RedisServer::builder()
        .setting("unixsocket", &format!("\"{path}\""))
        .setting("requirepass", "secret");
    let server = server.start().await.unwrap();
    let path = path.replace(' ', "%20");
    let url = format!("redis+unix://:secret@{path}?db=2&prefix=orders");
    let opened = options(Duration::from_secs(40)).connect(&url).await;
    let session = opened.unwrap();
    take_and_give_back(&session).await;
    let databases: String = server.command(&["INFO", "keyspace"]).await.unwrap();
    assert!(
        databases.contains("db2:") && !databases.contains("db0:"),
        "{databases}"
    );
    let guard = mutex(&session).acquire().await.unwrap();
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    verified(&guard).await;
    guard.release().await.unwrap();
    assert_eq!(session.epoch(), 1);
}

/// As of a host at which nobody listens.
#[tokio::test]
async fn socket_that_is_not_there_or_at_which_nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let url = format!("redis+unix://{}?db=1", path.display());
    for says in [
        "No such file or directory (os error 2)",
        "Connection refused (os error 111)",
    ] {
        let builder = Redis::builder().connect_timeout(Duration::from_secs(2));
        let error = builder.connect(&url).await.unwrap_err();
        assert!(
            matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
            "{error}"
        );
        let text = chain(&error);
        assert!(text.contains(&url) && text.ends_with(says), "{text}");
        if !path.exists() {
            // What a server leaves that was killed.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        }
    }
}
