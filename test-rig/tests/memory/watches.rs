//! One-shot watches of the in-memory ensemble.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{join, join_all};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use recipes_core::{Connection, NodeEvent};
use test_rig::{Faults, Lost, MemoryEnsemble, Operation};
use tokio::time::{Instant, advance};

use crate::common::*;

#[tokio::test]
async fn watch_fires_on_deletion() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let mut watch = set_watch(&*nodes, "/a").await;
    assert!(is_pending(&mut watch));
    ensemble.delete("/a").unwrap();
    assert_eq!(fired(watch), NodeEvent::Deleted);
}

#[tokio::test]
async fn watch_fires_on_changed_data_once() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    ensemble.set_data("/a", b"new").unwrap();
    ensemble.delete("/a").unwrap();
    assert_eq!(fired(watch), NodeEvent::Changed);
}

#[tokio::test]
async fn watch_ignores_children_reads_and_other_nodes() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let mut watch = set_watch(&*nodes, "/a").await;
    ensemble.create("/a/b", b"").unwrap();
    ensemble.create("/ab", b"").unwrap();
    ensemble.set_data("/a/b", b"new").unwrap();
    ensemble.delete("/a/b").unwrap();
    nodes.read("/a").await.unwrap();
    nodes.sync("/a").await.unwrap();
    assert!(is_pending(&mut watch));
}

#[tokio::test]
async fn watch_on_a_missing_node_sets_none() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    assert!(nodes.watch("/a").await.unwrap().is_none());
    assert_eq!(ensemble.watch_count(), 0);
}

#[tokio::test]
async fn every_watch_on_a_node_fires() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let (first, second) = (connect(&ensemble).await, connect(&ensemble).await);
    let watches = [
        set_watch(&*first, "/a").await,
        set_watch(&*first, "/a").await,
        set_watch(&*second, "/a").await,
    ];
    assert_eq!(ensemble.watch_count(), 3);
    first.delete("/a").await.unwrap();
    assert_eq!(
        futures::future::join_all(watches).await,
        [NodeEvent::Deleted; 3]
    );
    assert_eq!(ensemble.watch_count(), 0);
}

#[tokio::test]
async fn dropped_watch_is_removed() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    let mut other = set_watch(&*nodes, "/a").await;
    drop(watch);
    assert_eq!(ensemble.watch_count(), 1);
    assert!(is_pending(&mut other));
    ensemble.delete("/a").unwrap();
    assert_eq!(fired(other), NodeEvent::Deleted);
}

#[tokio::test]
async fn watch_is_removed_when_its_reply_is_dropped() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let unpolled = nodes.watch("/a");
    let mut polled = nodes.watch("/a");
    assert!((&mut polled).now_or_never().is_none());
    assert_eq!(ensemble.watch_count(), 2);
    drop(unpolled);
    assert_eq!(ensemble.watch_count(), 1);
    drop(polled);
    assert_eq!(ensemble.watch_count(), 0);
}

#[tokio::test]
async fn watch_whose_reply_is_lost_is_removed() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    ensemble.lose_reply(None, Operation::Watch, Lost::AfterCommit);
    assert_eq!(kind(nodes.watch("/a").await), "unknown");
    assert_eq!(ensemble.watch_count(), 0);
}

#[tokio::test]
async fn watch_wakes_the_task_that_waits() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    let waiting = tokio::spawn(watch);
    tokio::task::yield_now().await;
    ensemble.delete("/a").unwrap();
    assert_eq!(waiting.await.unwrap(), NodeEvent::Deleted);
}

#[tokio::test]
async fn watches_end_with_their_session() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/own")).await.unwrap();
    let own = set_watch(&*nodes, "/own").await;
    let other = connect(&ensemble).await;
    let foreign = set_watch(&*other, "/own").await;
    ensemble.expire(nodes.session());
    assert_eq!(fired(own), NodeEvent::SessionEnded);
    assert_eq!(fired(foreign), NodeEvent::Deleted);
}

#[tokio::test]
async fn watches_end_when_the_last_handle_is_dropped() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    drop(nodes);
    assert_eq!(fired(watch), NodeEvent::SessionEnded);
    assert_eq!(ensemble.watch_count(), 0);
}

#[tokio::test]
async fn closing_session_hears_of_its_own_nodes() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/own")).await.unwrap();
    let own = set_watch(&*nodes, "/own").await;
    let other = set_watch(&*nodes, "/a").await;
    drop(nodes);
    assert_eq!(fired(own), NodeEvent::Deleted);
    assert_eq!(fired(other), NodeEvent::SessionEnded);
}

#[tokio::test]
async fn disconnected_watch_fires_on_reconnection() {
    let ensemble = MemoryEnsemble::new();
    for path in ["/deleted", "/changed", "/anew", "/same"] {
        ensemble.create(path, b"").unwrap();
    }
    let nodes = connect(&ensemble).await;
    let mut deleted = set_watch(&*nodes, "/deleted").await;
    let mut changed = set_watch(&*nodes, "/changed").await;
    let mut anew = set_watch(&*nodes, "/anew").await;
    let mut same = set_watch(&*nodes, "/same").await;
    ensemble.disconnect(nodes.session());
    ensemble.delete("/deleted").unwrap();
    ensemble.set_data("/changed", b"new").unwrap();
    ensemble.delete("/anew").unwrap();
    ensemble.create("/anew", b"").unwrap();
    ensemble.create("/same/child", b"").unwrap();
    for watch in [&mut deleted, &mut changed, &mut anew] {
        assert!(is_pending(watch));
    }
    ensemble.reconnect(nodes.session());
    assert_eq!(fired(deleted), NodeEvent::Deleted);
    assert_eq!(fired(changed), NodeEvent::Changed);
    assert_eq!(fired(anew), NodeEvent::Changed);
    assert!(is_pending(&mut same));
}

#[tokio::test(start_paused = true)]
async fn event_takes_the_latency() {
    let latency = Duration::from_millis(10);
    let ensemble = MemoryEnsemble::builder().latency(latency).build();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    let start = Instant::now();
    ensemble.delete("/a").unwrap();
    watch.await;
    assert!(start.elapsed() >= latency);
}

#[tokio::test(start_paused = true)]
async fn event_on_its_way_is_lost_with_the_connection_and_sent_again() {
    let ensemble = MemoryEnsemble::builder()
        .latency(Duration::from_millis(10))
        .build();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let mut watch = set_watch(&*nodes, "/a").await;
    ensemble.delete("/a").unwrap();
    assert!(is_pending(&mut watch));
    ensemble.disconnect(nodes.session());
    advance(Duration::from_secs(1)).await;
    assert!(
        is_pending(&mut watch),
        "nothing arrives without a connection"
    );
    ensemble.reconnect(nodes.session());
    assert!(is_pending(&mut watch), "it takes its time again");
    let start = Instant::now();
    assert_eq!(watch.await, NodeEvent::Deleted);
    assert!(start.elapsed() >= Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn event_is_sent_again_where_the_connection_is_back_at_once() {
    let latency = Duration::from_millis(10);
    let ensemble = MemoryEnsemble::builder().latency(latency).build();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let mut watch = set_watch(&*nodes, "/a").await;
    ensemble.delete("/a").unwrap();
    advance(latency / 2).await;
    ensemble.lose_reply(None, Operation::Sync, Lost::BeforeCommit);
    let lost = nodes.sync("/");
    advance(latency / 2).await;
    assert!(is_pending(&mut watch), "the first was lost");
    assert_eq!(kind(lost.await), "unknown");
    advance(latency).await;
    assert_eq!(fired(watch), NodeEvent::Deleted);
}

#[tokio::test]
async fn event_that_has_arrived_survives_the_connection() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    ensemble.delete("/a").unwrap();
    ensemble.disconnect(nodes.session());
    assert_eq!(fired(watch), NodeEvent::Deleted);
}

#[tokio::test]
async fn broken_connection_leaves_watches_set() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let mut watch = set_watch(&*nodes, "/a").await;
    let mut connection = nodes.connection();
    ensemble.lose_reply(None, Operation::Sync, Lost::BeforeCommit);
    assert_eq!(kind(nodes.sync("/").await), "unknown");
    assert_eq!(connection.next().await, Some(Connection::Connected));
    assert!(is_pending(&mut watch));
    ensemble.delete("/a").unwrap();
    assert_eq!(fired(watch), NodeEvent::Deleted);
}

/// Watches four nodes, deletes them while disconnected, and returns the order of the events.
async fn told_after_reconnect(seed: u64, faults: Faults) -> Vec<usize> {
    let ensemble = MemoryEnsemble::builder().seed(seed).faults(faults).build();
    let nodes = connect(&ensemble).await;
    let paths = ["/0", "/1", "/2", "/3"];
    let mut watches = FuturesUnordered::new();
    for (index, path) in paths.iter().enumerate() {
        ensemble.create(path, b"").unwrap();
        let watch = set_watch(&*nodes, path).await;
        watches.push(async move {
            assert_eq!(watch.await, NodeEvent::Deleted);
            index
        });
    }
    ensemble.disconnect(nodes.session());
    for path in paths {
        ensemble.delete(path).unwrap();
    }
    ensemble.reconnect(nodes.session());
    let reply = nodes.sync("/");
    let mut told = Vec::new();
    while let Some(index) = watches.next().await {
        told.push(index);
    }
    assert!(reply.await.is_ok());
    told
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_set_again_tell_in_any_order() {
    let faults = Faults {
        watches_again_delay_max: Duration::from_millis(300),
        ..Faults::default()
    };
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let told = told_after_reconnect(seed, faults.clone()).await;
        assert_eq!(told, told_after_reconnect(seed, faults.clone()).await);
        orders.insert(told);
    }
    assert!(orders.len() > 10, "{orders:?}");
}

#[tokio::test(start_paused = true)]
async fn events_of_watches_that_are_set_again_are_spread_over_time_before_any_reply() {
    let faults = Faults {
        watches_again_delay_max: Duration::from_millis(300),
        ..Faults::default()
    };
    let ensemble = MemoryEnsemble::builder().faults(faults).build();
    let nodes = connect(&ensemble).await;
    let mut watches = Vec::new();
    for path in ["/a", "/b"] {
        ensemble.create(path, b"").unwrap();
        watches.push(set_watch(&*nodes, path).await);
    }
    ensemble.disconnect(nodes.session());
    ensemble.delete("/a").unwrap();
    ensemble.delete("/b").unwrap();
    ensemble.reconnect(nodes.session());
    let start = Instant::now();
    let timed = watches.into_iter().map(|watch| async move {
        assert_eq!(watch.await, NodeEvent::Deleted);
        start.elapsed()
    });
    let (due, answered) = join(join_all(timed), async {
        nodes.sync("/").await.unwrap();
        start.elapsed()
    })
    .await;
    assert!(
        due[0].abs_diff(due[1]) > Duration::from_millis(5),
        "{due:?}"
    );
    assert!(
        due.iter().all(|due| *due <= answered),
        "{due:?}, {answered:?}"
    );
}
