//! The life of sessions of the in-memory ensemble.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use recipes_core::{Connection, EndReason, NodeEvent, NodeOp};
use test_rig::MemoryEnsemble;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, timeout};

use crate::common::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn expiring() -> MemoryEnsemble {
    MemoryEnsemble::builder().session_timeout(TIMEOUT).build()
}

#[tokio::test]
async fn sessions_have_ids_of_their_own() {
    let ensemble = MemoryEnsemble::builder().without_session_timeout().build();
    let (first, second) = (connect(&ensemble).await, connect(&ensemble).await);
    assert_ne!(first.session(), second.session());
    assert_eq!(ensemble.sessions(), [first.session(), second.session()]);
    assert_eq!(first.session_timeout(), None);
    assert_eq!(connect(&expiring()).await.session_timeout(), Some(TIMEOUT));
}

#[tokio::test]
async fn sessions_have_a_timeout_by_default() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    let of_real_sessions = Duration::from_secs(12);
    assert_eq!(nodes.session_timeout(), Some(of_real_sessions));
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_session() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    nodes.create(&persistent("/p")).await.unwrap();
    let mut connection = nodes.connection();
    drop(nodes.clone());
    assert!(ensemble.exists("/e"));
    drop(nodes);
    assert_eq!(ensemble.children("/"), ["p"]);
    assert!(ensemble.sessions().is_empty());
    assert_eq!(
        connection.next().await,
        Some(Connection::Ended(EndReason::Closed))
    );
    assert_eq!(connection.next().await, None);
}

#[tokio::test]
async fn expiry_removes_the_ephemeral_nodes_of_its_session_only_in_one_transaction() {
    let ensemble = MemoryEnsemble::new();
    let (nodes, other) = (connect(&ensemble).await, connect(&ensemble).await);
    for path in ["/a", "/b"] {
        nodes.create(&ephemeral(path)).await.unwrap();
    }
    other.create(&ephemeral("/c")).await.unwrap();
    let before = ensemble.zxid();
    assert!(ensemble.expire(nodes.session()));
    assert_eq!(ensemble.zxid(), before + 1);
    assert_eq!(ensemble.children("/"), ["c"]);
    assert!(!ensemble.expire(nodes.session()));
    assert!(!ensemble.expire(0));
}

#[tokio::test]
async fn expired_session_fails_what_it_asked_for_and_what_it_asks_for() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let node = ephemeral("/e");
    let before = nodes.create(&node);
    ensemble.expire(nodes.session());
    assert_eq!(kind(before.await), "session ended");
    assert_eq!(kind(nodes.create(&node).await), "session ended");
    assert_eq!(kind(nodes.read("/").await), "session ended");
    assert!(!ensemble.exists("/e"));
    let transaction = nodes.multi(vec![NodeOp::Create(node)]);
    assert_eq!(transaction.await.unwrap_err().index, None);
}

#[tokio::test]
async fn expired_session_fails_requests_that_wait_for_the_connection() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    let node = persistent("/a");
    let waiting = nodes.create(&node);
    ensemble.expire(nodes.session());
    ensemble.reconnect(nodes.session());
    assert_eq!(kind(waiting.await), "session ended");
    assert!(!ensemble.exists("/a"));
}

#[tokio::test]
async fn connection_tells_every_change() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let mut connection = nodes.connection();
    assert!(connection.next().now_or_never().is_none());
    assert!(ensemble.disconnect(nodes.session()));
    assert_eq!(connection.next().await, Some(Connection::Disconnected));
    assert_eq!(
        nodes.connection().next().await,
        Some(Connection::Disconnected)
    );
    assert!(ensemble.reconnect(nodes.session()));
    assert_eq!(connection.next().await, Some(Connection::Connected));
    assert!(nodes.connection().next().now_or_never().is_none());
    ensemble.disconnect(nodes.session());
    ensemble.expire(nodes.session());
    assert_eq!(
        connection.next().await,
        Some(Connection::Ended(EndReason::Expired))
    );
    assert_eq!(connection.next().await, None);
    let mut late = nodes.connection();
    assert_eq!(
        late.next().await,
        Some(Connection::Ended(EndReason::Expired))
    );
    assert_eq!(late.next().await, None);
    assert!(!ensemble.disconnect(nodes.session()));
    assert!(!ensemble.reconnect(nodes.session()));
}

#[tokio::test(start_paused = true)]
async fn disconnected_session_expires_after_its_timeout() {
    let ensemble = expiring();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    let mut connection = nodes.connection();
    ensemble.disconnect(nodes.session());
    assert_eq!(connection.next().await, Some(Connection::Disconnected));
    advance(TIMEOUT - Duration::from_millis(1)).await;
    assert!(ensemble.exists("/e"));
    ensemble.disconnect(nodes.session());
    advance(Duration::from_millis(1)).await;
    assert!(
        !ensemble.exists("/e"),
        "a second cut does not start it again"
    );
    assert_eq!(
        connection.next().await,
        Some(Connection::Ended(EndReason::Expired))
    );
}

#[tokio::test(start_paused = true)]
async fn expiry_wakes_those_who_wait_though_nobody_looks() {
    let ensemble = expiring();
    let (nodes, other) = (connect(&ensemble).await, connect(&ensemble).await);
    nodes.create(&ephemeral("/e")).await.unwrap();
    let watch = set_watch(&*other, "/e").await;
    let start = Instant::now();
    ensemble.disconnect(nodes.session());
    assert_eq!(watch.await, NodeEvent::Deleted);
    assert!(start.elapsed() >= TIMEOUT);
    assert!(start.elapsed() < TIMEOUT + Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn session_that_reconnects_in_time_lives_on() {
    let ensemble = expiring();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    for _ in 0..3 {
        ensemble.disconnect(nodes.session());
        advance(TIMEOUT - Duration::from_millis(1)).await;
        ensemble.reconnect(nodes.session());
    }
    advance(10 * TIMEOUT).await;
    nodes.sync("/").await.unwrap();
    assert!(ensemble.exists("/e"));
}

#[tokio::test(start_paused = true)]
async fn sessions_without_timeout_never_expire() {
    let ensemble = MemoryEnsemble::builder().without_session_timeout().build();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    ensemble.disconnect(nodes.session());
    advance(Duration::from_secs(365 * 24 * 3600)).await;
    yield_now().await;
    assert!(ensemble.exists("/e"));
    ensemble.reconnect(nodes.session());
    nodes.sync("/").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn close_while_disconnected_reaches_nobody_until_reconnection_or_timeout() {
    let ensemble = expiring();
    let (first, second) = (connect(&ensemble).await, connect(&ensemble).await);
    first.create(&ephemeral("/first")).await.unwrap();
    second.create(&ephemeral("/second")).await.unwrap();
    let ids = [first.session(), second.session()];
    for id in ids {
        ensemble.disconnect(id);
    }
    drop(first.delete("/first"));
    drop((first, second));
    assert_eq!(ensemble.children("/"), ["first", "second"]);
    assert_eq!(ensemble.sessions(), ids);
    ensemble.reconnect(ids[0]);
    assert_eq!(ensemble.children("/"), ["second"]);
    advance(TIMEOUT).await;
    assert!(ensemble.children("/").is_empty());
    assert!(ensemble.sessions().is_empty());
}

#[tokio::test]
async fn client_may_give_its_session_up_before_the_ensemble_does() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    let own = set_watch(&*nodes, "/e").await;
    let mut connection = nodes.connection();
    assert!(ensemble.end_client(nodes.session(), EndReason::AuthFailed));
    assert_eq!(
        connection.next().await,
        Some(Connection::Ended(EndReason::AuthFailed))
    );
    assert_eq!(fired(own), NodeEvent::SessionEnded);
    assert_eq!(kind(nodes.sync("/").await), "session ended");
    ensemble.reconnect(nodes.session());
    assert_eq!(kind(nodes.sync("/").await), "session ended");
    let next = connect(&ensemble).await;
    let stat = next.read("/e").await.unwrap().unwrap().1;
    assert_eq!(stat.ephemeral_owner, nodes.session());
    assert!(ensemble.expire(nodes.session()));
    assert!(!ensemble.exists("/e"));
    assert_eq!(ensemble.sessions(), [next.session()]);
}

#[tokio::test(start_paused = true)]
async fn session_given_up_by_its_client_expires_after_its_timeout() {
    let ensemble = expiring();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    ensemble.end_client(nodes.session(), EndReason::Expired);
    drop(nodes);
    assert!(ensemble.exists("/e"));
    advance(TIMEOUT).await;
    assert!(!ensemble.exists("/e"));
}

#[tokio::test(start_paused = true)]
async fn stopped_ensemble_counts_no_timeouts_and_keeps_its_nodes() {
    let ensemble = expiring();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    let mut connection = nodes.connection();
    ensemble.stop();
    assert_eq!(connection.next().await, Some(Connection::Disconnected));
    let node = persistent("/p");
    let mut waiting = nodes.create(&node);
    advance(5 * TIMEOUT).await;
    assert!((&mut waiting).now_or_never().is_none());
    let before = ensemble.zxid();
    ensemble.restart();
    assert_eq!(connection.next().await, Some(Connection::Connected));
    let created = waiting.await.unwrap();
    assert_eq!(ensemble.children("/"), ["e", "p"]);
    assert!(
        created.czxid.unwrap() >> 32 > before >> 32,
        "a new leader, a new term"
    );
}

#[tokio::test(start_paused = true)]
async fn restart_gives_cut_sessions_their_full_timeout() {
    let ensemble = expiring();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    ensemble.disconnect(nodes.session());
    advance(TIMEOUT - Duration::from_secs(1)).await;
    ensemble.stop();
    ensemble.restart();
    advance(TIMEOUT - Duration::from_secs(1)).await;
    assert!(ensemble.exists("/e"));
    advance(Duration::from_secs(1)).await;
    assert!(!ensemble.exists("/e"));
}

#[tokio::test]
async fn restart_leaves_cut_sessions_cut() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.stop();
    ensemble.disconnect(nodes.session());
    ensemble.restart();
    let mut reply = nodes.sync("/");
    for _ in 0..3 {
        assert!((&mut reply).now_or_never().is_none());
    }
    ensemble.reconnect(nodes.session());
    reply.await.unwrap();
}

#[tokio::test]
async fn stop_loses_replies_on_their_way() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let node = persistent("/a");
    let reply = nodes.create(&node);
    ensemble.stop();
    assert_eq!(kind(reply.await), "unknown");
    assert!(ensemble.exists("/a"));
}

#[tokio::test]
async fn new_session_waits_for_a_stopped_ensemble() {
    let ensemble = MemoryEnsemble::new();
    ensemble.stop();
    let store = ensemble.store();
    let opening = tokio::spawn(async move { store.connect().await.map(|nodes| nodes.session()) });
    yield_now().await;
    assert!(!opening.is_finished());
    ensemble.restart();
    opening.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn opening_a_session_gives_up_after_the_timeout() {
    let ensemble = expiring();
    ensemble.stop();
    let store = ensemble.store();
    let start = Instant::now();
    assert_eq!(kind(store.connect().await), "unknown");
    assert!(start.elapsed() >= TIMEOUT);
    ensemble.restart();
    assert_eq!(kind(store.connect().await), "ok");
}

#[tokio::test(start_paused = true)]
async fn dropped_attempt_to_open_a_session_leaves_none() {
    let ensemble = MemoryEnsemble::new();
    ensemble.stop();
    let store = ensemble.store();
    assert!(timeout(TIMEOUT, store.connect()).await.is_err());
    ensemble.restart();
    assert!(ensemble.sessions().is_empty());
}
