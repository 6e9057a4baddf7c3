//! Requests to give a lock up, sent by either library to the other.

use std::time::Duration;

use lock_recipes::{GuardState, LockGuard};
use tokio::time::{Instant, timeout};

use super::{PATH, PATIENCE, Stage};

/// Within this time a holder that gives way has let the next contender in. We need 250 ms of it if
/// our holder did not wait.
const ONWARDS_MAX: Duration = Duration::from_secs(30);
/// So the end of a session of Curator's lets nobody in within that time.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

fn node(guard: &LockGuard) -> String {
    guard.members()[0].node_path.clone()
}

async fn told(guard: &LockGuard) {
    let requested = timeout(PATIENCE, guard.revocation_requested()).await;
    assert!(requested.is_ok(), "nobody tells of the request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_asks_us_and_gets_the_lock() {
    let stage = Stage::set_up_alone(SESSION_TIMEOUT).await;
    for is_watched in [false, true] {
        let held = stage.mutex().acquire().await.unwrap();
        if is_watched {
            stage.ensemble.await_watches(1).await;
        }
        let theirs = stage.curator.acquire("t", "m", None);
        stage.ensemble.await_children(PATH, 2).await;
        let asked = Instant::now();
        stage.curator.revoke("c", &node(&held)).await.unwrap();
        told(&held).await;
        assert!(held.is_valid());
        held.release().await.unwrap();
        assert!(theirs.await.unwrap());
        assert!(asked.elapsed() < ONWARDS_MAX, "{:?}", asked.elapsed());
        stage.curator.release("t", "m").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_asks_us_while_we_wait() {
    let stage = Stage::set_up_alone(SESSION_TIMEOUT).await;
    assert!(stage.curator.acquire("t", "m", None).await.unwrap());
    let lock = stage.mutex();
    let ours = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 2).await;
    let queue = stage.curator.participants("m").await.unwrap();
    stage.curator.revoke("c", &queue[1]).await.unwrap();
    let next = stage.curator.acquire("u", "m", None);
    stage.ensemble.await_children(PATH, 3).await;
    let asked = Instant::now();
    stage.curator.release("t", "m").await.unwrap();
    let granted = ours.await.unwrap().unwrap();
    told(&granted).await;
    granted.release().await.unwrap();
    assert!(next.await.unwrap());
    assert!(asked.elapsed() < ONWARDS_MAX, "{:?}", asked.elapsed());
    stage.curator.release("u", "m").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_ask_curator_and_get_the_lock() {
    let stage = Stage::set_up_alone(SESSION_TIMEOUT).await;
    stage.curator.make_revocable("m").await.unwrap();
    assert!(stage.curator.acquire("t", "m", None).await.unwrap());
    let lock = stage.mutex();
    let ours = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 2).await;
    let asked = Instant::now();
    let holder = lock.participants().await.unwrap().remove(0);
    assert!(holder.revoke(&stage.ours).await.unwrap());
    let requested = stage.curator.revocation_requested("m", PATIENCE);
    assert!(requested.await.unwrap());
    assert!(!ours.is_finished());
    stage.curator.release("t", "m").await.unwrap();
    let granted = ours.await.unwrap().unwrap();
    assert!(asked.elapsed() < ONWARDS_MAX, "{:?}", asked.elapsed());
    assert!(!holder.revoke(&stage.ours).await.unwrap());
    assert_eq!(granted.state(), GuardState::Held);
    granted.release().await.unwrap();
}
