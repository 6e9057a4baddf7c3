//! What a release costs, and which tasks it wakes.
//!
//! The tests run in memory, where requests are counted and the clock stands still.

use std::time::Duration;

use lock_recipes::InterProcessMutex;
use recipes_testing::{MemoryEnsemble, Operation, TestEnsemble};
use tokio::time::Instant;

const PATH: &str = "/locks/orders";
/// Each reply and each watch event takes as long as a round trip here.
const ROUND_TRIP: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn uncontended_acquire_is_one_round_trip_and_one_create_one_list() {
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP).build();
    let session = ensemble.session();
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    ensemble.reset_requests();
    let started = Instant::now();
    let held = lock.acquire().await.unwrap();
    assert_eq!(started.elapsed(), ROUND_TRIP);
    held.release().await.unwrap();
    assert_eq!(started.elapsed(), ROUND_TRIP * 2);
    let requests: Vec<_> = ensemble.requests().iter().map(|it| it.operation).collect();
    assert_eq!(
        requests,
        [Operation::Create, Operation::List, Operation::Delete]
    );
}

#[tokio::test(start_paused = true)]
async fn hand_off_is_one_round_trip_without_a_request_of_the_next_holder() {
    const WAITERS: usize = 10;
    // Without a timeout there are no heartbeats.
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP);
    let ensemble = ensemble.without_session_timeout().build();
    let sessions: Vec<_> = (0..=WAITERS).map(|_| ensemble.session()).collect();
    let mut locks = sessions
        .iter()
        .map(|it| InterProcessMutex::new(it, PATH).unwrap());
    let mut held = locks.next().unwrap().acquire().await.unwrap();
    let probe = TestEnsemble::Memory(ensemble.clone());
    let mut waiters = Vec::new();
    for (waiting, lock) in locks.enumerate() {
        waiters.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        probe.await_children(PATH, waiting + 2).await;
    }
    // All watches are set by then.
    tokio::time::sleep(ROUND_TRIP * 10).await;
    for waiter in waiters {
        ensemble.reset_requests();
        let released = Instant::now();
        drop(held);
        held = waiter.await.unwrap();
        assert!(released.elapsed() <= ROUND_TRIP, "{:?}", released.elapsed());
        tokio::time::sleep(ROUND_TRIP * 10).await;
        // The waiter after the new holder lists to find out who is ahead of it now. No other sends
        // anything.
        let requests: Vec<_> = ensemble.requests().iter().map(|it| it.operation).collect();
        assert!(
            requests == [Operation::Delete, Operation::List] || requests == [Operation::Delete],
            "{requests:?}"
        );
    }
}
