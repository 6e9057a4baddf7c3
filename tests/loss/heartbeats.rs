//! The requests of a session besides those of its locks, which keep it alive and prove it. They run
//! in memory, on a clock that the test moves, so hours pass at once.

use std::time::Duration;

use lock_recipes::{GuardState, InterProcessMutex, Session};
use test_rig::{MemoryEnsemble, Operation};
use tokio::time::{Instant, sleep, sleep_until};

const T: Duration = Duration::from_secs(12);
const HOUR: Duration = Duration::from_secs(3600);

fn ensemble() -> MemoryEnsemble {
    MemoryEnsemble::builder().session_timeout(T).build()
}

fn lock(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, "/locks/quiet").unwrap()
}

/// Requests that passed through the leader, and the transactions among them.
fn counted(memory: &MemoryEnsemble) -> (usize, usize) {
    let transactions = [Operation::Create, Operation::Delete, Operation::Multi];
    let transactions = transactions.map(|it| memory.request_count(it));
    let transactions: usize = transactions.iter().sum();
    (
        transactions + memory.request_count(Operation::Sync),
        transactions,
    )
}

#[tokio::test(start_paused = true)]
async fn session_that_holds_sends_six_heartbeats_in_its_timeout_and_two_are_transactions() {
    let memory = ensemble();
    let session = memory.session();
    let held = lock(&session).acquire().await.unwrap();
    memory.reset_requests();
    sleep(HOUR).await;
    assert_eq!(held.state(), GuardState::Held);
    let (all, transactions) = counted(&memory);
    println!("an hour of holding, T = {T:?}: {all} heartbeats, {transactions} transactions");
    assert!((1790..=1800).contains(&all), "{all} heartbeats");
    assert!(
        (595..=600).contains(&transactions),
        "{transactions} transactions"
    );
}

#[tokio::test(start_paused = true)]
async fn session_that_waits_sends_no_more_than_one_that_holds() {
    let memory = ensemble();
    let (holds, waits) = (memory.session(), memory.session());
    let held = lock(&holds).acquire().await.unwrap();
    let waiter = lock(&waits);
    let waiting = tokio::spawn(waiter.acquire());
    sleep(T).await;
    memory.reset_requests();
    sleep(HOUR).await;
    let id = waits.session_id().unwrap();
    let of_waiter = memory.requests().into_iter().filter(|it| it.session == id);
    let (syncs, others): (Vec<_>, Vec<_>) =
        of_waiter.partition(|it| it.operation == Operation::Sync);
    assert!(others.iter().all(|it| it.operation == Operation::Multi));
    assert!(syncs.len() <= 1200 && others.len() <= 600);
    drop(held);
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn session_that_locks_all_the_time_sends_no_heartbeat() {
    let memory = ensemble();
    let session = memory.session();
    let lock = lock(&session);
    lock.acquire().await.unwrap().release().await.unwrap();
    memory.reset_requests();
    let end = Instant::now() + HOUR;
    let mut cycles = 0;
    while Instant::now() < end {
        let guard = lock.acquire().await.unwrap();
        sleep(Duration::from_millis(700)).await;
        guard.release().await.unwrap();
        cycles += 1;
        sleep(Duration::from_millis(300)).await;
    }
    let (all, transactions) = counted(&memory);
    assert_eq!((all, transactions), (2 * cycles, 2 * cycles));
}

#[tokio::test(start_paused = true)]
async fn session_that_locks_now_and_then_sends_no_heartbeat_beside_its_create() {
    let memory = ensemble();
    let session = memory.session();
    let lock = lock(&session);
    lock.acquire().await.unwrap().release().await.unwrap();
    for pause in [T / 4, T / 2, T, 10 * T] {
        sleep_until(Instant::now() + pause).await;
        memory.reset_requests();
        lock.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(counted(&memory), (2, 2), "after {pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn session_that_nobody_uses_sends_nothing() {
    let memory = ensemble();
    let session = memory.session();
    lock(&session)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    memory.reset_requests();
    sleep(HOUR).await;
    assert_eq!(memory.requests(), []);
    drop(session);
}
