//! The new primary is found, and the session goes on there.

use std::time::Duration;

use lock_recipes::{ConnectError, Error, GuardState, Redis};
use test_rig::RedisServer;
use tokio::time::timeout;

use super::refused::chain;
use super::{PATIENCE, mutex, take_and_give_back, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_goes_on_at_the_primary_that_sentinel_names() {
    let primary = RedisServer::start().await.unwrap();
    let replica = RedisServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let sentinel = RedisServer::builder().sentinel("orders", &primary);
    let sentinel = sentinel.start().await.unwrap();
    until("the replica", async || {
        let info: String = sentinel.command(&["INFO", "sentinel"]).await.unwrap();
        info.contains("slaves=1").then_some(())
    })
    .await;
    let url = format!("redis+sentinel://127.0.0.1:{}/orders", sentinel.port());
    let opened = Redis::builder()
        .session_timeout(Duration::from_secs(60))
        .new_server()
        .replicas(1)
        .connect(&url);
    let session = opened.await.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    let id = session.session_id();
    let token = guard.fencing_token();
    until("a Sentinel that knows what the replica has", async || {
        let failover = sentinel.command::<String>(&["SENTINEL", "FAILOVER", "orders"]);
        failover.await.ok()
    })
    .await;
    until("the new primary", async || {
        // It closes connections when its role changes.
        let role: String = replica.command(&["INFO", "replication"]).await.ok()?;
        role.contains("role:master").then_some(())
    })
    .await;
    until("the holder", async || {
        // It may have been lost in a slow failover, which is not what this test is about.
        (guard.state() == GuardState::Held && session.session_id() == id).then_some(())
    })
    .await;
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, mutex(&session).acquire()).await.unwrap();
    let next = next.unwrap();
    assert!(next.fencing_token() > token);
    assert_eq!(session.epoch(), 1);
    next.release().await.unwrap();
}

/// The Sentinel has a password of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_with_a_password_of_its_own() {
    let primary = RedisServer::start().await.unwrap();
    let sentinel = RedisServer::builder().sentinel("orders", &primary);
    let sentinel = sentinel.setting("requirepass", "watched");
    let sentinel = sentinel.start().await.unwrap();
    let url = format!("redis+sentinel://127.0.0.1:{}/orders", sentinel.port());
    let error = Redis::connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::Refused { .. })),
        "{error:?}"
    );
    let why = chain(&error);
    assert!(
        why.contains("Sentinel") && why.contains("sentinel-password"),
        "{why}"
    );
    let right = format!("{url}?sentinel-password=watched");
    let builder = Redis::builder().new_server();
    for opened in [
        builder.clone().connect(&right),
        builder.sentinel_password("watched").connect(&url),
    ] {
        let session = opened.await.unwrap();
        take_and_give_back(&session).await;
        session.close().await;
    }
}
