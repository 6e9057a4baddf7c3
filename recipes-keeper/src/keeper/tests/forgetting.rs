//! Servers that forget: another run answers, and has nodes of the session.

use std::iter;

use tokio::time::{Instant, advance};

use super::*;
use crate::watches::Seen;

const SEEN: Seen = Seen {
    czxid: 1,
    mzxid: 1,
    owner: 5,
};

const SECOND: Duration = Duration::from_secs(1);

fn back(paths: &[&str]) -> Resumed {
    let nodes = paths.iter().map(|it| (*it).to_owned());
    Resumed {
        nodes: nodes.collect(),
        ..Resumed::default()
    }
}

fn told(quarantine: Duration, news: Vec<Option<NodeEvent>>) -> Resumed {
    Resumed {
        quarantine,
        news,
        ..Resumed::default()
    }
}

/// Whether this node, which the session knows, is to go once another run has it.
async fn is_deleted(scene: &mut Scene, connection: u64, path: &str) -> bool {
    scene.runs("two");
    scene.lose(connection);
    let (resume, reply) = scene.resume().await;
    assert!(resume.wants_nodes);
    goes_on_with(reply, back(&[path]));
    match scene.heard().await {
        Some(Heard::Started(..)) => false,
        Some(Heard::Requests(undo)) => {
            assert_eq!(*undo.asked, [delete(path)]);
            true
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_another_run_has_again_are_deleted_in_parts_before_the_session_goes_on() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    scene.makes("/a/x-", "/a/x-1").await;
    // Nobody knows whether this was done.
    let lost = ephemeral("/b/y-");
    let lost = nodes.create(&lost);
    let call = scene.requests().await;
    scene.runs("two");
    scene.lose(1);
    let (resume, reply) = scene.resume().await;
    lost.await.unwrap_err();
    assert!(resume.wants_nodes && resume.run == "two");
    // The create that was answered has made no other node.
    let others = (0..249).map(|it| format!("/c/z-{it}"));
    let gone: Vec<_> = iter::once("/a/x-9".to_owned()).chain(others).collect();
    let mut all = vec!["/a/x-1", "/b/y-7"];
    all.extend(gone.iter().map(String::as_str));
    goes_on_with(reply, back(&all));
    for gone in gone.chunks(100) {
        let undo = scene.requests().await;
        let deletes: Vec<_> = gone.iter().map(|it| delete(it)).collect();
        assert_eq!(*undo.asked, deletes);
        undo.answer(gone.iter().map(|_| deleted()));
    }
    assert_eq!(scene.started().await.0, 2);
    assert_eq!(nodes.runs(), 1);
    scene.lose(2);
    let (resume, _reply) = scene.resume().await;
    assert!(!resume.wants_nodes, "this run has answered");
    drop(call);
}

/// The run before may have ended the session, and granted others its place.
#[tokio::test(start_paused = true)]
async fn session_that_was_not_heard_for_half_its_timeout_gives_all_nodes_up_to_another_run() {
    // The server hears a call when it is sent, and not when it has answered.
    for (answered, silent, is_lost) in [(0, 5500, false), (0, 6000, true), (2000, 4000, true)] {
        let mut scene = Scene::open(APART).await;
        let nodes = Arc::clone(&scene.nodes);
        advance(SECOND).await;
        let node = ephemeral("/a/x-");
        let created = nodes.create(&node);
        let call = scene.requests().await;
        advance(Duration::from_millis(answered)).await;
        call.answer([made("/a/x-1")]);
        created.await.unwrap();
        advance(Duration::from_millis(silent)).await;
        assert_eq!(is_deleted(&mut scene, 1, "/a/x-1").await, is_lost);
    }
}

#[tokio::test(start_paused = true)]
async fn session_is_heard_by_its_latest_call_and_by_going_on() {
    for goes_on_between in [false, true] {
        let mut scene = Scene::open(APART).await;
        let nodes = Arc::clone(&scene.nodes);
        let synced = nodes.sync("/a");
        let (_, beat) = scene.beat().await;
        advance(SECOND * 2).await;
        scene.makes("/a/x-", "/a/x-1").await;
        // It was sent before.
        lives(beat);
        synced.await.unwrap();
        advance(SECOND * 5).await;
        let mut connection = 1;
        if goes_on_between {
            scene.lose(connection);
            goes_on(scene.resume().await.1);
            (connection, _) = scene.started().await;
            advance(SECOND * 5).await;
        }
        assert!(!is_deleted(&mut scene, connection, "/a/x-1").await);
    }
}

/// Only when they are gone, the session goes on.
#[tokio::test(start_paused = true)]
async fn nodes_whose_deletion_was_lost_are_deleted_over_the_next_connection() {
    let mut scene = Scene::open(APART).await;
    scene.makes("/a/x-", "/a/x-1").await;
    advance(SECOND * 6).await;
    assert!(is_deleted(&mut scene, 1, "/a/x-1").await);
    // The wire has no answer, as the test has dropped the call.
    let (resume, reply) = scene.resume().await;
    assert!(resume.wants_nodes);
    goes_on_with(reply, back(&["/a/x-1"]));
    let undo = scene.requests().await;
    assert_eq!(*undo.asked, [delete("/a/x-1")]);
    assert_eq!(scene.nodes.runs(), 0);
    undo.answer([deleted()]);
    assert_eq!(scene.started().await.0, 3);
    assert_eq!(scene.nodes.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn session_that_ends_while_its_nodes_are_deleted_is_over() {
    let mut scene = Scene::open(APART).await;
    scene.runs("two");
    scene.lose(1);
    let (_, reply) = scene.resume().await;
    goes_on_with(reply, back(&["/a/x-1"]));
    let undo = scene.requests().await;
    assert!(undo.reply.send(Ok(None)).is_ok());
    assert!(scene.heard().await.is_none());
    let last = scene.nodes.connection().next().now_or_never().flatten();
    assert_eq!(last, Some(Connection::Ended(EndReason::Expired)));
}

#[tokio::test(start_paused = true)]
async fn watches_are_set_again_in_parts_and_the_longest_quarantine_of_these_counts() {
    for (one, other) in [(3, 5), (5, 3)] {
        let mut scene = Scene::open(APART).await;
        let nodes = Arc::clone(&scene.nodes);
        let shared = scene.shared();
        let mut news = Vec::new();
        for path in (0..250).map(|it| format!("/w/{it}")) {
            let (number, event) = shared.watches.enter(&path);
            shared.watches.confirm(&path, number, SEEN);
            news.push(event);
        }
        scene.runs("two");
        scene.server.facts.lock().unwrap().guarantee = Guarantee::Consensus;
        scene.lose(1);
        let (resume, reply) = scene.resume().await;
        assert!(resume.wants_nodes && resume.watches.len() == 200);
        let mut first = vec![None; 200];
        first[199] = Some(NodeEvent::Deleted);
        goes_on_with(reply, told(SECOND * one, first));
        let (resume, reply) = scene.resume().await;
        assert!(!resume.wants_nodes && resume.watches.len() == 50);
        assert_eq!(resume.known_by, [1, 2]);
        let mut second = vec![None; 50];
        second[0] = Some(NodeEvent::Changed);
        goes_on_with(reply, told(SECOND * other, second));
        assert_eq!(scene.started().await.0, 2);
        assert_eq!(nodes.grants_from(), Some(Instant::now() + SECOND * 5));
        assert_eq!(nodes.guarantee(), Guarantee::Consensus);
        let heard: Vec<_> = news.iter_mut().map(|it| it.try_recv().ok()).collect();
        assert_eq!(heard[199], Some(NodeEvent::Deleted));
        assert_eq!(heard[200], Some(NodeEvent::Changed));
        assert_eq!(heard.iter().flatten().count(), 2);
        // The next server knows who holds what.
        scene.lose(2);
        for count in [200, 48] {
            let reply = scene.resume().await.1;
            goes_on_with(reply, told(Duration::ZERO, vec![None; count]));
        }
        assert_eq!(scene.started().await.0, 3);
        assert_eq!(nodes.grants_from(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_does_not_tell_of_a_watch_costs_the_connection() {
    let mut scene = Scene::open(APART).await;
    let shared = scene.shared();
    let (number, _news) = shared.watches.enter("/w");
    shared.watches.confirm("/w", number, SEEN);
    scene.lose(1);
    goes_on(scene.resume().await.1);
    let (resume, _reply) = scene.resume().await;
    assert_eq!(resume.caller.connection, 3);
}

/// It may have been heard nevertheless.
#[tokio::test(start_paused = true)]
async fn session_may_be_known_by_a_connection_that_was_not_answered() {
    let mut scene = Scene::open(APART).await;
    scene.lose(1);
    drop(scene.resume().await.1);
    let (resume, reply) = scene.resume().await;
    assert_eq!(resume.known_by, [1, 2, 3]);
    goes_on(reply);
    scene.started().await;
    scene.lose(3);
    let (resume, _reply) = scene.resume().await;
    assert_eq!(resume.known_by, [1, 2, 3, 4]);
    let subscribed = scene.server.subscribed.lock().unwrap();
    assert_eq!(*subscribed, [(1, 5), (2, 5), (3, 5), (4, 5)]);
}
