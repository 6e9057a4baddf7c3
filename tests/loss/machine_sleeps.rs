//! A machine that is suspended: tokio's clock stands still, and the ensemble's goes on.
//!
//! The tests run in memory, where they set how long the machine slept.

use std::time::Duration;

use futures::FutureExt as _;
use futures::poll;
use lock_recipes::{
    Error, GuardState, InterProcessMutex, LockOptions, LostReason, MutexGuard, ReleaseError,
    Session, VerifyError,
};
use test_rig::{MemoryEnsemble, TestEnsemble};
use tokio::time::timeout;

const PATH: &str = "/locks/orders";
const SESSION_TIMEOUT: Duration = Duration::from_secs(12);
/// A guard is valid for half of the timeout without an answer.
const TOO_LONG: Duration = Duration::from_secs(7);
const LATENCY: Duration = Duration::from_millis(20);
/// Time that the machine is awake.
const PATIENCE: Duration = SESSION_TIMEOUT;

fn memory() -> MemoryEnsemble {
    MemoryEnsemble::builder()
        .session_timeout(SESSION_TIMEOUT)
        .build()
}

fn mutex(session: &Session, handoffs: u32) -> InterProcessMutex {
    let options = LockOptions::new().local_handoffs(handoffs);
    InterProcessMutex::with_options(session, PATH, &options).unwrap()
}

/// A lock that is held, with its node watched, so that the epoch task sends only heartbeats.
async fn held(memory: &MemoryEnsemble, session: &Session, handoffs: u32) -> MutexGuard {
    let held = mutex(session, handoffs).acquire().await.unwrap();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let is_watched = async || (memory.watch_count() > 0).then_some(());
    ensemble.until("own watch", is_watched).await;
    assert_eq!(held.state(), GuardState::Held);
    held
}

#[tokio::test(start_paused = true)]
async fn guard_is_invalid_at_the_first_look_after_a_long_sleep() {
    let memory = memory();
    let session = memory.session();
    let held = held(&memory, &session, 0).await;
    memory.suspend_machine(TOO_LONG);
    // No task of the session has run since.
    assert!(!held.is_valid());
    assert_eq!(held.state(), GuardState::Lost(LostReason::DeadlinePassed));
    assert_eq!(held.valid_until(), None);
    let verified = held.verify().await.unwrap_err();
    assert!(
        matches!(verified, Error::Verify(VerifyError::Lost(_))),
        "{verified}"
    );
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    let released = held.release().await.unwrap_err();
    assert!(
        matches!(released, Error::Release(ReleaseError::Lost(_))),
        "{released}"
    );
    let again = mutex(&session, 0).acquire().await.unwrap();
    assert!(again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn holder_that_only_waits_to_be_told_is_told_after_a_long_sleep() {
    let memory = memory();
    let session = memory.session();
    let held = held(&memory, &session, 0).await;
    let told = tokio::spawn(held.lost());
    tokio::time::sleep(SESSION_TIMEOUT).await;
    assert!(!told.is_finished());
    memory.suspend_machine(TOO_LONG);
    let lost = timeout(PATIENCE, told).await.unwrap().unwrap();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
}

/// Ten short sleeps between heartbeats do not add up to one that is too long.
#[tokio::test(start_paused = true)]
async fn guard_outlives_short_sleeps() {
    let memory = memory();
    let session = memory.session();
    let held = held(&memory, &session, 0).await;
    for _ in 0..10 {
        memory.suspend_machine(SESSION_TIMEOUT / 12);
        assert!(held.is_valid());
        held.verify().await.unwrap();
        tokio::time::sleep(SESSION_TIMEOUT / 3).await;
        assert_eq!(held.state(), GuardState::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn sleeps_that_nothing_came_between_add_up() {
    let memory = memory();
    let session = memory.session();
    let held = held(&memory, &session, 0).await;
    for _ in 0..4 {
        memory.suspend_machine(TOO_LONG / 4);
    }
    assert!(!held.is_valid());
}

#[tokio::test(start_paused = true)]
async fn lock_is_not_handed_on_after_a_long_sleep() {
    for is_dropped in [false, true] {
        let memory = memory();
        let session = memory.session();
        let held = held(&memory, &session, 9).await;
        let lock = mutex(&session, 9);
        let mut next = lock.acquire().boxed();
        assert!(poll!(next.as_mut()).is_pending());
        memory.suspend_machine(TOO_LONG);
        let before = held.fencing_token();
        if is_dropped {
            drop(held);
        } else {
            let released = held.release().await.unwrap_err();
            assert!(
                matches!(released, Error::Release(ReleaseError::Lost(_))),
                "{released}"
            );
        }
        let next = timeout(PATIENCE, next).await.unwrap().unwrap();
        assert_eq!(next.fencing_token().handoff(), 0);
        assert!(next.fencing_token().as_i64() > before.as_i64());
        assert!(next.is_valid());
    }
}

/// A request from before the sleep whose answer comes after it proves nothing for the time after
/// it.
#[tokio::test(start_paused = true)]
async fn lock_that_is_granted_after_a_long_sleep_is_valid() {
    let memory = MemoryEnsemble::builder()
        .session_timeout(SESSION_TIMEOUT)
        .latency(LATENCY)
        .build();
    let session = memory.session();
    let lock = mutex(&session, 0);
    let mut acquire = lock.acquire().boxed();
    while memory.children(PATH).is_empty() {
        assert!(poll!(acquire.as_mut()).is_pending());
        tokio::time::sleep(LATENCY / 20).await;
    }
    memory.suspend_machine(TOO_LONG);
    let granted = timeout(PATIENCE, acquire).await.unwrap().unwrap();
    assert_eq!(granted.state(), GuardState::Held);
    granted.release().await.unwrap();
}
