//! When requests of the in-memory ensemble take effect, and when their replies arrive.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{join, join3};
use recipes_core::NodeOp;
use recipes_zookeeper::ZooKeeper;
use test_rig::{Faults, Lost, MemoryEnsemble, Operation, Request};
use tokio::time::{Instant, advance};

use crate::common::*;

#[tokio::test]
async fn request_takes_effect_when_it_is_made() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let node = persistent("/a");
    let unpolled = nodes.create(&node);
    assert!(ensemble.exists("/a"));
    unpolled.await.unwrap();
    let unpolled = nodes.delete("/a");
    assert!(!ensemble.exists("/a"));
    unpolled.await.unwrap();
}

#[tokio::test]
async fn dropped_request_has_taken_effect() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    drop(nodes.create(&persistent("/a")));
    drop(nodes.multi(vec![NodeOp::Create(persistent("/b"))]));
    assert_eq!(ensemble.children("/"), ["a", "b"]);
    drop(nodes.delete("/a"));
    assert_eq!(ensemble.children("/"), ["b"]);
}

#[tokio::test]
async fn reply_is_never_there_at_the_first_poll() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    let mut reply = nodes.sync("/");
    assert!((&mut reply).now_or_never().is_none());
    assert!((&mut reply).now_or_never().is_some());
}

#[tokio::test]
async fn create_and_list_leave_together() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let node = sequential("/n-");
    let (created, names) = join(nodes.create(&node), nodes.list("/")).await;
    assert_eq!(created.unwrap().path, "/n-0000000000");
    assert_eq!(names.unwrap(), ["n-0000000000"]);
}

#[tokio::test]
async fn replies_are_those_of_the_order_of_the_calls_whatever_the_order_of_the_polls() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let node = persistent("/a");
    let before = nodes.read("/a");
    let created = nodes.create(&node);
    let between = nodes.read("/a");
    let deleted = nodes.delete("/a");
    let after = nodes.read("/a");
    assert!(after.await.unwrap().is_none());
    deleted.await.unwrap();
    assert!(between.await.unwrap().is_some());
    created.await.unwrap();
    assert!(before.await.unwrap().is_none());
}

#[tokio::test]
async fn reply_to_a_delete_outlives_its_session() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let reply = nodes.delete("/a");
    drop(nodes);
    assert_eq!(kind(reply.await), "ok");
}

#[tokio::test]
async fn requests_wait_for_the_connection_and_keep_their_order() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    let node = persistent("/a");
    let (mut created, mut deleted) = (nodes.create(&node), nodes.delete("/a"));
    let mut again = nodes.create(&node);
    for _ in 0..3 {
        assert!((&mut created).now_or_never().is_none());
        assert!((&mut deleted).now_or_never().is_none());
        assert!((&mut again).now_or_never().is_none());
    }
    assert!(!ensemble.exists("/a"));
    ensemble.reconnect(nodes.session());
    assert!(ensemble.exists("/a"));
    let (created, deleted, again) = join3(created, deleted, again).await;
    assert!(created.is_ok() && deleted.is_ok() && again.is_ok());
}

#[tokio::test]
async fn dropped_request_is_still_made_on_reconnection() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    drop(nodes.delete("/a"));
    drop(nodes.watch("/"));
    assert!(ensemble.exists("/a"));
    ensemble.reconnect(nodes.session());
    assert!(!ensemble.exists("/a"));
    assert_eq!(ensemble.watch_count(), 0, "nobody wants the watch");
}

#[tokio::test]
async fn reconnection_wakes_a_waiting_request() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    let session = nodes.session();
    let waiting = tokio::spawn(async move { nodes.sync("/").await });
    tokio::task::yield_now().await;
    ensemble.reconnect(session);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn replies_take_the_latency_and_effects_do_not() {
    let latency = Duration::from_millis(10);
    let ensemble = MemoryEnsemble::builder().latency(latency).build();
    let nodes = connect(&ensemble).await;
    let start = Instant::now();
    let node = persistent("/a");
    let reply = nodes.create(&node);
    assert!(ensemble.exists("/a"));
    reply.await.unwrap();
    assert!(start.elapsed() >= latency);
    assert!(start.elapsed() < 2 * latency);
}

#[tokio::test(start_paused = true)]
async fn no_reply_overtakes_another() {
    let faults = Faults {
        delay_min: Duration::from_millis(1),
        delay_max: Duration::from_millis(50),
        ..Faults::default()
    };
    for seed in 0..20 {
        let ensemble = MemoryEnsemble::builder()
            .seed(seed)
            .faults(faults.clone())
            .build();
        let nodes = connect(&ensemble).await;
        let first = nodes.sync("/").map(|_| Instant::now());
        let second = nodes.sync("/").map(|_| Instant::now());
        let third = nodes.sync("/").map(|_| Instant::now());
        let (first, second, third) = join3(first, second, third).await;
        assert!(first <= second && second <= third, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn reply_and_event_keep_their_order() {
    let faults = Faults {
        delay_max: Duration::from_millis(50),
        ..Faults::default()
    };
    for seed in 0..20 {
        let ensemble = MemoryEnsemble::builder()
            .seed(seed)
            .faults(faults.clone())
            .build();
        ensemble.create("/a", b"").unwrap();
        let nodes = connect(&ensemble).await;
        let watch = set_watch(&*nodes, "/a").await;
        let before = nodes.sync("/").map(|_| Instant::now());
        let deleted = nodes.delete("/a").map(|_| Instant::now());
        let event = watch.map(|_| Instant::now());
        let (before, event, deleted) = join3(before, event, deleted).await;
        assert!(before <= event && event <= deleted, "seed {seed}");
    }
}

#[tokio::test]
async fn log_holds_the_requests_in_order() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.create("/unseen", b"").unwrap();
    nodes.create(&sequential("/n-")).await.unwrap();
    drop(nodes.list("/"));
    let check = NodeOp::Check {
        path: "/unseen".to_owned(),
        version: None,
    };
    nodes.multi(vec![check]).await.unwrap();
    let entry = |operation, path: &str| Request {
        session: nodes.session(),
        operation,
        path: path.to_owned(),
    };
    let expected = [
        entry(Operation::Create, "/n-"),
        entry(Operation::List, "/"),
        entry(Operation::Multi, "/unseen"),
    ];
    assert_eq!(ensemble.requests(), expected);
    assert_eq!(ensemble.request_count(Operation::List), 1);
    ensemble.reset_requests();
    assert_eq!(ensemble.request_count(Operation::List), 0);
}

#[tokio::test(start_paused = true)]
async fn reply_on_its_way_is_lost_with_the_connection() {
    let ensemble = MemoryEnsemble::builder()
        .latency(Duration::from_millis(10))
        .build();
    let nodes = connect(&ensemble).await;
    let node = persistent("/a");
    let (created, synced) = (nodes.create(&node), nodes.sync("/"));
    advance(Duration::from_millis(5)).await;
    ensemble.disconnect(nodes.session());
    assert_eq!(kind(created.await), "unknown");
    assert_eq!(kind(synced.await), "unknown");
    assert!(ensemble.exists("/a"));
}

#[tokio::test]
async fn reply_before_one_that_was_picked_up_is_not_lost() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let (first, second, third) = (nodes.sync("/"), nodes.sync("/"), nodes.sync("/"));
    second.await.unwrap();
    ensemble.disconnect(nodes.session());
    assert_eq!(kind(first.await), "ok");
    assert_eq!(kind(third.await), "unknown");
}

#[tokio::test(start_paused = true)]
async fn new_connection_does_not_wait_for_what_the_old_one_lost() {
    let delay = Duration::from_secs(3600);
    let slow = Faults {
        delay_min: delay,
        delay_max: delay,
        ..Faults::default()
    };
    let ensemble = MemoryEnsemble::builder().faults(slow).build();
    let nodes = connect(&ensemble).await;
    let lost = nodes.sync("/");
    ensemble.set_faults(Faults::default());
    ensemble.disconnect(nodes.session());
    ensemble.reconnect(nodes.session());
    let start = Instant::now();
    assert_eq!(kind(lost.await), "unknown");
    nodes.sync("/").await.unwrap();
    assert!(start.elapsed() < delay);
}

#[tokio::test]
async fn client_needs_no_connection_for_bad_input_and_no_operations() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    assert_eq!(kind(nodes.list("a").await), "refused");
    assert!(nodes.multi(Vec::new()).await.is_ok());
    ensemble.expire(nodes.session());
    assert_eq!(kind(nodes.list("a").await), "refused");
    assert!(nodes.multi(Vec::new()).await.is_ok());
    assert_eq!(kind(nodes.list("/a").await), "session ended");
}

#[tokio::test]
async fn several_nodes_are_listed_by_one_request() {
    let ensemble = MemoryEnsemble::new();
    for path in ["/a/1", "/a/2", "/b/3"] {
        ensemble.create(path, b"").unwrap();
    }
    let nodes = connect(&ensemble).await;
    let mut listings = nodes.list_all(&["/a", "/none", "/b"]).await.unwrap();
    listings[0].as_mut().unwrap().sort_unstable();
    assert_eq!(listings[0].as_deref().unwrap(), ["1", "2"]);
    assert_eq!(kind(listings[1].clone()), "no node");
    assert_eq!(listings[2].as_deref().unwrap(), ["3"]);
    let log: Vec<_> = ensemble.requests();
    assert_eq!(log.len(), 1);
    assert_eq!(
        (log[0].operation, &*log[0].path),
        (Operation::ListAll, "/a")
    );
    ensemble.deny("/b", Operation::List);
    let listings = nodes.list_all(&["/a", "/b"]).await.unwrap();
    assert!(listings[0].is_ok());
    assert_eq!(kind(listings[1].clone()), "no auth");
    ensemble.lose_reply(None, Operation::ListAll, Lost::BeforeCommit);
    assert_eq!(kind(nodes.list_all(&["/a", "/b"]).await), "unknown");
}

#[tokio::test]
async fn one_node_is_listed_by_an_ordinary_list_and_none_by_no_request() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a/1", b"").unwrap();
    let nodes = connect(&ensemble).await;
    assert!(nodes.list_all(&[]).await.unwrap().is_empty());
    assert!(ensemble.requests().is_empty());
    let listings = nodes.list_all(&["/a"]).await.unwrap();
    assert_eq!(listings[0].as_deref().unwrap(), ["1"]);
    assert_eq!(ensemble.request_count(Operation::List), 1);
}

#[tokio::test]
async fn nodes_that_are_listed_together_are_shown_in_one_state() {
    for seed in 0..50 {
        let ensemble = MemoryEnsemble::builder().seed(seed).build();
        let (nodes, writer) = (connect(&ensemble).await, connect(&ensemble).await);
        for path in ["/a", "/b"] {
            ensemble.create(path, b"").unwrap();
        }
        nodes.sync("/").await.unwrap();
        for path in ["/a/1", "/b/1", "/a/2", "/b/2"] {
            writer.create(&persistent(path)).await.unwrap();
        }
        ensemble.set_faults(Faults {
            stale_list_per_mille: 1000,
            ..Faults::default()
        });
        let listings = nodes.list_all(&["/a", "/b"]).await.unwrap();
        let counts: Vec<_> = listings
            .iter()
            .map(|it| it.as_ref().unwrap().len())
            .collect();
        assert!(counts[0] - counts[1] <= 1, "seed {seed}: {counts:?}");
    }
}

#[tokio::test]
async fn request_that_no_server_takes_is_refused_and_not_sent() {
    let ensemble = MemoryEnsemble::new();
    let options = ZooKeeper::builder().request_bytes_max(190);
    let store = ensemble.store_with(None, options);
    let nodes = store.connect().await.unwrap();
    let mut large = persistent("/large");
    large.data = vec![0; 100].into();
    let refused = nodes.create(&large).await.unwrap_err();
    assert_eq!(refused.to_string(), "not sent");
    assert_eq!(kind(nodes.create(&large).await), "refused");
    let both = [persistent("/a"), persistent("/b")].map(NodeOp::Create);
    let error = nodes.multi(both.to_vec()).await.unwrap_err();
    assert_eq!(error.index, None);
    assert_eq!(kind::<()>(Err(error.source)), "refused");
    assert_eq!(ensemble.requests(), []);
    nodes.create(&persistent("/a")).await.unwrap();
}
