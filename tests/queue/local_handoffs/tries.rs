//! Tries of a lock that contenders of one process share.

use super::*;

#[tokio::test(start_paused = true)]
async fn try_of_a_lock_that_the_process_holds_asks_nobody() {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let lock = mutex(&session, 1);
    let held = lock.acquire().await.unwrap();
    memory.reset_requests();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let zero = lock.acquire().timeout(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(zero, Error::Acquire(AcquireError::TimedOut { .. })),
        "{zero}"
    );
    assert!(memory.requests().is_empty(), "{:?}", memory.requests());
    held.release().await.unwrap();
    lock.try_acquire()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A contender after a try must not fail as busy, as the try would.
#[tokio::test(start_paused = true)]
async fn try_that_is_dropped_leaves_the_turn_and_not_its_attempt() {
    let latency = Duration::from_millis(20);
    let memory = MemoryEnsemble::builder().latency(latency).build();
    let (ours, others) = (memory.session(), memory.session());
    let (lock, other) = (mutex(&ours, 1), mutex(&others, 0));
    let held = other.acquire().await.unwrap();
    let mut tried: Pin<Box<_>> = Box::pin(lock.try_acquire());
    assert!(poll!(tried.as_mut()).is_pending());
    let mut waiter = waiters(&lock, 1).await;
    drop(tried);
    let release = async {
        tokio::time::sleep(latency * 10).await;
        held.release().await.unwrap();
    };
    let (granted, ()) = tokio::join!(waiter.remove(0), release);
    granted.unwrap().release().await.unwrap();
}
