//! Requests of the in-memory ensemble that take time to reach the server.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use recipes_core::NodeEvent;
use test_rig::{Faults, MemoryEnsemble};
use tokio::time::{Instant, sleep};

use crate::common::*;

const DELAY: Duration = Duration::from_millis(100);

fn slow(min: Duration, max: Duration) -> Faults {
    Faults {
        request_delay_min: min,
        request_delay_max: max,
        ..Faults::default()
    }
}

fn ensemble(seed: u64) -> MemoryEnsemble {
    let faults = slow(DELAY, DELAY);
    MemoryEnsemble::builder().seed(seed).faults(faults).build()
}

#[tokio::test(start_paused = true)]
async fn request_takes_effect_when_it_arrives() {
    let ensemble = ensemble(0);
    let nodes = connect(&ensemble).await;
    let node = persistent("/a");
    let created = nodes.create(&node);
    assert!(!ensemble.exists("/a"));
    sleep(DELAY / 2).await;
    assert!(!ensemble.exists("/a"));
    sleep(DELAY).await;
    assert!(ensemble.exists("/a"), "whether anybody polls or not");
    assert_eq!(kind(created.await), "ok");
}

#[tokio::test(start_paused = true)]
async fn dropped_future_forgets_the_reply_and_not_the_request() {
    let ensemble = ensemble(0);
    let nodes = connect(&ensemble).await;
    drop(nodes.create(&persistent("/a")));
    assert!(!ensemble.exists("/a"));
    sleep(2 * DELAY).await;
    assert!(ensemble.exists("/a"));
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_session_arrive_in_order_and_those_of_two_need_not() {
    let mut overtaken = 0;
    for seed in 0..50 {
        let faults = slow(Duration::ZERO, DELAY);
        let ensemble = MemoryEnsemble::builder().seed(seed).faults(faults).build();
        ensemble.create("/d", b"").unwrap();
        let (first, second) = (connect(&ensemble).await, connect(&ensemble).await);
        let nodes: Vec<_> = ["/d/a-", "/d/b-", "/d/c-"].map(sequential).into();
        let own = nodes.iter().map(|node| first.create(node));
        let own: Vec<_> = own.collect();
        let node = sequential("/d/z-");
        let other = second.create(&node);
        let own: Vec<_> = join_all(own)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let other = other.await.unwrap();
        assert!(own.is_sorted_by_key(|created| created.czxid));
        overtaken += usize::from(other.czxid < own[0].czxid);
    }
    assert!((5..45).contains(&overtaken), "{overtaken} of 50");
}

#[tokio::test(start_paused = true)]
async fn request_and_reply_take_their_own_time() {
    let faults = Faults {
        delay_min: DELAY,
        delay_max: DELAY,
        ..slow(DELAY, DELAY)
    };
    let ensemble = MemoryEnsemble::builder().faults(faults).build();
    let nodes = connect(&ensemble).await;
    let start = Instant::now();
    nodes.sync("/").await.unwrap();
    assert!(start.elapsed() >= 2 * DELAY);
    assert!(start.elapsed() < 3 * DELAY);
}

#[tokio::test(start_paused = true)]
async fn deletion_that_comes_before_the_watch_arrives_is_no_event() {
    let ensemble = ensemble(0);
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watched = nodes.watch("/a");
    ensemble.delete("/a").unwrap();
    assert!(watched.await.unwrap().is_none());
    ensemble.create("/a", b"").unwrap();
    let watch = set_watch(&*nodes, "/a").await;
    ensemble.delete("/a").unwrap();
    assert_eq!(watch.await, NodeEvent::Deleted);
}

#[tokio::test(start_paused = true)]
async fn of_requests_under_way_some_arrive_when_the_connection_breaks_and_the_first_first() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let ensemble = ensemble(seed);
        let nodes = connect(&ensemble).await;
        let made: Vec<_> = ["/a", "/b", "/c"].map(persistent).into();
        let replies: Vec<_> = made.iter().map(|node| nodes.create(node)).collect();
        ensemble.disconnect(nodes.session());
        ensemble.reconnect(nodes.session());
        for reply in join_all(replies).await {
            assert_eq!(kind(reply), "unknown");
        }
        sleep(2 * DELAY).await;
        let arrived = ensemble.children("/");
        assert!(["a", "b", "c"].starts_with(&arrived.iter().map(|it| &**it).collect::<Vec<_>>()));
        seen.insert(arrived.len());
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]));
}

#[tokio::test(start_paused = true)]
async fn requests_that_waited_for_the_connection_take_their_time_then() {
    let ensemble = ensemble(0);
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    let created = nodes.create(&persistent("/a")).now_or_never();
    assert!(created.is_none());
    sleep(2 * DELAY).await;
    ensemble.reconnect(nodes.session());
    assert!(!ensemble.exists("/a"));
    sleep(2 * DELAY).await;
    assert!(ensemble.exists("/a"));
}

#[tokio::test(start_paused = true)]
async fn close_comes_after_what_was_sent_before() {
    let ensemble = ensemble(0);
    let nodes = connect(&ensemble).await;
    let session = nodes.session();
    drop(nodes.create(&persistent("/a")));
    drop(nodes.create(&ephemeral("/e")));
    drop(nodes);
    assert_eq!(ensemble.sessions(), [session]);
    sleep(2 * DELAY).await;
    assert!(ensemble.sessions().is_empty());
    assert!(ensemble.exists("/a"));
    assert!(!ensemble.exists("/e"));
}

#[tokio::test(start_paused = true)]
async fn close_that_is_lost_with_the_connection_is_sent_again() {
    let ensemble = ensemble(0);
    let nodes = connect(&ensemble).await;
    let session = nodes.session();
    drop(nodes);
    ensemble.disconnect(session);
    sleep(2 * DELAY).await;
    assert_eq!(ensemble.sessions(), [session]);
    ensemble.reconnect(session);
    sleep(2 * DELAY).await;
    assert!(ensemble.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn request_of_a_session_that_expires_meanwhile_has_no_effect() {
    let ensemble = ensemble(0);
    let nodes = connect(&ensemble).await;
    let node = ephemeral("/e");
    let created = nodes.create(&node);
    ensemble.expire(nodes.session());
    assert_eq!(kind(created.await), "session ended");
    sleep(2 * DELAY).await;
    assert!(!ensemble.exists("/e"));
}
