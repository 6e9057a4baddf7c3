//! An ensemble that lost its data counts transactions from the start, and so its fencing tokens.

use std::time::Duration;

use lock_recipes::{
    AcquireError, Error, InterProcessMutex, LockOptions, LostReason, Session, SessionHealth,
};
use test_rig::MemoryEnsemble;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

fn lock(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, "/locks/ledger").unwrap()
}

/// A session that has seen some numbers.
async fn seasoned(memory: &MemoryEnsemble) -> Session {
    let session = memory.session();
    for _ in 0..20 {
        let guard = lock(&session).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    session
}

#[tokio::test(start_paused = true)]
async fn session_that_has_seen_higher_numbers_is_granted_nothing_and_says_why() {
    let memory = MemoryEnsemble::new();
    let session = seasoned(&memory).await;
    let mut health = session.watch_health();
    let before = lock(&session).acquire().await.unwrap();
    let highest = before.fencing_token().as_i64();
    memory.wipe();
    before.lost().await;
    drop(before);

    let refused = timeout(PATIENCE, lock(&session).acquire()).await.unwrap();
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("lost data"), "{error}");
    let Error::Acquire(AcquireError::StoreForgot { path, seen, now }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(path, "/locks/ledger");
    assert!(seen >= highest && now <= seen, "{now} after {seen}");
    while health.changed().await != SessionHealth::StoreForgot {}
    assert_eq!(session.health(), SessionHealth::StoreForgot);
    let tried = lock(&session).try_acquire().await;
    assert!(
        matches!(tried, Err(Error::Acquire(AcquireError::StoreForgot { .. }))),
        "{tried:?}"
    );

    let fresh = memory.session();
    let guard = timeout(PATIENCE, lock(&fresh).acquire()).await.unwrap();
    assert!(guard.unwrap().fencing_token().as_i64() <= highest);
    assert!(
        memory.children("/locks/ledger").len() <= 1,
        "a node is left"
    );
    session.close().await;
}

/// The store has forgotten the lock, and grants it to the next one at once.
#[tokio::test(start_paused = true)]
async fn holder_is_told_long_before_its_deadline() {
    let memory = MemoryEnsemble::new();
    let session = seasoned(&memory).await;
    let held = lock(&session).acquire().await.unwrap();
    let since = Instant::now();
    memory.wipe();
    let lost = held.lost().await;
    assert_eq!(lost.reason, LostReason::SessionExpired);
    let after = since.elapsed();
    assert!(after <= Duration::from_secs(1), "{after:?} of 12 s");
}

#[tokio::test(start_paused = true)]
async fn contender_that_waits_meanwhile_is_granted_nothing_either() {
    let memory = MemoryEnsemble::new();
    let (holds, waits) = (seasoned(&memory).await, seasoned(&memory).await);
    let _held = lock(&holds).acquire().await.unwrap();
    let waiter = lock(&waits);
    let waiting = tokio::spawn(waiter.acquire());
    while memory.children("/locks/ledger").len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    memory.wipe();
    let refused = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(
        matches!(
            refused,
            Err(Error::Acquire(AcquireError::StoreForgot { .. }))
        ),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn node_is_not_handed_on_within_the_process_either() {
    let memory = MemoryEnsemble::new();
    let session = seasoned(&memory).await;
    let options = LockOptions::default().local_handoffs(10);
    let shared = InterProcessMutex::with_options(&session, "/locks/shared", &options).unwrap();
    let first = shared.acquire().await.unwrap();
    let next = shared.clone();
    let next = tokio::spawn(next.acquire());
    tokio::task::yield_now().await;
    memory.wipe();
    drop(first);
    let refused = timeout(PATIENCE, next).await.unwrap().unwrap();
    assert!(
        matches!(
            refused,
            Err(Error::Acquire(AcquireError::StoreForgot { .. }))
        ),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn numbers_that_go_on_rising_are_no_reason_to_stop() {
    let memory = MemoryEnsemble::new();
    let session = seasoned(&memory).await;
    for _ in 0..5 {
        memory.stop();
        memory.restart();
        memory.expire(session.session_id().unwrap_or_default());
        let guard = timeout(PATIENCE, lock(&session).acquire()).await.unwrap();
        guard.unwrap().release().await.unwrap();
    }
    assert_eq!(session.health(), SessionHealth::Connected);
}
