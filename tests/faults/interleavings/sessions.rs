//! Sessions that end or reconnect at the worst moment.

use std::time::Duration;

use futures::FutureExt as _;
use lock_recipes::{AcquireError, Error, LostReason, ReleaseError};
use test_rig::{Faults, MemoryEnsemble};

use super::{PATH, PATIENCE, granted, mutex, settle, stage};

#[tokio::test(start_paused = true)]
async fn release_after_an_expiry_that_was_not_told_yet_says_that_the_lock_was_lost() {
    let ensemble = MemoryEnsemble::new();
    let [session] = stage(&ensemble, &[PATH]).await;
    let held = mutex(&session, PATH).acquire().await.unwrap();
    ensemble.expire(session.session_id().unwrap());
    let released = held.release().await.unwrap_err();
    assert!(
        matches!(released, Error::Release(ReleaseError::Lost(_))),
        "{released}"
    );
}

#[tokio::test(start_paused = true)]
async fn session_closes_beside_an_acquire_that_nobody_polls() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2] = stage(&ensemble, &[PATH]).await;
    let _held = mutex(&s1, PATH).acquire().await.unwrap();
    let waiting = mutex(&s2, PATH);
    let mut waiter = Box::pin(waiting.acquire());
    assert!(granted(waiter.as_mut()).await.is_none());
    assert_eq!(ensemble.children(PATH).len(), 2);
    let closing = tokio::time::Instant::now();
    s2.close().await;
    assert!(
        closing.elapsed() < Duration::from_secs(1),
        "{:?}",
        closing.elapsed()
    );
    assert_eq!(ensemble.children(PATH).len(), 1);
    let closed = waiter.await.unwrap_err();
    assert!(
        matches!(closed, Error::Acquire(AcquireError::SessionClosed { .. })),
        "{closed}"
    );
}

#[tokio::test(start_paused = true)]
async fn session_closes_beside_a_release_that_nobody_polls() {
    let latency = Duration::from_millis(10);
    let ensemble = MemoryEnsemble::builder().latency(latency).build();
    let [session] = stage(&ensemble, &[PATH]).await;
    let held = mutex(&session, PATH).acquire().await.unwrap();
    let mut release = Box::pin(held.release());
    assert!(release.as_mut().now_or_never().is_none());
    session.close().await;
    assert_eq!(ensemble.sessions(), [0_i64; 0]);
}

#[tokio::test(start_paused = true)]
async fn session_that_expires_while_it_is_closed_is_closed() {
    let ensemble = MemoryEnsemble::builder()
        .session_timeout(Duration::from_secs(2))
        .build();
    let [session] = stage(&ensemble, &[PATH]).await;
    let held = mutex(&session, PATH).acquire().await.unwrap();
    // Its delete gets no answer, and then the session ends.
    ensemble.disconnect(session.session_id().unwrap());
    drop(held);
    let closing = tokio::time::Instant::now();
    session.close().await;
    assert!(
        closing.elapsed() < Duration::from_secs(4),
        "{:?}",
        closing.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn reconnections_add_no_watches() {
    let ensemble = MemoryEnsemble::new();
    let [session] = stage(&ensemble, &[PATH]).await;
    let held = mutex(&session, PATH).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ensemble.watch_count(), 1);
    for _ in 0..20 {
        ensemble.disconnect(session.session_id().unwrap());
        settle().await;
        ensemble.reconnect(session.session_id().unwrap());
        settle().await;
    }
    assert_eq!(ensemble.watch_count(), 1);
    // And the new watch still reports.
    ensemble.delete(&held.members()[0].node_path).unwrap();
    assert_eq!(held.lost().await.reason, LostReason::NodeRemoved);
}

#[test]
fn guards_are_told_when_the_runtime_of_their_session_is_gone() {
    let ensemble = MemoryEnsemble::new();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let held = first.block_on(async {
        let session = ensemble.session();
        mutex(&session, PATH).acquire().await.unwrap()
    });
    first.shutdown_timeout(Duration::from_secs(5));
    let lost = runtime().block_on(async { tokio::time::timeout(PATIENCE, held.lost()).await });
    assert_eq!(lost.unwrap().reason, LostReason::SessionClosed);
    assert!(!held.is_valid());
}

/// Each new session makes all contenders queue and all clean-ups search again. An ensemble in
/// trouble once had a storm of that.
#[tokio::test(start_paused = true)]
async fn sessions_that_end_at_once_are_followed_by_others_after_a_pause() {
    let faults = Faults {
        expiry_per_mille: 1000,
        ..Faults::default()
    };
    let latency = Duration::from_millis(1);
    let builder = MemoryEnsemble::builder().latency(latency).faults(faults);
    let ensemble = builder.build();
    let lock = mutex(&ensemble.session(), PATH);
    let failed = lock.acquire().timeout(Duration::from_secs(5)).await;
    let failed = failed.unwrap_err();
    assert!(
        matches!(failed, Error::Acquire(AcquireError::TimedOut { .. })),
        "{failed}"
    );
    let requests = ensemble.requests().len();
    assert!((5..100).contains(&requests), "{requests} requests");
}
