//! Many permits at once.

use std::time::Duration;

use lock_recipes::{AcquireError, Error};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};
use tokio::time::{Instant, timeout};

use super::{LEASES, LOCKS, PATIENCE, acquired, granted, nothing_is_left, queued, semaphore};

/// Their names take so many bytes that a listing for each of them would not fit into any answer.
const MANY: usize = 1_000;
/// Longer than the pause between two looks at what is not watched.
const A_WHILE: Duration = Duration::from_secs(10);
/// What contends in a test.
const SOME: usize = 200;

on_every_ensemble!(request_that_the_store_cannot_take_is_refused,);
on_every_ensemble!(
    but_etcd:
    thousand_permits_are_granted_at_once,
    permits_that_many_wait_for_are_granted_together,
);

async fn thousand_permits_are_granted_at_once(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, MANY), semaphore(&there, MANY));
    let all = acquired(&ours, MANY).await;
    assert_eq!(all.count(), MANY);
    ensemble.await_children(LOCKS, 0).await;
    let all_again = theirs.try_acquire_many(MANY).unwrap();
    assert!(
        timeout(PATIENCE, all_again)
            .await
            .unwrap()
            .unwrap()
            .is_none()
    );
    drop(all);
    nothing_is_left(&ensemble).await;
}

async fn permits_that_many_wait_for_are_granted_together(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, SOME), semaphore(&there, SOME));
    let mut held = vec![acquired(&ours, SOME / 2).await];
    held.push(acquired(&ours, SOME - SOME / 2).await);
    let all = queued(&ensemble, &theirs, SOME).await;
    ensemble.await_children(LEASES, 2 * SOME).await;
    held.pop().unwrap().release().await.unwrap();
    ensemble.let_something_happen().await;
    assert!(!all.is_finished());
    held.pop().unwrap().release().await.unwrap();
    assert_eq!(granted(all).await.count(), SOME);
    nothing_is_left(&ensemble).await;
}

/// Or granted, where it can: ZooKeeper takes requests of 1 MiB.
async fn request_that_the_store_cannot_take_is_refused(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 10_000);
    drop(acquired(&limit, 1).await);
    let id = session.session_id();
    match timeout(PATIENCE, limit.acquire_many(10_000).unwrap())
        .await
        .unwrap()
    {
        Ok(all) => assert_eq!(all.count(), 10_000),
        Err(error @ Error::Acquire(AcquireError::Refused { .. })) => {
            let told = std::error::Error::source(&error).unwrap().to_string();
            eprintln!("{error}: {told}");
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(session.session_id(), id, "it cost the session");
    nothing_is_left(&ensemble).await;
    // And nothing is in the way of less.
    drop(acquired(&limit, 1).await);
    nothing_is_left(&ensemble).await;
}

#[tokio::test(start_paused = true)]
async fn first_permits_of_a_path_take_as_few_round_trips_as_one() {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let mut took = Vec::new();
    for permits in [1, 50] {
        let memory = MemoryEnsemble::builder().latency(ROUND_TRIP).build();
        let session = memory.session();
        let limit = semaphore(&session, 50);
        let started = Instant::now();
        drop(acquired(&limit, permits).await);
        took.push(started.elapsed());
    }
    assert_eq!(took[0], took[1]);
}

#[tokio::test(start_paused = true)]
async fn leases_of_one_acquire_are_listed_once() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let session = memory.session();
    let limit = semaphore(&session, 50);
    drop(acquired(&limit, 1).await);
    memory.reset_requests();
    let held = limit.try_acquire_many(50).unwrap().await.unwrap().unwrap();
    // The mutex and the leases, before the create and with it.
    let lists = memory.requests();
    let lists = lists
        .iter()
        .filter(|it| matches!(it.operation, Operation::List | Operation::ListAll));
    assert_eq!(lists.count(), 3);
    drop(held);
}

/// A store that numbers nodes by their transactions gives them one number, and then their names decide.
#[tokio::test(start_paused = true)]
async fn leases_of_one_acquire_follow_each_other_by_name() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let held = acquired(&semaphore(&memory.session(), 20), 20).await;
    let names = held.members().into_iter().map(|it| it.node_path);
    let names: Vec<_> = names
        .map(|it| it.rsplit_once('-').unwrap().0.to_owned())
        .collect();
    assert!(names.len() == 20 && names.is_sorted(), "{names:?}");
}

/// There are more leases than it has permits: another process has a higher number.
#[tokio::test(start_paused = true)]
async fn contender_with_a_lower_number_waits_until_fewer_leases_are_left_than_it_has_permits() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (here, there) = (memory.session(), memory.session());
    let (many, few) = (semaphore(&here, 50), semaphore(&there, 3));
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(acquired(&many, 1).await);
    }
    ensemble.await_children(LOCKS, 0).await;
    tokio::time::sleep(A_WHILE).await;
    let before = memory.watch_count();
    let contender = queued(&ensemble, &few, 1).await;
    tokio::time::sleep(A_WHILE).await;
    // Its own two nodes, and all leases.
    assert_eq!(memory.watch_count() - before, 2 + 50);
    few.set_permits(40).unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert!(!contender.is_finished());
    few.set_permits(3).unwrap();
    while held.len() > 3 {
        held.pop();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!contender.is_finished());
    }
    held.pop();
    drop(granted(contender).await);
    drop(held);
    nothing_is_left(&ensemble).await;
}
