//! What a permit takes.

use std::time::Duration;

use test_rig::{MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own};
use tokio::time::Instant;

use super::{LOCKS, PATH, acquired, granted, nothing_is_left, queued, semaphore, writes_nothing};

on_ensembles_of_their_own!(try_on_a_full_semaphore_writes_nothing);

async fn try_on_a_full_semaphore_writes_nothing(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 3), semaphore(&there, 3));
    let one = acquired(&ours, 1).await;
    let two = acquired(&theirs, 2).await;
    ensemble.await_children(LOCKS, 0).await;
    writes_nothing(&ensemble, async || {
        for full in [&ours, &theirs] {
            assert!(full.try_acquire().await.unwrap().is_none());
            assert!(full.try_acquire_many(3).unwrap().await.unwrap().is_none());
            let at_once = full.acquire().timeout(Duration::ZERO).await;
            at_once.unwrap_err();
        }
    })
    .await;
    // Nor does one that wants more than there are left.
    one.release().await.unwrap();
    writes_nothing(&ensemble, async || {
        assert!(ours.try_acquire_many(2).unwrap().await.unwrap().is_none());
    })
    .await;
    drop(two);
    nothing_is_left(&ensemble).await;
}

#[tokio::test(start_paused = true)]
async fn uncontended_permit_is_one_round_trip_and_three_transactions() {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP).build();
    let session = ensemble.session();
    let limit = semaphore(&session, 5);
    acquired(&limit, 1).await.release().await.unwrap();
    ensemble.reset_requests();
    let before = ensemble.zxid();
    let started = Instant::now();
    let permit = acquired(&limit, 1).await;
    assert_eq!(started.elapsed(), ROUND_TRIP);
    permit.release().await.unwrap();
    while !ensemble.children(LOCKS).is_empty() {
        tokio::time::sleep(ROUND_TRIP).await;
    }
    // One creates both nodes, and each is deleted. A mutex takes two.
    assert_eq!(ensemble.zxid() - before, 3);
    let requests: Vec<_> = ensemble.requests().iter().map(|it| it.operation).collect();
    // The stats are for a server that does not return the number of a transaction.
    let requests: Vec<_> = requests
        .into_iter()
        .filter(|it| *it != Operation::Stat)
        .collect();
    let [create, list, both @ ..] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!((*create, *list), (Operation::Multi, Operation::ListAll));
    assert_eq!(both, [Operation::Delete, Operation::Delete]);
}

#[tokio::test(start_paused = true)]
async fn many_permits_take_as_few_round_trips_as_one() {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP).build();
    let session = ensemble.session();
    let limit = semaphore(&session, 50);
    acquired(&limit, 1).await.release().await.unwrap();
    let started = Instant::now();
    let permits = acquired(&limit, 50).await;
    assert_eq!(started.elapsed(), ROUND_TRIP);
    drop(permits);
}

/// A release is heard by the one whose turn it is, who needs no request to know that it is granted.
#[tokio::test(start_paused = true)]
async fn release_is_a_grant_within_a_round_trip_and_wakes_one() {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let memory = MemoryEnsemble::builder().latency(ROUND_TRIP).build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (here, there) = (memory.session(), memory.session());
    let (ours, theirs) = (semaphore(&here, 5), semaphore(&there, 5));
    // A session learns from the first that the server does not return the number of a transaction.
    drop(acquired(&theirs, 1).await);
    nothing_is_left(&ensemble).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(acquired(&ours, 1).await);
    }
    let first = queued(&ensemble, &theirs, 1).await;
    let second = queued(&ensemble, &theirs, 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The first watches its two nodes and five leases, the second its node and that of the first,
    // and each holder its own.
    let watches = memory.watch_count();
    assert_eq!(watches, 2 + 5 + 2 + 5, "watches at {PATH}");
    let started = Instant::now();
    // In the middle of the queue of leases.
    drop(held.remove(2));
    drop(granted(first).await);
    assert!(started.elapsed() <= ROUND_TRIP, "{:?}", started.elapsed());
    drop(granted(second).await);
    drop(held);
    nothing_is_left(&ensemble).await;
}
