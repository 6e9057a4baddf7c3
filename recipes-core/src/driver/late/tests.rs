use std::error::Error as _;

use futures::{FutureExt, poll};

use super::*;
use crate::clock::human;
use crate::driver::acquire_all::{Refusal, acquire_all};
use crate::driver::deadline::Deadline;
use crate::names::node_name::LockKind;
use crate::names::owner::Owner;
use crate::scripted::{Asked, MILLI, SECOND, Stage, T, settle, unknown};
use crate::session::options::LockOptions;
use crate::store::nodes::{Connection, EndReason};

const OTHER: &str = "_c_00000000-0000-4000-8000-000000000001-lock-0000000000";

fn internals(stage: &Stage, path: &str, handoffs: u32) -> LockInternals {
    let options = LockOptions::new().local_handoffs(handoffs);
    LockInternals::new(&stage.session, path, LockKind::Mutex, &options).unwrap()
}

/// Fails to acquire within this time, and lets `meanwhile` answer after the first poll.
async fn failed(
    locks: Vec<LockInternals>,
    owner: Option<&Owner>,
    within: Duration,
    meanwhile: impl AsyncFnOnce(),
) -> AcquireError {
    let locks = OneOrMore::new(locks).unwrap();
    let deadline = Deadline::after(within);
    let mut acquire = acquire_all(&locks, owner, deadline).boxed();
    if let std::task::Poll::Ready(outcome) = poll!(acquire.as_mut()) {
        return outcome.unwrap_err().into_error();
    }
    meanwhile().await;
    // The clock stands still while it is polled, so that every answer is taken first.
    for _ in 0..10 {
        settle().await;
        if let std::task::Poll::Ready(outcome) = poll!(acquire.as_mut()) {
            return outcome.unwrap_err().into_error();
        }
    }
    tokio::time::advance(within).await;
    acquire.await.unwrap_err().into_error()
}

/// Answers creates, and listings with the created node after another contender's.
async fn answer_as_busy(stage: &Stage) {
    settle().await;
    let mut children = vec![OTHER.to_owned()];
    while let Some(asked) = stage.nodes.asked() {
        match asked {
            Asked::Create(node, answer) => {
                let path = format!("{}0000000001", node.path);
                children.push(path.rsplit_once('/').unwrap().1.to_owned());
                let czxid = Some(5);
                let created = crate::store::nodes::Created { path, czxid };
                answer.send(Ok(created)).unwrap();
            }
            Asked::List(_, answer) => answer.send(Ok(children.clone())).unwrap(),
            Asked::Watch(_, answer) => assert!(answer.send(Ok(None)).is_ok()),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_never_answers_is_the_reason() {
    let stage = Stage::new().await;
    let locks = vec![internals(&stage, "/a", 0)];
    let error = failed(locks, None, 2 * SECOND, async || ()).await;
    let text = "lock \"/a\" not acquired within 2 s: the store has not answered for 2 s";
    assert_eq!(error.to_string(), text);
    assert!(error.is_transient() && !error.is_busy(), "{error:?}");
    assert!(error.source().is_none(), "no request has failed");
}

/// The time that it waits for answers is not what it was given, so the text does not say so.
#[tokio::test(start_paused = true)]
async fn acquire_without_time_and_without_an_answer_was_not_acquired_at_once() {
    let stage = Stage::new().await;
    let patience = stage.session.core().connect_timeout();
    let lock = internals(&stage, "/a", 0);
    let mut acquire = lock.acquire(None, Deadline::after(Duration::ZERO)).boxed();
    assert!(poll!(acquire.as_mut()).is_pending());
    tokio::time::advance(patience).await;
    let error = acquire.await.unwrap_err().into_error();
    let silence = human(patience);
    let text =
        format!("lock \"/a\" not acquired at once: the store has not answered for {silence}");
    assert_eq!(error.to_string(), text);
    assert!(error.is_transient() && !error.is_busy(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn try_waits_for_answers_as_long_as_it_may() {
    let stage = Stage::new().await;
    let patience = stage.session.core().connect_timeout();
    let lock = internals(&stage, "/a", 0);
    for (given, waits) in [
        (None, patience),
        (Some(Duration::ZERO), patience),
        (Some(MILLI * 200), MILLI * 200),
    ] {
        let mut tried = lock.acquire(None, Deadline::of_try(given)).boxed();
        assert!(poll!(tried.as_mut()).is_pending());
        tokio::time::advance(waits - MILLI).await;
        assert!(poll!(tried.as_mut()).is_pending(), "{given:?}");
        tokio::time::advance(MILLI).await;
        let Err(Refusal::Failed(error)) = tried.await else {
            panic!("an outage is no contention");
        };
        let waits = human(waits);
        let text = format!(
            "lock \"/a\" not acquired within {waits}: the store has not answered for {waits}"
        );
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn last_error_of_a_silent_store_is_the_source() {
    let stage = Stage::new().await;
    let locks = vec![internals(&stage, "/a", 0)];
    let fail_all = async || {
        settle().await;
        while let Some(asked) = stage.nodes.asked() {
            match asked {
                Asked::Create(_, answer) => drop(answer.send(Err(unknown()))),
                Asked::List(_, answer) => drop(answer.send(Err(unknown()))),
                Asked::Watch(_, answer) => drop(answer.send(Err(unknown()))),
                _ => {}
            }
        }
    };
    let error = failed(locks, None, 1_500 * MILLI, fail_all).await;
    let text = "lock \"/a\" not acquired within 1.5 s: the store has not answered for 1.5 s";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.source().unwrap().to_string(), unknown().to_string());
}

#[tokio::test(start_paused = true)]
async fn session_that_ended_is_the_reason() {
    let stage = Stage::new().await;
    let locks = vec![internals(&stage, "/a", 0)];
    let end = async || {
        let expired = Connection::Ended(EndReason::Expired);
        stage.nodes.connection_is(expired);
    };
    let error = failed(locks, None, 2 * SECOND, end).await;
    let text = "lock \"/a\" not acquired within 2 s: the session is being re-established";
    assert_eq!(error.to_string(), text);
    assert!(error.is_transient() && !error.is_busy(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_connection_is_the_reason_even_for_one_that_knows_a_contender_ahead() {
    let stage = Stage::new().await;
    let locks = vec![internals(&stage, "/a", 0)];
    let cut = async || {
        answer_as_busy(&stage).await;
        settle().await;
        stage.nodes.connection_is(Connection::Disconnected);
    };
    let error = failed(locks, None, 2 * SECOND, cut).await;
    assert!(error.is_transient() && !error.is_busy(), "{error}");
}

/// The connection looks as if it were up.
#[tokio::test(start_paused = true)]
async fn heartbeat_without_an_answer_is_the_reason_even_for_one_that_knows_a_contender_ahead() {
    let stage = Stage::new().await;
    let locks = vec![internals(&stage, "/a", 0)];
    let freeze = async || {
        answer_as_busy(&stage).await;
        settle().await;
        stage.log().await;
        tokio::time::advance(T / 6).await;
        let asked = stage.log().await;
        assert_eq!(asked, ["sync"]);
    };
    let error = failed(locks, None, 5 * SECOND, freeze).await;
    let text = "lock \"/a\" not acquired within 5 s: the store has not answered for 5 s";
    assert_eq!(error.to_string(), text);
}

#[tokio::test(start_paused = true)]
async fn contender_ahead_is_the_reason_while_heartbeats_are_answered() {
    let stage = Stage::new().await;
    let locks = vec![internals(&stage, "/a", 0)];
    let beat = async || {
        answer_as_busy(&stage).await;
        stage.beat_for(4 * SECOND).await;
    };
    let error = failed(locks, None, 5 * SECOND, beat).await;
    let text = format!(
        "lock \"/a\" not acquired within 5 s: held by another contender ({OTHER} is ahead)"
    );
    assert_eq!(error.to_string(), text);
}

/// A try and an acquire without time find it in the first listing.
#[tokio::test(start_paused = true)]
async fn contender_of_a_member_is_the_reason_without_time_to_wait() {
    let stage = Stage::new().await;
    let set = ["/a", "/b"].map(|path| internals(&stage, path, 0)).to_vec();
    let b_is_busy = async || {
        settle().await;
        while let Some(Asked::List(path, answer)) = stage.nodes.asked() {
            let busy = path == "/b";
            let children = busy.then(|| OTHER.to_owned());
            answer.send(Ok(children.into_iter().collect())).unwrap();
        }
    };
    let error = failed(set, None, Duration::ZERO, b_is_busy).await;
    let text = format!(
        "lock \"/a, /b\" not acquired at once: \"/b\" is held by another contender \
         ({OTHER} is ahead)"
    );
    assert_eq!(error.to_string(), text);
    assert!(error.is_busy() && !error.is_transient(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn another_acquire_of_the_owner_is_the_reason() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let (a, b) = (internals(&stage, "/a", 0), internals(&stage, "/b", 0));
    let first = a.clone();
    let mut first = first.acquire(Some(&owner), Deadline::never()).boxed();
    assert!(poll!(first.as_mut()).is_pending());
    answer_as_busy(&stage).await;
    assert!(poll!(first.as_mut()).is_pending());
    for within in [MILLI * 500, Duration::ZERO] {
        let error = failed(vec![a.clone()], Some(&owner), within, async || ()).await;
        let text = format!(
            "lock \"/a\" not acquired {}: already being acquired by the same owner",
            match within.is_zero() {
                true => "at once".to_owned(),
                false => format!("within {}", human(within)),
            }
        );
        assert_eq!(error.to_string(), text);
        assert!(error.is_busy() && !error.is_transient(), "{error:?}");
    }
    let set = vec![a, b];
    let error = failed(set, Some(&owner), MILLI * 500, async || ()).await;
    let text = "lock \"/a, /b\" not acquired within 500 ms: \"/a\" is already being acquired by the \
                same owner";
    assert_eq!(error.to_string(), text);
}

/// One that waits for its turn knows what the one that has the turn waits for.
#[tokio::test(start_paused = true)]
async fn contender_of_the_attempt_that_has_the_turn_is_the_reason_for_who_waits_for_it() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 1);
    let mut first = lock.acquire(None, Deadline::never()).boxed();
    assert!(poll!(first.as_mut()).is_pending());
    let within = MILLI * 500;
    let error = failed(vec![lock.clone()], None, within, async || ()).await;
    let text = "lock \"/a\" not acquired within 500 ms: held by another contender";
    assert_eq!(error.to_string(), text);
    answer_as_busy(&stage).await;
    assert!(poll!(first.as_mut()).is_pending());
    let error = failed(vec![lock.clone()], None, within, async || ()).await;
    assert_eq!(error.to_string(), format!("{text} ({OTHER} is ahead)"));
    assert!(matches!(
        lock.acquire(None, Deadline::of_try(None)).await,
        Err(Refusal::Busy(_))
    ));
}
