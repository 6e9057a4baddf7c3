//! What a release costs, and which tasks it wakes.
//!
//! The tests run in memory, where requests are counted and the clock stands still.

use std::time::Duration;

use lock_recipes::{Error, InterProcessMutex, MutexGuard, Session};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble};
use tokio::task::JoinHandle;
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

type Waiter = JoinHandle<Result<MutexGuard, Error>>;

/// A holder, and two waiters that have set all their watches.
async fn three_contenders(
    ensemble: &MemoryEnsemble,
    sessions: &[Session; 3],
) -> (MutexGuard, [Waiter; 2]) {
    let locks = sessions
        .each_ref()
        .map(|it| InterProcessMutex::new(it, PATH).unwrap());
    let held = locks[0].acquire().await.unwrap();
    let probe = TestEnsemble::Memory(ensemble.clone());
    let second = tokio::spawn(locks[1].acquire());
    probe.await_children(PATH, 2).await;
    let third = tokio::spawn(locks[2].acquire());
    probe.await_children(PATH, 3).await;
    tokio::time::sleep(ROUND_TRIP * 10).await;
    ensemble.reset_requests();
    (held, [second, third])
}

/// The requests of what has just happened, with everything that follows from it.
async fn requests_of_late(ensemble: &MemoryEnsemble) -> Vec<Operation> {
    tokio::time::sleep(ROUND_TRIP * 10).await;
    let requests = ensemble.requests();
    ensemble.reset_requests();
    requests.iter().map(|it| it.operation).collect()
}

#[tokio::test(start_paused = true)]
async fn each_hand_off_between_three_contenders_is_one_delete() {
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP);
    let ensemble = ensemble.without_session_timeout().build();
    let sessions = [(); 3].map(|()| ensemble.session());
    let (mut held, waiters) = three_contenders(&ensemble, &sessions).await;
    for waiter in waiters {
        let released = Instant::now();
        drop(held);
        held = waiter.await.unwrap().unwrap();
        assert!(released.elapsed() <= ROUND_TRIP, "{:?}", released.elapsed());
        assert_eq!(requests_of_late(&ensemble).await, [Operation::Delete]);
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_between_two_gives_up_and_costs_the_next_no_request() {
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP);
    let ensemble = ensemble.without_session_timeout().build();
    let sessions = [(); 3].map(|()| ensemble.session());
    let (held, [second, third]) = three_contenders(&ensemble, &sessions).await;
    second.abort();
    assert_eq!(requests_of_late(&ensemble).await, [Operation::Delete]);
    assert!(!third.is_finished(), "granted to two");
    let released = Instant::now();
    drop(held);
    let held = third.await.unwrap().unwrap();
    assert!(released.elapsed() <= ROUND_TRIP, "{:?}", released.elapsed());
    held.release().await.unwrap();
}
