//! Users and their rights.

use lock_recipes::SessionOptions;
use recipes_core::internal::log::Causes;
use test_rig::EtcdServer;

use super::guide::block;
use super::{PATH, mutex, options, refused, shell};

/// A server with the user of the guide, and one who may only read.
async fn with_users() -> EtcdServer {
    let server = EtcdServer::start().await.unwrap();
    for line in block("../etcd.md", "service").lines() {
        let (command, _) = line.split_once(" #").unwrap_or((line, ""));
        shell(&server, command.strip_prefix("etcdctl ").unwrap()).await;
    }
    for line in [
        "role add watchers",
        "role grant-permission watchers --prefix=true read /app/",
        "role add writers",
        "role grant-permission writers --prefix=true write /app/",
        "user add watcher:watcher-secret",
        "user grant-role watcher watchers",
        "user add writer:writer-secret",
        "user grant-role writer writers",
        "user add root:root-secret",
        "user grant-role root root",
        "auth enable",
    ] {
        shell(&server, line).await;
    }
    server
}

fn url(server: &EtcdServer, user: &str) -> String {
    format!("etcd://{user}{}/app", server.address())
}

#[tokio::test]
async fn user_of_the_guide_locks_and_a_watcher_reads_on_etcd() {
    let server = with_users().await;
    let orders = url(&server, "orders:orders-secret@");
    let session = options().connect(&orders).await.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();

    let watcher = url(&server, "watcher:watcher-secret@");
    let reads = SessionOptions::new().read_only(true);
    let reader = lock_recipes::connect_with(&watcher, reads).await.unwrap();
    let queue = mutex(&reader).participants().await.unwrap();
    assert_eq!(queue.len(), 1, "{queue:?}");
    let refusal = mutex(&reader).acquire().await.unwrap_err();
    let told = Causes(&refusal).to_string();
    assert!(told.contains(PATH), "{told}");
    reader.close().await;

    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    session.close().await;
}

#[tokio::test]
async fn user_that_lacks_a_right_is_refused_and_told_which_on_etcd() {
    let server = with_users().await;
    for user in ["watcher:watcher-secret@", "writer:writer-secret@"] {
        let told = refused(&url(&server, user)).await;
        assert!(
            told.contains("may not read and write all keys below"),
            "{told}"
        );
        assert!(told.contains("/app"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
    // The prefix of somebody else.
    let elsewhere = url(&server, "orders:orders-secret@").replace("/app", "/other");
    let told = refused(&elsewhere).await;
    assert!(told.contains("\"/other"), "{told}");
}

#[tokio::test]
async fn user_without_the_password_is_refused_on_etcd() {
    let server = with_users().await;
    for user in ["", "orders:wrong-secret@", "nobody:secret@"] {
        let told = refused(&url(&server, user)).await;
        assert!(told.contains("etcd does not accept the user"), "{told}");
        assert!(!told.contains("secret"), "{told}");
    }
}
