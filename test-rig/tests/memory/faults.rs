//! Faults of the in-memory ensemble, on request or drawn from the seed.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join;
use recipes_core::{Connection, EndReason, Nodes};
use test_rig::{Faults, Lost, MemoryEnsemble, Operation};
use tokio::time::Instant;

use crate::common::*;

fn always_stale() -> Faults {
    Faults {
        stale_list_per_mille: 1000,
        ..Faults::default()
    }
}

/// All the listings that a lagging replica may give, from the same state.
async fn possible_lists<F>(mut prepare: F) -> BTreeSet<Vec<String>>
where
    F: AsyncFnMut(&MemoryEnsemble, &dyn Nodes),
{
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let ensemble = MemoryEnsemble::builder()
            .seed(seed)
            .faults(always_stale())
            .build();
        assert_eq!(kind(ensemble.create("/d", b"")), "ok");
        let nodes = connect(&ensemble).await;
        prepare(&ensemble, &*nodes).await;
        seen.insert(sorted_list(&*nodes, "/d").await);
    }
    seen
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn request_lost_before_the_commit_has_no_effect() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.lose_reply(None, Operation::Create, Lost::BeforeCommit);
    let before = ensemble.tree();
    assert_eq!(kind(nodes.create(&ephemeral("/a")).await), "unknown");
    assert_eq!(ensemble.tree(), before);
    assert_eq!(ensemble.request_count(Operation::Create), 1);
    nodes.create(&ephemeral("/a")).await.unwrap();
}

#[tokio::test]
async fn reply_lost_after_the_commit_leaves_the_effect() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.lose_reply(None, Operation::Create, Lost::AfterCommit);
    assert_eq!(kind(nodes.create(&ephemeral("/a")).await), "unknown");
    assert!(ensemble.exists("/a"));
    ensemble.lose_reply(None, Operation::Delete, Lost::AfterCommit);
    assert_eq!(kind(nodes.delete("/a").await), "unknown");
    assert!(!ensemble.exists("/a"));
}

#[tokio::test]
async fn lost_reply_takes_those_before_it_along() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.lose_reply(None, Operation::List, Lost::AfterCommit);
    let node = sequential("/n-");
    let (created, listed) = join(nodes.create(&node), nodes.list("/")).await;
    assert_eq!(kind(created), "unknown");
    assert_eq!(kind(listed), "unknown");
    assert_eq!(ensemble.children("/").len(), 1);
}

#[tokio::test]
async fn lost_reply_leaves_later_requests_and_other_sessions_alone() {
    let ensemble = MemoryEnsemble::new();
    let (nodes, other) = (connect(&ensemble).await, connect(&ensemble).await);
    ensemble.lose_reply(Some(nodes.session()), Operation::Sync, Lost::BeforeCommit);
    let mut connection = nodes.connection();
    other.sync("/").await.unwrap();
    let (lost, later) = join(nodes.sync("/"), nodes.sync("/")).await;
    assert_eq!(kind(lost), "unknown");
    assert_eq!(kind(later), "ok");
    assert_eq!(
        connection.next().await,
        Some(Connection::Connected),
        "latest first"
    );
}

#[tokio::test]
async fn each_order_to_lose_a_reply_counts_once() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    for _ in 0..2 {
        ensemble.lose_reply(None, Operation::Read, Lost::AfterCommit);
    }
    assert_eq!(kind(nodes.read("/").await), "unknown");
    assert_eq!(kind(nodes.read("/").await), "unknown");
    assert_eq!(kind(nodes.read("/").await), "ok");
}

#[tokio::test]
async fn request_that_waited_for_the_connection_can_be_lost() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    let node = persistent("/a");
    let (created, synced) = (nodes.create(&node), nodes.sync("/"));
    ensemble.lose_reply(None, Operation::Create, Lost::AfterCommit);
    ensemble.reconnect(nodes.session());
    assert_eq!(kind(created.await), "unknown");
    assert_eq!(kind(synced.await), "ok");
    assert!(ensemble.exists("/a"));
}

#[tokio::test]
async fn lagging_replica_shows_every_state_since_the_session_saw_one() {
    let lists = possible_lists(async |ensemble, _| {
        ensemble.create("/d/a", b"").unwrap();
        ensemble.create("/elsewhere", b"").unwrap();
        ensemble.create("/d/b", b"").unwrap();
        ensemble.delete("/d/a").unwrap();
    })
    .await;
    // The latest state is not stale. It is shown only if there is no older one.
    let expected = [names(&[]), names(&["a"]), names(&["a", "b"])];
    assert_eq!(lists, BTreeSet::from(expected));
}

#[tokio::test]
async fn list_is_never_behind_what_the_session_wrote() {
    let lists = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        nodes.create(&ephemeral("/d/own")).await.unwrap();
        ensemble.create("/d/b", b"").unwrap();
    })
    .await;
    assert_eq!(lists, BTreeSet::from([names(&["a", "own"])]));
}

#[tokio::test]
async fn list_is_never_behind_a_sync_a_read_or_a_refusal() {
    let latest = BTreeSet::from([names(&["a"])]);
    let synced = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        nodes.sync("/d").await.unwrap();
    });
    assert_eq!(synced.await, latest);
    let read = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        nodes.read("/d").await.unwrap();
    });
    assert_eq!(read.await, latest);
    let refused = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        assert_eq!(kind(nodes.delete("/none").await), "no node");
    });
    assert_eq!(refused.await, latest);
}

#[tokio::test]
async fn list_is_never_behind_the_list_before() {
    for seed in 0..64 {
        let ensemble = MemoryEnsemble::builder()
            .seed(seed)
            .faults(always_stale())
            .build();
        ensemble.create("/d", b"").unwrap();
        let nodes = connect(&ensemble).await;
        let mut last = 0;
        for index in 0..10 {
            ensemble.create(&format!("/d/{index}"), b"").unwrap();
            let count = nodes.list("/d").await.unwrap().len();
            assert!(count >= last, "seed {seed}");
            last = count;
        }
    }
}

#[tokio::test]
async fn list_is_never_behind_an_event() {
    let lists = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        let watch = set_watch(nodes, "/d/a").await;
        ensemble.create("/d/b", b"").unwrap();
        ensemble.delete("/d/a").unwrap();
        watch.await;
    });
    assert_eq!(lists.await, BTreeSet::from([names(&["b"])]));
}

#[tokio::test]
async fn list_after_a_new_connection_is_never_behind_an_event_that_had_arrived() {
    let lists = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        let watch = set_watch(nodes, "/d/a").await;
        ensemble.delete("/d/a").unwrap();
        ensemble.disconnect(nodes.session());
        ensemble.reconnect(nodes.session());
        watch.await;
    });
    assert_eq!(lists.await, BTreeSet::from([names(&[])]));
}

#[tokio::test]
async fn list_after_a_new_connection_is_never_behind_an_event_that_was_picked_up() {
    let lists = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        let watch = set_watch(nodes, "/d/a").await;
        ensemble.delete("/d/a").unwrap();
        watch.await;
        ensemble.disconnect(nodes.session());
        ensemble.reconnect(nodes.session());
    });
    assert_eq!(lists.await, BTreeSet::from([names(&[])]));
}

#[tokio::test]
async fn event_of_a_watch_whose_reply_was_lost_tells_the_client_nothing() {
    let lists = possible_lists(async |ensemble, nodes| {
        ensemble.create("/d/a", b"").unwrap();
        let watched = nodes.watch("/d/a");
        ensemble.delete("/d/a").unwrap();
        ensemble.disconnect(nodes.session());
        ensemble.reconnect(nodes.session());
        assert_eq!(kind(watched.await), "unknown");
    });
    assert_eq!(lists.await, BTreeSet::from([names(&[]), names(&["a"])]));
}

#[tokio::test]
async fn node_whose_reply_was_lost_may_be_missing_until_the_session_syncs() {
    let lose = async |ensemble: &MemoryEnsemble, nodes: &dyn Nodes| {
        ensemble.lose_reply(None, Operation::Create, Lost::AfterCommit);
        assert_eq!(kind(nodes.create(&ephemeral("/d/own")).await), "unknown");
    };
    let lists = possible_lists(async |ensemble, nodes| lose(ensemble, nodes).await);
    assert_eq!(lists.await, BTreeSet::from([names(&[])]));
    let lists = possible_lists(async |ensemble, nodes| {
        lose(ensemble, nodes).await;
        nodes.sync("/d").await.unwrap();
    });
    assert_eq!(lists.await, BTreeSet::from([names(&["own"])]));
}

#[tokio::test]
async fn replica_after_a_new_connection_is_as_far_as_the_replies_that_were_picked_up() {
    let lists = possible_lists(async |ensemble, nodes| {
        nodes.create(&ephemeral("/d/known")).await.unwrap();
        let lost = ephemeral("/d/lost");
        let reply = nodes.create(&lost);
        ensemble.disconnect(nodes.session());
        assert_eq!(kind(reply.await), "unknown");
        ensemble.reconnect(nodes.session());
    });
    assert_eq!(lists.await, BTreeSet::from([names(&["known"])]));
}

#[tokio::test]
async fn stale_list_never_predates_its_directory() {
    for seed in 0..64 {
        let ensemble = MemoryEnsemble::builder()
            .seed(seed)
            .faults(always_stale())
            .build();
        let nodes = connect(&ensemble).await;
        ensemble.create("/d/old", b"").unwrap();
        ensemble.delete("/d/old").unwrap();
        ensemble.delete("/d").unwrap();
        ensemble.create("/d/new", b"").unwrap();
        let names = nodes.list("/d").await.unwrap();
        assert!(!names.contains(&"old".to_owned()), "seed {seed}");
    }
}

#[tokio::test]
async fn expiry_by_dice_ends_the_session_before_the_request_takes_effect() {
    let faults = Faults {
        expiry_per_mille: 1000,
        ..Faults::default()
    };
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    ensemble.set_faults(faults);
    assert_eq!(kind(nodes.create(&persistent("/p")).await), "session ended");
    assert!(ensemble.children("/").is_empty());
    assert_eq!(
        nodes.connection().next().await,
        Some(Connection::Ended(EndReason::Expired))
    );
    ensemble.set_faults(Faults::default());
    connect(&ensemble).await.sync("/").await.unwrap();
}

#[tokio::test]
async fn expiry_by_dice_ends_requests_that_waited_for_the_connection() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    ensemble.disconnect(nodes.session());
    let (first, second) = (nodes.sync("/"), nodes.sync("/"));
    ensemble.set_faults(Faults {
        expiry_per_mille: 1000,
        ..Faults::default()
    });
    ensemble.reconnect(nodes.session());
    assert_eq!(kind(first.await), "session ended");
    assert_eq!(kind(second.await), "session ended");
}

#[tokio::test]
async fn replies_are_lost_at_the_rate_asked_for() {
    let faults = Faults {
        lost_before_per_mille: 250,
        lost_after_per_mille: 250,
        ..Faults::default()
    };
    let ensemble = MemoryEnsemble::builder().seed(1).faults(faults).build();
    let nodes = connect(&ensemble).await;
    let (mut before, mut after) = (0, 0);
    for index in 0..1000 {
        let path = format!("/{index}");
        match kind(nodes.create(&persistent(&path)).await) {
            "ok" => assert!(ensemble.exists(&path)),
            "unknown" if ensemble.exists(&path) => after += 1,
            "unknown" => before += 1,
            other => panic!("{other}"),
        }
    }
    // A quarter, and a quarter of the rest.
    assert!((200..300).contains(&before), "{before}");
    assert!((140..240).contains(&after), "{after}");
}

#[tokio::test(start_paused = true)]
async fn delays_stay_within_their_bounds() {
    let (delay_min, delay_max) = (Duration::from_millis(5), Duration::from_millis(20));
    let faults = Faults {
        delay_min,
        delay_max,
        ..Faults::default()
    };
    let ensemble = MemoryEnsemble::builder().faults(faults).build();
    let nodes = connect(&ensemble).await;
    let mut delays = BTreeSet::new();
    for _ in 0..50 {
        let start = Instant::now();
        nodes.sync("/").await.unwrap();
        let delay = start.elapsed();
        // Tokio's timers have a resolution of a millisecond.
        assert!(
            delay >= delay_min && delay <= delay_max + Duration::from_millis(1),
            "{delay:?}"
        );
        delays.insert(delay);
    }
    assert!(delays.len() > 5, "they vary: {delays:?}");
}
