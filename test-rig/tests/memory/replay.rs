//! Runs of the in-memory ensemble can be replayed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use recipes_core::Nodes;
use test_rig::{Faults, MemoryEnsemble, Request};

use crate::common::*;

/// Everything that can be observed about a run.
#[derive(Debug, PartialEq)]
struct Run {
    requests: Vec<Request>,
    tree: String,
    replies: Vec<String>,
    sessions: Vec<i64>,
}

/// A few contenders that behave as locks do, under all faults at once.
async fn run(seed: u64, request_delay_ms_max: u64) -> Run {
    let faults = Faults {
        lost_before_per_mille: 50,
        lost_after_per_mille: 50,
        expiry_per_mille: 10,
        undone_per_mille: 0,
        cut_answer_per_mille: 0,
        mute_per_mille: 0,
        stale_list_per_mille: 300,
        delay_min: Duration::ZERO,
        delay_max: Duration::from_millis(20),
        request_delay_min: Duration::ZERO,
        request_delay_max: Duration::from_millis(request_delay_ms_max),
        watches_again_delay_max: Duration::from_millis(request_delay_ms_max),
    };
    let ensemble = MemoryEnsemble::builder()
        .seed(seed)
        .session_timeout(Duration::from_secs(5))
        .faults(faults)
        .build();
    assert_eq!(kind(ensemble.create("/lock", b"")), "ok");
    let store = ensemble.store();
    let mut clients: VecDeque<Arc<dyn Nodes>> = VecDeque::new();
    let mut replies = Vec::new();
    for _ in 0..100 {
        // Three clients take turns. One whose session has ended is replaced.
        let turn = if clients.len() < 3 {
            None
        } else {
            clients.pop_front()
        };
        let live = turn.filter(|nodes| ensemble.sessions().contains(&nodes.session()));
        let client = match live {
            Some(nodes) => nodes,
            None => connect(&ensemble).await,
        };
        let node = sequential(&format!("/lock/{}-", store.new_uuid()));
        let created = client.create(&node).await;
        let names = client.list("/lock").await;
        replies.push(format!("{created:?} {names:?}"));
        let first = ensemble.children("/lock").into_iter().next();
        let first = format!("/lock/{}", first.unwrap_or_default());
        let mut watched = client.watch(&first);
        replies.push(format!("{:?}", (&mut watched).now_or_never().is_some()));
        replies.push(format!("{:?}", client.delete(&first).await));
        if let Ok(Some((data, stat, watch))) = watched.await {
            replies.push(format!("{data:?} {stat:?} {:?}", watch.now_or_never()));
        }
        clients.push_back(client);
    }
    let (requests, tree, sessions) = (ensemble.requests(), ensemble.tree(), ensemble.sessions());
    Run {
        requests,
        tree,
        replies,
        sessions,
    }
}

#[tokio::test(start_paused = true)]
async fn same_seed_and_calls_give_the_same_run() {
    for seed in 0..10 {
        assert_eq!(run(seed, 0).await, run(seed, 0).await, "seed {seed}");
        assert_eq!(run(seed, 20).await, run(seed, 20).await, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_seed_gives_another_run() {
    let (first, second) = (run(0, 0).await, run(1, 0).await);
    assert_ne!(first.requests, second.requests);
    assert_ne!(first.tree, second.tree);
}

#[tokio::test]
async fn uuids_come_from_the_seed() {
    let uuid = |seed| {
        MemoryEnsemble::builder()
            .seed(seed)
            .build()
            .store()
            .new_uuid()
    };
    assert_eq!(uuid(7), uuid(7));
    assert_ne!(uuid(7), uuid(8));
    assert_eq!(uuid(7).get_version_num(), 4);
    let store = MemoryEnsemble::new().store();
    assert_ne!(store.new_uuid(), store.new_uuid());
}

#[tokio::test]
async fn dump_names_all_nodes_parents_first() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/b/c", b"text").unwrap();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/b/e")).await.unwrap();
    let dump = ensemble.tree();
    let paths: Vec<&str> = dump
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(paths, ["/", "/a", "/b", "/b/c", "/b/e"]);
    assert!(
        dump.contains(&format!("/b/e ephemeral {:#x}", nodes.session())),
        "{dump}"
    );
    assert!(dump.contains("data=\"text\""), "{dump}");
}
