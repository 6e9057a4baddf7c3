use std::pin::pin;

use futures::{FutureExt, poll};

use super::*;
use crate::error::LostReason;
use crate::lock::lease::Lease;
use crate::lock::lease_state::GuardState;
use crate::scripted::{
    Answer, Asked, MILLI, Read, SECOND, Stage, T, Watched, is_beat, node, node_watch, settle,
    unknown,
};
use crate::session::check_schedule::REFUSED_PAUSE;
use crate::session::epoch::InUse;
use crate::session::leftovers::Leftovers;
use crate::store::nodes::NodeOpDone;

mod beats;
mod connections;

fn contend(stage: &Stage) -> InUse {
    stage.epoch.contend(&Arc::new(Leftovers::new([])))
}

/// The kinds of the requests that were sent, in order.
async fn kinds(stage: &Stage) -> Vec<&'static str> {
    settle().await;
    let asked = std::iter::from_fn(|| stage.nodes.asked());
    asked
        .map(|asked| match asked {
            Asked::Sync(answer) => {
                drop(answer.send(Ok(())));
                "sync"
            }
            Asked::Multi(operations, answer) if is_beat(&operations) => {
                drop(answer.send(Ok(vec![NodeOpDone::Checked])));
                "commit"
            }
            Asked::Read(..) => "read",
            Asked::Watch(..) => "watch",
            other => panic!("{other:?}"),
        })
        .collect()
}

async fn watching(stage: &Stage) -> Answer<Watched> {
    loop {
        if let Asked::Watch(_, watch) = stage.asked().await {
            return watch;
        }
    }
}

async fn reading(stage: &Stage) -> Answer<Read> {
    loop {
        if let Asked::Read(_, read) = stage.asked().await {
            return read;
        }
    }
}

/// A watched lease, and the sender of its node's event.
async fn watched(stage: &Stage, czxid: i64) -> (Lease, tokio::sync::oneshot::Sender<NodeEvent>) {
    let lease = stage.lease(czxid);
    settle().await;
    tokio::time::advance(OWN_WATCH_GRACE).await;
    let (event, watch) = node_watch();
    let (data, stat) = node(czxid, b"");
    let answer = watching(stage).await;
    assert!(answer.send(Ok(Some((data, stat, watch)))).is_ok());
    settle().await;
    (lease, event)
}

fn is_lost(lease: &Lease) -> Option<LostReason> {
    lease.lost().now_or_never().map(|lost| lost.reason)
}

#[tokio::test(start_paused = true)]
async fn holder_of_a_silent_ensemble_is_told_at_its_deadline() {
    let stage = Stage::new().await;
    let (lease, _event) = watched(&stage, 1).await;
    let mut lost = pin!(lease.lost());
    tokio::time::advance(T / 2 - OWN_WATCH_GRACE - MILLI).await;
    settle().await;
    assert!(poll!(lost.as_mut()).is_pending());
    tokio::time::advance(2 * MILLI).await;
    settle().await;
    let told = lost.now_or_never();
    assert_eq!(told.map(|it| it.reason), Some(LostReason::DeadlinePassed));
}

#[tokio::test(start_paused = true)]
async fn lock_is_looked_at_behind_its_grace_and_watched_from_then_on() {
    let stage = Stage::new().await;
    let _lease = stage.lease(1);
    settle().await;
    tokio::time::advance(OWN_WATCH_GRACE - 10 * MILLI).await;
    assert!(stage.log().await.is_empty());
    tokio::time::advance(11 * MILLI).await;
    let answer = watching(&stage).await;
    let (_event, watch) = node_watch();
    let (data, stat) = node(1, b"");
    assert!(answer.send(Ok(Some((data, stat, watch)))).is_ok());
    for _ in 0..60 {
        assert!(
            !kinds(&stage)
                .await
                .iter()
                .any(|it| *it != "sync" && *it != "commit")
        );
        tokio::time::advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lock_that_is_released_in_its_grace_costs_no_watch() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    settle().await;
    drop(lease.retire());
    stage.log().await;
    tokio::time::advance(OWN_WATCH_GRACE + MILLI).await;
    assert!(stage.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn look_that_finds_another_node_or_none_loses_the_lock() {
    for found in [None, Some(2)] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        settle().await;
        tokio::time::advance(OWN_WATCH_GRACE).await;
        let answer = watching(&stage).await;
        let found = found.map(|czxid| {
            let (data, stat) = node(czxid, b"");
            (data, stat, node_watch().1)
        });
        assert!(answer.send(Ok(found)).is_ok());
        settle().await;
        assert_eq!(is_lost(&lease), Some(LostReason::NodeRemoved));
    }
}

#[tokio::test(start_paused = true)]
async fn look_without_an_answer_is_repeated_soon_and_a_refused_one_late() {
    for (error, pause) in [
        (unknown(), OWN_WATCH_GRACE),
        (NodesError::Throttled, OWN_WATCH_GRACE),
        (NodesError::NoAuth, REFUSED_PAUSE),
    ] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        settle().await;
        tokio::time::advance(OWN_WATCH_GRACE).await;
        for _ in 0..3 {
            let answer = watching(&stage).await;
            let case = error.to_string();
            assert!(answer.send(Err(error.clone())).is_ok());
            stage.beat_for(pause - 100 * MILLI).await;
            let early = stage.log().await;
            assert!(early.is_empty(), "{case}: {early:?}");
            stage.beat_for(100 * MILLI + MILLI).await;
        }
        watching(&stage).await;
        assert!(lease.check().is_ok(), "nothing was said about it");
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_that_is_heard_of_loses_the_lock() {
    let stage = Stage::new().await;
    let (lease, event) = watched(&stage, 1).await;
    let (other, _) = watched(&stage, 2).await;
    event.send(NodeEvent::Deleted).unwrap();
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::NodeRemoved));
    assert!(other.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn change_of_the_node_is_looked_at_and_watched_again() {
    let stage = Stage::new().await;
    let (lease, event) = watched(&stage, 1).await;
    event.send(NodeEvent::Changed).unwrap();
    let answer = watching(&stage).await;
    // Until the answer, nothing vouches for the node.
    assert!(!lease_is_vouched_for(&stage));
    let (again, watch) = node_watch();
    let (data, stat) = node(1, b"__REVOKE__");
    assert!(answer.send(Ok(Some((data, stat, watch)))).is_ok());
    settle().await;
    assert!(lease.revocation_requested().now_or_never().is_some());
    assert!(lease_is_vouched_for(&stage));
    again.send(NodeEvent::Deleted).unwrap();
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::NodeRemoved));
}

fn lease_is_vouched_for(stage: &Stage) -> bool {
    let lease = stage.epoch.leases().remove(0);
    lease.care().vouches(stage.epoch.connection().unwrap())
}

#[tokio::test(start_paused = true)]
async fn end_of_a_watch_with_its_session_says_nothing_of_the_node() {
    let stage = Stage::new().await;
    let (lease, event) = watched(&stage, 1).await;
    event.send(NodeEvent::SessionEnded).unwrap();
    settle().await;
    assert_eq!(is_lost(&lease), None);
    let expired = Connection::Ended(EndReason::Expired);
    stage.nodes.connection_is(expired);
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::SessionExpired));
}

fn with_watch(
    czxid: i64,
) -> (
    Vec<u8>,
    crate::store::nodes::NodeStat,
    crate::store::nodes::NodeWatch,
) {
    let (data, stat) = node(czxid, b"");
    (data, stat, futures::future::pending().boxed())
}

#[tokio::test(start_paused = true)]
async fn lapse_that_a_beat_notices_ends_every_lease() {
    let stage = Stage::new().await;
    let (first, _event) = watched(&stage, 1).await;
    let (second, _event) = watched(&stage, 2).await;
    let (mut one, mut other) = (pin!(first.lost()), pin!(second.lost()));
    tokio::time::advance(T / 6).await;
    let beat = loop {
        if let Asked::Sync(beat) = stage.asked().await {
            break beat;
        }
    };
    // The machine sleeps: no tokio timer has run out when the answer arrives.
    stage.nodes.sleep(T / 2 - SECOND);
    beat.send(Ok(())).unwrap();
    settle().await;
    let passed = Some(LostReason::DeadlinePassed);
    assert_eq!(one.as_mut().now_or_never().map(|it| it.reason), passed);
    assert_eq!(other.as_mut().now_or_never().map(|it| it.reason), passed);
    assert_eq!(stage.epoch.lapses(), 1);
}

#[tokio::test(start_paused = true)]
async fn machine_that_slept_past_the_deadline_tells_its_holders() {
    let stage = Stage::new().await;
    let (lease, _event) = watched(&stage, 1).await;
    let mut lost = pin!(lease.lost());
    assert!(poll!(lost.as_mut()).is_pending());
    stage.nodes.sleep(T / 2);
    // Past the next timer, whichever it is.
    tokio::time::advance(OWN_WATCH_GRACE + MILLI).await;
    settle().await;
    assert!(poll!(lost.as_mut()).is_ready());
}

/// A waiter's watch passes to its lease.
#[tokio::test(start_paused = true)]
async fn watch_of_a_waiter_is_kept() {
    let stage = Stage::new().await;
    let lock = stage.lock("/a", 0);
    let (event, watch) = node_watch();
    let lease = stage.lease_of(&lock, 1, Some(OwnWatch::new(watch)));
    stage.beat_for(20 * SECOND).await;
    assert!(stage.log().await.is_empty());
    event.send(NodeEvent::Deleted).unwrap();
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::NodeRemoved));
}

#[tokio::test(start_paused = true)]
async fn not_more_than_so_many_looks_are_under_way() {
    let stage = Stage::new().await;
    let lock = stage.lock("/a", 0);
    let count = i64::try_from(LOOKS_MAX).unwrap() + 10;
    let leases: Vec<_> = (0..count)
        .map(|it| stage.lease_of(&lock, it, None))
        .collect();
    settle().await;
    tokio::time::advance(OWN_WATCH_GRACE).await;
    settle().await;
    let mut asked: Vec<_> = std::iter::from_fn(|| stage.nodes.asked()).collect();
    assert_eq!(asked.len(), LOOKS_MAX);
    let Some(Asked::Watch(_, answer)) = asked.pop() else {
        panic!("not a look");
    };
    assert!(answer.send(Err(NodesError::Throttled)).is_ok());
    settle().await;
    assert_eq!(std::iter::from_fn(|| stage.nodes.asked()).count(), 1);
    drop(leases);
}
