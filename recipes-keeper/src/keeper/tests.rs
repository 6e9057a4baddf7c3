mod forgetting;
mod leaving;
mod listings;
mod news;
mod opening;
mod reconnects;
mod said;
mod scene;
mod times;

use std::sync::atomic::Ordering;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use recipes_core::internal::log::Causes;
use recipes_core::{Created, Guarantee, NewNode, NodeEvent, NodeMode, NodeOp, NodeOpDone, Nodes};
use tokio::sync::mpsc;

use super::*;
use crate::sessions::Sessions;
use crate::wire::{CallError, Facts, Resume, Resumed, Said};

use said::*;
use scene::*;

const TIMEOUT: Duration = Duration::from_secs(12);
const CONNECT: Duration = Duration::from_secs(7);

#[tokio::test(start_paused = true)]
async fn beat_that_is_apart_waits_for_no_request() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let mut listed = nodes.list("/a");
    let requests = scene.requests().await;
    assert_eq!(*requests.asked, [list("/a")]);
    let synced = nodes.sync("/a");
    let (caller, beat) = scene.beat().await;
    let expected = Caller {
        id: 5,
        secret: "secret".to_owned(),
        connection: 1,
        timeout: TIMEOUT,
        container_rest: TIMEOUT,
    };
    assert_eq!(*caller, expected);
    // Another request waits, as one is on its way.
    let read = nodes.stat("/b");
    assert!(scene.is_quiet().await);
    lives(beat);
    synced.await.unwrap();
    assert!(futures::poll!(&mut listed).is_pending());
    requests.answer([names(&["x"])]);
    assert_eq!(listed.await.unwrap(), ["x"]);
    assert_eq!(*scene.requests().await.asked, [stat("/b")]);
    drop(read);
}

#[tokio::test(start_paused = true)]
async fn beats_that_are_asked_for_behind_one_share_the_next() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let first = nodes.sync("/a");
    let (_, beat) = scene.beat().await;
    let (second, third) = (nodes.sync("/a"), nodes.sync("/b"));
    assert!(scene.is_quiet().await);
    lives(beat);
    first.await.unwrap();
    lives(scene.beat().await.1);
    second.await.unwrap();
    third.await.unwrap();
    assert!(scene.is_quiet().await);
}

#[tokio::test(start_paused = true)]
async fn keeper_sends_beats_where_the_wire_does_not() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let synced = nodes.sync("/a");
    let requests = scene.requests().await;
    assert_eq!(*requests.asked, [Asked::Beat]);
    requests.answer([Said::Nothing]);
    synced.await.unwrap();
    // A sixth of the timeout later.
    assert_eq!(*scene.requests().await.asked, [Asked::Beat]);
    let mut scene = Scene::open(APART).await;
    assert!(scene.heard().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn unanswered_beat_that_is_apart_costs_the_connection() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let synced = nodes.sync("/a");
    let beat = scene.beat().await;
    let _resume = scene.resume().await;
    let error = synced.await.unwrap_err();
    assert!(matches!(error, NodesError::Unknown(_)), "{error:?}");
    drop(beat);
}

/// Whoever takes a create for ignored sends it again, and waits behind its own node for ever.
#[tokio::test(start_paused = true)]
async fn what_too_few_replicas_confirm_may_have_been_done() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let node = NewNode {
        path: "/a/n".to_owned(),
        data: Arc::default(),
        mode: NodeMode::EphemeralSequential,
    };
    let why = || Arc::new(std::io::Error::other("busy"));
    let unconfirmed = CallError::Unconfirmed { heard: 0, asked: 1 };
    for (error, is_known) in [(unconfirmed, false), (CallError::NotNow(why()), true)] {
        let created = nodes.create(&node);
        let requests = scene.requests().await;
        assert!(requests.reply.send(Err(error)).is_ok());
        let error = created.await.unwrap_err();
        assert_eq!(
            is_known,
            matches!(error, NodesError::Throttled),
            "{error:?}"
        );
        assert_ne!(
            is_known,
            matches!(error, NodesError::Unknown(_)),
            "{error:?}"
        );
        let why = Causes(&error).to_string();
        assert_ne!(is_known, why.contains("only 0 of 1 replicas"), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn why_nothing_is_answered_is_told_until_something_is() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let why = |word: &str| Arc::new(std::io::Error::other(word.to_owned()));
    let is_told = |word: &str| {
        let trouble = nodes.trouble();
        trouble.is_some_and(|it| format!("{it:?}").contains(word))
    };
    let refused = async |scene: &mut Scene, error: CallError| {
        let synced = nodes.sync("/a");
        let requests = scene.requests().await;
        assert!(requests.reply.send(Err(error)).is_ok());
        synced.await.unwrap_err();
    };
    assert!(nodes.trouble().is_none());
    refused(&mut scene, CallError::NotNow(why("no replicas"))).await;
    assert!(is_told("no replicas"), "{:?}", nodes.trouble());
    let synced = nodes.sync("/a");
    scene.requests().await.answer([Said::Nothing]);
    synced.await.unwrap();
    assert!(nodes.trouble().is_none());
    refused(&mut scene, CallError::Refused(why("no right"))).await;
    let resume = scene.resume().await;
    assert!(is_told("no right"), "{:?}", nodes.trouble());
    drop(resume);
}

#[tokio::test(start_paused = true)]
async fn session_that_its_wire_reports_as_ended_is_over() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let waiting = nodes.list("/a");
    let requests = scene.requests().await;
    scene.server.loss.send_replace(Some((1, Loss::Session)));
    let last = scene.nodes.connection().next().await;
    assert_eq!(last, Some(Connection::Ended(EndReason::Expired)));
    waiting.await.unwrap_err();
    let ended = scene.nodes.sync("/a").await;
    assert!(matches!(ended, Err(NodesError::SessionEnded)), "{ended:?}");
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn highest_number_in_an_answer_is_known_to_the_wire() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let node = NewNode {
        path: "/a/x-".to_owned(),
        data: Default::default(),
        mode: NodeMode::EphemeralSequential,
    };
    let created = nodes.create(&node);
    let requests = scene.requests().await;
    assert_eq!(scene.seen(), 0);
    let made = Created {
        path: "/a/x-1".to_owned(),
        czxid: Some(70),
    };
    requests.answer([Said::Multi(vec![NodeOpDone::Created(made)])]);
    created.await.unwrap();
    assert_eq!(scene.seen(), 70);
    let set = NodeOp::Set {
        path: "/a".to_owned(),
        data: Vec::new(),
        version: None,
    };
    let set = nodes.multi(vec![set]);
    let told = crate::parts::stat([1, 75, 0, 0, 0, 0, 1]).unwrap();
    let done = Said::Multi(vec![NodeOpDone::Set(told)]);
    scene.requests().await.answer([done]);
    assert_eq!(set.await.unwrap().len(), 1);
    assert_eq!(scene.seen(), 75);
    for (numbers, seen) in [
        ([60, 61, 90], 90),
        ([80, 80, 80], 90),
        ([1, 95, 2], 95),
        ([97, 1, 2], 97),
    ] {
        let stat = nodes.stat("/a");
        let [c, m, p] = numbers;
        let told = crate::parts::stat([c, m, 0, 0, 0, 0, p]).unwrap();
        scene.requests().await.answer([Said::Stat(told)]);
        stat.await.unwrap();
        assert_eq!(scene.seen(), seen);
    }
}
