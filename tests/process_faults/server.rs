//! Servers that are killed and halted.

use std::time::Duration;

use lock_recipes::{GuardState, LostReason, SessionHealth};
use test_rig::history::monotonic_now;
use tokio::time::sleep;

use crate::{
    LONG, PATH, SHORT, assert_nothing_left, holder_and_waiter, mutex, server, session, start,
};

/// Of a session whose server is halted eight times, for up to twice as long.
const HALTED: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_killed_and_back_within_the_session_changes_nothing() {
    let ensemble = start().await;
    let session = session(&ensemble, LONG).await;
    let held = mutex(&session).acquire().await.unwrap();
    let waiter = mutex(&session);
    let waiter = tokio::spawn(waiter.acquire());
    let before = ensemble.await_children(PATH, 2).await;

    let mut health = session.watch_health();
    server(&ensemble).kill().await.unwrap();
    while session.health() != SessionHealth::Disconnected {
        health.changed().await;
    }
    assert!(
        matches!(held.state(), GuardState::Suspended { .. }),
        "{:?}",
        held.state()
    );
    server(&ensemble).start_again().await.unwrap();
    let is_held = async || (held.state() == GuardState::Held).then_some(());
    ensemble.until("held again", is_held).await;
    held.verify().await.unwrap();
    assert_eq!(ensemble.children(PATH).await, before);
    assert!(!waiter.is_finished());
    let token = held.fencing_token();
    held.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    assert_eq!(session.epoch(), 1);
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}

/// When the server is back, it gives the session its full timeout again. The holder gave up long
/// before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_killed_for_longer_than_the_session_is_too_late_for_the_holder() {
    let ensemble = start().await;
    let (short, long) = (
        session(&ensemble, SHORT).await,
        session(&ensemble, LONG).await,
    );
    let queued = async || drop(ensemble.await_children(PATH, 2).await);
    let (held, waiter) = holder_and_waiter(&short, &long, queued).await;

    server(&ensemble).kill().await.unwrap();
    let lost = held.lost().await;
    let told = monotonic_now();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    assert!(!held.is_valid());
    sleep(SHORT).await;
    assert!(!waiter.is_finished(), "granted by a server that is dead");
    server(&ensemble).start_again().await.unwrap();
    let (granted_at, granted) = waiter.await.unwrap();
    assert!(granted_at > told);
    assert!(granted.fencing_token() > held.fencing_token());
    assert_eq!(held.state(), GuardState::Lost(LostReason::DeadlinePassed));
    granted.release().await.unwrap();
    // In its next ZooKeeper session.
    mutex(&short)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}

/// From much less than any deadline to twice the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_does_not_run_for_a_while_lets_nobody_in_too_early() {
    let ensemble = start().await;
    let (short, long) = (
        session(&ensemble, HALTED).await,
        session(&ensemble, LONG).await,
    );
    for tenths in [1, 4, 6, 8, 10, 12, 15, 20] {
        let pause = HALTED * tenths / 10;
        let queued = async || drop(ensemble.await_children(PATH, 2).await);
        let (held, waiter) = holder_and_waiter(&short, &long, queued).await;
        server(&ensemble).pause().unwrap();
        let silent_from = monotonic_now();
        sleep(pause).await;
        // The stamp is taken before the guard is checked.
        let asked = monotonic_now();
        let was_valid = held.is_valid();
        let checked = monotonic_now();
        let silent = Duration::from_nanos(asked - silent_from);
        // Nothing was acknowledged since, so this holds on the busiest machine.
        assert!(
            !was_valid || silent < HALTED / 2,
            "valid after {silent:?} of silence"
        );
        assert!(
            !waiter.is_finished(),
            "granted by a server that does not run"
        );
        server(&ensemble).resume().unwrap();
        // The server may then expire the session first, or get a request from it first.
        let valid_until = was_valid.then_some(asked);
        let notified = tokio::select! {
            biased;
            _ = held.lost() => monotonic_now(),
            () = sleep(2 * HALTED) => monotonic_now(),
        };
        // A guard that was invalid before the server ran again needs no time of this thread to know.
        let held_until = if was_valid { notified } else { checked };
        let is_held = held.is_valid();
        if is_held {
            assert!(!waiter.is_finished(), "two hold after {pause:?}");
        }
        let token = held.fencing_token();
        drop(held);
        let (granted_at, granted) = waiter.await.unwrap();
        assert!(
            granted_at > valid_until.unwrap_or(0),
            "two held after {pause:?}"
        );
        assert!(granted_at > held_until, "told too late after {pause:?}");
        assert!(granted.fencing_token() > token);
        granted.release().await.unwrap();
        ensemble.await_children(PATH, 0).await;
    }
    assert_nothing_left(server(&ensemble));
}
