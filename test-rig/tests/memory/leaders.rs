//! Leaders, disks and machines of the in-memory ensemble.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use recipes_core::{Connection, EndReason, NodeEvent, NodeOp, Nodes};
use test_rig::{Faults, MemoryEnsemble};
use tokio::time::sleep;

use crate::common::*;

const TIMEOUT: Duration = Duration::from_secs(6);

/// An ensemble with `/a`, a session that stays with the deposed leader, and one that does not.
async fn split() -> (MemoryEnsemble, Arc<dyn Nodes>, Arc<dyn Nodes>) {
    let ensemble = MemoryEnsemble::builder().session_timeout(TIMEOUT).build();
    ensemble.create("/a", b"old").unwrap();
    let (behind, ahead) = (connect(&ensemble).await, connect(&ensemble).await);
    behind.create(&ephemeral("/e")).await.unwrap();
    ensemble.depose(&[behind.session()]);
    (ensemble, behind, ahead)
}

fn check(path: &str) -> NodeOp {
    let path = path.to_owned();
    NodeOp::Check {
        path,
        version: None,
    }
}

#[tokio::test(start_paused = true)]
async fn deposed_leader_answers_reads_and_sync_from_what_it_knew() {
    let (ensemble, behind, ahead) = split().await;
    ahead.create(&persistent("/b")).await.unwrap();
    ensemble.set_data("/a", b"new").unwrap();
    ahead.delete("/e").await.unwrap();
    assert_eq!(sorted_list(&*ahead, "/").await, ["a", "b"]);
    behind.sync("/").await.unwrap();
    assert_eq!(sorted_list(&*behind, "/").await, ["a", "e"]);
    assert_eq!(behind.read("/a").await.unwrap().unwrap().0, b"old");
    assert!(behind.stat("/e").await.unwrap().is_some());
    assert!(behind.stat("/b").await.unwrap().is_none());
    let listings = behind.list_all(&["/", "/b"]).await.unwrap();
    assert_eq!(listings[0].as_ref().unwrap().len(), 2);
    assert_eq!(kind(listings[1].clone()), "no node");
}

#[tokio::test(start_paused = true)]
async fn deposed_leader_never_answers_a_write_nor_what_comes_after_it() {
    let (ensemble, behind, _ahead) = split().await;
    behind.sync("/").await.unwrap();
    let (node, again) = (persistent("/b"), persistent("/a"));
    for index in 0..4 {
        let zxid = ensemble.zxid();
        let stuck = match index {
            0 => behind.create(&node).map(kind).boxed(),
            1 => behind.create(&again).map(kind).boxed(),
            2 => behind.delete("/none").map(kind).boxed(),
            _ => {
                let checked = behind.multi(vec![check("/a")]);
                checked.map(|it| kind(it.map_err(|it| it.source))).boxed()
            }
        };
        let after = behind.sync("/");
        let (mut stuck, mut after) = (stuck, after);
        sleep(TIMEOUT / 8).await;
        assert!((&mut stuck).now_or_never().is_none());
        assert!((&mut after).now_or_never().is_none());
        assert_eq!(
            ensemble.zxid(),
            zxid,
            "it has no effect, and takes no number"
        );
        let session = behind.session();
        assert!(ensemble.move_over(session));
        assert_eq!(stuck.await, "unknown");
        assert_eq!(kind(after.await), "unknown");
        ensemble.depose(&[session]);
    }
    assert!(!ensemble.exists("/b"));
}

#[tokio::test(start_paused = true)]
async fn watch_behind_the_deposed_leader_tells_after_the_move() {
    let (ensemble, behind, ahead) = split().await;
    let mut old = set_watch(&*behind, "/a").await;
    let mut gone = set_watch(&*behind, "/e").await;
    ensemble.set_data("/a", b"new").unwrap();
    ahead.delete("/e").await.unwrap();
    sleep(TIMEOUT / 2).await;
    assert!(is_pending(&mut old) && is_pending(&mut gone));
    // A watch can also be set on a node that was deleted meanwhile.
    let mut late = set_watch(&*behind, "/e").await;
    assert!(is_pending(&mut late));
    ensemble.retire_deposed();
    assert_eq!(fired(old), NodeEvent::Changed);
    assert_eq!(fired(gone), NodeEvent::Deleted);
    assert_eq!(fired(late), NodeEvent::Deleted);
}

#[tokio::test(start_paused = true)]
async fn new_leader_expires_who_stays_behind_after_a_full_timeout_unnoticed_by_its_client() {
    let (ensemble, behind, ahead) = split().await;
    sleep(TIMEOUT - Duration::from_millis(2)).await;
    assert!(ensemble.exists("/e"));
    sleep(Duration::from_millis(4)).await;
    assert!(!ensemble.exists("/e"));
    assert_eq!(ensemble.sessions(), [ahead.session()]);
    let mut connection = behind.connection();
    assert!(connection.next().now_or_never().is_none());
    behind.sync("/").await.unwrap();
    assert!(behind.stat("/e").await.unwrap().is_some());
    assert!(ensemble.move_over(behind.session()));
    let told = connection.next().await;
    assert_eq!(told, Some(Connection::Ended(EndReason::Expired)));
    assert_eq!(kind(behind.sync("/").await), "session ended");
}

#[tokio::test(start_paused = true)]
async fn new_leader_gives_every_session_its_full_timeout() {
    let ensemble = MemoryEnsemble::builder().session_timeout(TIMEOUT).build();
    let (behind, cut) = (connect(&ensemble).await, connect(&ensemble).await);
    ensemble.disconnect(cut.session());
    sleep(TIMEOUT * 3 / 4).await;
    ensemble.depose(&[behind.session(), cut.session()]);
    sleep(TIMEOUT * 3 / 4).await;
    assert_eq!(ensemble.sessions(), [behind.session(), cut.session()]);
    sleep(TIMEOUT / 2).await;
    assert!(ensemble.sessions().is_empty());
    let told = cut.connection().next().await;
    assert_eq!(told, Some(Connection::Ended(EndReason::Expired)));
}

#[tokio::test(start_paused = true)]
async fn session_that_moves_over_in_time_lives_on() {
    let (ensemble, behind, _ahead) = split().await;
    sleep(TIMEOUT / 2).await;
    assert!(ensemble.move_over(behind.session()));
    assert!(!ensemble.move_over(behind.session()));
    sleep(2 * TIMEOUT).await;
    behind.delete("/e").await.unwrap();
    assert!(!ensemble.exists("/e"));
}

#[tokio::test(start_paused = true)]
async fn all_others_lose_their_connections_when_a_leader_is_elected() {
    let ensemble = MemoryEnsemble::builder()
        .latency(Duration::from_millis(10))
        .build();
    let (behind, ahead) = (connect(&ensemble).await, connect(&ensemble).await);
    let (mut quiet, mut told) = (behind.connection(), ahead.connection());
    let (kept, lost) = (behind.sync("/"), ahead.sync("/"));
    ensemble.depose(&[behind.session()]);
    assert_eq!(kind(lost.await), "unknown");
    assert_eq!(kind(kept.await), "ok");
    assert_eq!(told.next().await, Some(Connection::Connected));
    assert!(quiet.next().now_or_never().is_none());
}

/// The new quorum commits a create, and its reply is lost. The deposed leader does not show the
/// node.
#[tokio::test(start_paused = true)]
async fn client_that_knows_of_nothing_newer_can_go_back_to_the_deposed_leader() {
    let ensemble = MemoryEnsemble::builder()
        .latency(Duration::from_millis(10))
        .session_timeout(TIMEOUT)
        .build();
    let nodes = connect(&ensemble).await;
    ensemble.depose(&[]);
    let node = ephemeral("/e");
    let created = nodes.create(&node);
    assert!(ensemble.exists("/e"));
    assert!(ensemble.go_back(nodes.session()));
    assert_eq!(kind(created.await), "unknown");
    nodes.sync("/").await.unwrap();
    assert!(sorted_list(&*nodes, "/").await.is_empty());
    let mut stuck = nodes.create(&node);
    assert!((&mut stuck).now_or_never().is_none());
    sleep(TIMEOUT / 2).await;
    assert!(ensemble.move_over(nodes.session()));
    assert_eq!(kind(stuck.await), "unknown");
    assert_eq!(sorted_list(&*nodes, "/").await, ["e"]);
}

#[tokio::test(start_paused = true)]
async fn deposed_leader_lets_nobody_in_who_knows_of_something_newer() {
    let (ensemble, behind, ahead) = split().await;
    assert!(!ensemble.go_back(behind.session()), "it is there");
    ahead.sync("/").await.unwrap();
    assert!(!ensemble.go_back(ahead.session()));
    let fresh = connect(&ensemble).await;
    assert!(!ensemble.go_back(fresh.session()));
    ensemble.retire_deposed();
    assert!(!ensemble.go_back(behind.session()), "it is none any more");
}

#[tokio::test(start_paused = true)]
async fn event_that_the_client_has_not_polled_counts_as_known() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let watch = set_watch(&*nodes, "/a").await;
    ensemble.depose(&[]);
    ensemble.delete("/a").unwrap();
    assert!(!ensemble.go_back(nodes.session()));
    assert_eq!(fired(watch), NodeEvent::Deleted);
}

#[tokio::test(start_paused = true)]
async fn session_that_is_closed_behind_the_deposed_leader_ends_at_its_timeout_or_move() {
    for moves in [true, false] {
        let (ensemble, behind, _ahead) = split().await;
        let session = behind.session();
        drop(behind);
        sleep(TIMEOUT / 2).await;
        assert!(ensemble.exists("/e"));
        if moves {
            ensemble.move_over(session);
        } else {
            sleep(TIMEOUT).await;
        }
        assert!(!ensemble.exists("/e"));
        ensemble.retire_deposed();
    }
}

#[tokio::test(start_paused = true)]
async fn session_that_is_cut_off_leaves_the_deposed_leader() {
    let (ensemble, behind, _ahead) = split().await;
    ensemble.disconnect(behind.session());
    ensemble.reconnect(behind.session());
    assert!(!ensemble.move_over(behind.session()));
    behind.create(&persistent("/b")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn write_under_way_when_its_leader_is_deposed_is_never_answered() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let delay = Duration::from_millis(100);
    ensemble.set_faults(Faults {
        request_delay_min: delay,
        request_delay_max: delay,
        ..Faults::default()
    });
    let node = persistent("/a");
    let mut created = nodes.create(&node);
    assert!((&mut created).now_or_never().is_none());
    ensemble.depose(&[nodes.session()]);
    sleep(2 * delay).await;
    assert!(!ensemble.exists("/a"));
    ensemble.stop();
    assert_eq!(kind(created.await), "unknown");
    ensemble.restart();
    assert_eq!(kind(nodes.create(&node).await), "ok");
}

#[tokio::test(start_paused = true)]
async fn wiped_ensemble_knows_no_session_and_counts_anew() {
    for stopped in [false, true] {
        let ensemble = MemoryEnsemble::new();
        ensemble.create("/a/b", b"").unwrap();
        let nodes = connect(&ensemble).await;
        nodes.create(&ephemeral("/e")).await.unwrap();
        let watch = set_watch(&*nodes, "/a").await;
        ensemble.stop();
        ensemble.restart();
        let before = ensemble.zxid();
        if stopped {
            ensemble.stop();
        }
        ensemble.wipe();
        assert!(ensemble.children("/").is_empty());
        assert!(ensemble.sessions().is_empty());
        // It is let in to hear that its session is unknown.
        let mut connection = nodes.connection();
        let ended = Some(Connection::Ended(EndReason::Expired));
        assert_eq!(connection.next().await, ended);
        assert_eq!(fired(watch), NodeEvent::SessionEnded);
        assert_eq!(kind(nodes.sync("/").await), "session ended");
        let fresh = connect(&ensemble).await;
        assert_ne!(fresh.session(), nodes.session());
        let created = fresh.create(&persistent("/a")).await.unwrap();
        assert!(created.czxid.unwrap() < before);
    }
}

#[tokio::test(start_paused = true)]
async fn store_tells_how_long_the_machine_has_slept() {
    let ensemble = MemoryEnsemble::new();
    let store = ensemble.store();
    assert_eq!(store.suspended(), Duration::ZERO);
    ensemble.suspend_machine(Duration::from_secs(5));
    ensemble.suspend_machine(Duration::from_secs(2));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.suspended(), Duration::from_secs(7));
    assert_eq!(ensemble.store().suspended(), Duration::from_secs(7));
}
