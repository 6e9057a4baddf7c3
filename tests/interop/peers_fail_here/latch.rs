//! Faults of Curator's `LeaderLatch`.

use lock_recipes::{LeaderLatch, SessionHealth, ZooKeeper};
use test_rig::{CandidateKind, CuratorPeer};

use super::curator::{SESSION_TIMEOUT, SHORT, Stage};
use super::{OURS, PATIENCE, THEIRS, before_the_dead_session_ends, server, soon};
use crate::is_older_than;

async fn candidate(curator: &CuratorPeer, name: &str, client: &str) {
    let started = curator.candidate(name, CandidateKind::Latch, client, THEIRS, name);
    started.await.unwrap();
}

async fn leads(curator: &CuratorPeer, name: &str) {
    let leads = curator.leads_within(name, PATIENCE).await.unwrap();
    assert!(leads, "{name} does not lead");
}

/// It does not watch its own node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latch_whose_node_is_deleted_leads_on_where_ours_steps_down() {
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    candidate(curator, "first", "c").await;
    leads(curator, "first").await;
    let node = ensemble.await_children(THEIRS, 1).await;
    candidate(curator, "second", "d").await;
    ensemble.await_children(THEIRS, 2).await;
    ensemble.delete(&format!("{THEIRS}/{}", node[0])).await;
    leads(curator, "second").await;
    // Whatever its client hears later, the first has nothing to hear about its node.
    let stat = curator.stat("c", THEIRS).await.unwrap();
    assert!(stat.is_some());
    for name in ["first", "second"] {
        assert!(curator.leads(name).await.unwrap(), "two leaders");
    }

    let sessions = [ensemble.session().await, ensemble.session().await];
    let first = LeaderLatch::start(&sessions[0], OURS, "first").unwrap();
    let term = soon(first.wait_until_leader()).await.unwrap();
    let node = ensemble.await_children(OURS, 1).await;
    let second = LeaderLatch::start(&sessions[1], OURS, "second").unwrap();
    ensemble.await_children(OURS, 2).await;
    let mut steps_down = first.watch();
    assert!(steps_down.changed().await.unwrap());
    ensemble.delete(&format!("{OURS}/{}", node[0])).await;
    assert!(!soon(steps_down.changed()).await.unwrap());
    let next = soon(second.wait_until_leader()).await.unwrap();
    assert!(next > term);
    // It is a candidate again.
    ensemble.await_children(OURS, 2).await;
    assert!(!first.is_leader() && second.is_leader());
    second.stop().await.unwrap();
    soon(first.wait_until_leader()).await.unwrap();
    first.stop().await.unwrap();
}

/// CURATOR-696, fixed in 5.7.0. After an outage that outlasts a session, its client has a new one. The
/// server counts timeouts again from its start, so it still has the old session and its node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latch_leads_by_the_node_of_a_dead_session_where_ours_campaigns_again() {
    before_the_dead_session_ends(async || is_shown_by_an_outage().await).await;
}

/// False if the machine was so slow that the server had ended the dead session first.
async fn is_shown_by_an_outage() -> bool {
    let stage = Stage::set_up(SHORT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    candidate(curator, "first", "c").await;
    leads(curator, "first").await;
    let session = ensemble
        .session_with(ZooKeeper::builder().session_timeout(SHORT))
        .await;
    let ours = LeaderLatch::start(&session, OURS, "first").unwrap();
    let term = soon(ours.wait_until_leader()).await.unwrap();
    let theirs_before = ensemble.await_children(THEIRS, 1).await;
    let ours_before = ensemble.await_children(OURS, 1).await;
    let dead = curator.session("c").await.unwrap();

    ensemble.stop().await;
    let mut health = session.watch_health();
    while session.health() != SessionHealth::Connecting {
        health.changed().await;
    }
    stage.await_state("LOST").await;
    assert!(!curator.leads("first").await.unwrap());
    assert!(!ours.is_leader());
    // Clients find it soon, and do not wait for a server that starts.
    stage.proxy.refuse_connections().await;
    ensemble.start_again().await;
    stage.proxy.accept_connections().await.unwrap();
    stage.await_state("RECONNECTED").await;
    leads(curator, "first").await;
    assert_ne!(curator.session("c").await.unwrap(), dead);
    let is_old = is_older_than(curator, [5, 7]);
    let nodes = ensemble.children(THEIRS).await;
    if is_old && nodes.iter().any(|it| !theirs_before.contains(it)) {
        return false;
    }

    // The next one has a session of its own, and the server ends the dead one soon.
    let direct = server(ensemble).connect_string();
    let opened = curator.open("e", &direct, SESSION_TIMEOUT);
    opened.await.unwrap();
    candidate(curator, "second", "e").await;
    if is_old {
        leads(curator, "second").await;
        let left = ensemble.children(THEIRS).await;
        assert!(left.iter().all(|it| !theirs_before.contains(it)));
        for name in ["first", "second"] {
            assert!(curator.leads(name).await.unwrap(), "two leaders");
        }
    } else {
        // It made a node of its own before it led again.
        let left = ensemble.await_children(THEIRS, 2).await;
        assert!(left.iter().all(|it| !theirs_before.contains(it)));
        assert!(!curator.leads("second").await.unwrap());
    }

    let again = soon(ours.wait_until_leader()).await.unwrap();
    assert!(again > term);
    let leader = ours.leader().await.unwrap().unwrap();
    assert!(
        ours_before
            .iter()
            .all(|old| !leader.node_path.ends_with(old))
    );
    assert_eq!(Some(leader.session_id), session.session_id());
    ours.stop().await.unwrap();
    true
}
