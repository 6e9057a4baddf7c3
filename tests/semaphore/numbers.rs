//! What happens if the number of permits changes, or if processes disagree about it.

use std::time::Duration;

use test_rig::{MemoryEnsemble, TestEnsemble, on_every_ensemble};
use tokio::time::{Instant, sleep};

use super::{LEASES, LOCKS, acquired, granted, nothing_is_left, queued, semaphore};

const SECOND: Duration = Duration::from_secs(1);

on_every_ensemble!(
    higher_number_lets_in_who_waits,
    lower_number_counts_from_the_next_grant_on,
    request_for_more_than_there_are_left_waits_for_a_higher_number,
    request_for_more_than_there_are_left_keeps_nobody_waiting,
    each_process_goes_by_its_own_number,
);

async fn higher_number_lets_in_who_waits(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 1);
    let first = acquired(&limit, 1).await;
    let second = queued(&ensemble, &limit, 1).await;
    let third = queued(&ensemble, &limit, 1).await;
    limit.clone().set_permits(2).unwrap();
    let second = granted(second).await;
    assert!(!third.is_finished());
    limit.set_permits(3).unwrap();
    assert_eq!(limit.permits(), 3);
    let third = granted(third).await;
    assert!([&first, &second, &third].iter().all(|it| it.is_valid()));
    drop((first, second, third));
    nothing_is_left(&ensemble).await;
}

/// Of any holder, not only of those that it watched with the number before.
#[tokio::test(start_paused = true)]
async fn higher_number_is_watched_for_at_once_in_memory() {
    let ensemble = TestEnsemble::in_memory();
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 1), semaphore(&there, 8));
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(acquired(&theirs, 1).await);
    }
    let waiting = queued(&ensemble, &ours, 1).await;
    sleep(SECOND).await;
    ours.set_permits(8).unwrap();
    sleep(10 * SECOND).await;
    let released = Instant::now();
    drop(held.remove(0));
    drop(granted(waiting).await);
    assert!(released.elapsed() < SECOND / 10, "{:?}", released.elapsed());
}

async fn lower_number_counts_from_the_next_grant_on(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 3);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(acquired(&limit, 1).await);
    }
    let waiting = queued(&ensemble, &limit, 1).await;
    limit.set_permits(1).unwrap();
    assert!(held.iter().all(|it| it.is_valid()));
    for _ in 0..2 {
        held.pop().unwrap().release().await.unwrap();
        ensemble.let_something_happen().await;
        assert!(!waiting.is_finished(), "one is held still");
    }
    held.pop().unwrap().release().await.unwrap();
    drop(granted(waiting).await);
    nothing_is_left(&ensemble).await;
}

async fn request_for_more_than_there_are_left_waits_for_a_higher_number(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 2);
    let both = acquired(&limit, 2).await;
    let waiting = queued(&ensemble, &limit, 2).await;
    limit.set_permits(1).unwrap();
    both.release().await.unwrap();
    ensemble.let_something_happen().await;
    assert!(!waiting.is_finished());
    assert!(limit.acquire_many(2).is_err());
    limit.set_permits(2).unwrap();
    drop(granted(waiting).await);
    nothing_is_left(&ensemble).await;
}

/// All processes lower the number, as an operator does who has less of something.
async fn request_for_more_than_there_are_left_keeps_nobody_waiting(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 4), semaphore(&there, 4));
    let one = acquired(&ours, 1).await;
    let four = queued(&ensemble, &theirs, 4).await;
    let behind = queued(&ensemble, &ours, 1).await;
    // Its leases are there, so it waits by them.
    ensemble.await_children(LEASES, 5).await;
    for limit in [&ours, &theirs] {
        limit.set_permits(3).unwrap();
    }
    let second = granted(behind).await;
    one.release().await.unwrap();
    let all = acquired(&ours, 2).await;
    assert!(!four.is_finished());
    second.release().await.unwrap();
    all.release().await.unwrap();
    // Nothing of it is left, and it queues again when there are enough.
    nothing_is_left(&ensemble).await;
    assert!(!four.is_finished());
    let three = acquired(&ours, 3).await;
    theirs.set_permits(4).unwrap();
    ensemble.await_children(LEASES, 7).await;
    three.release().await.unwrap();
    drop(granted(four).await);
    nothing_is_left(&ensemble).await;
}

async fn each_process_goes_by_its_own_number(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (one, two) = (semaphore(&here, 1), semaphore(&there, 2));
    let first = acquired(&one, 1).await;
    let second = acquired(&two, 1).await;
    let third = queued(&ensemble, &one, 1).await;
    second.release().await.unwrap();
    ensemble.let_something_happen().await;
    assert!(!third.is_finished(), "its process has one permit");
    first.release().await.unwrap();
    drop(granted(third).await);
    ensemble.await_children(LOCKS, 0).await;
    nothing_is_left(&ensemble).await;
}

/// Also if the release that would let it in has been reported, and it has not run since.
#[tokio::test(start_paused = true)]
async fn lower_number_counts_from_the_moment_on_in_which_it_is_set() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (here, there) = (memory.session(), memory.session());
    for lowered in 0..4 {
        let (ours, theirs) = (semaphore(&here, 5), semaphore(&there, 5));
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(acquired(&ours, 1).await);
        }
        let waiting = queued(&ensemble, &theirs, 1).await;
        for permits in 0..lowered {
            // Heeded, and of no consequence.
            theirs.set_permits(5 - permits % 2).unwrap();
            ensemble.let_something_happen().await;
        }
        let node = held.pop().unwrap().members()[0].node_path.clone();
        // No await since: the contender has not run.
        assert!(!memory.exists(&node));
        theirs.set_permits(2).unwrap();
        ensemble.let_something_happen().await;
        assert!(!waiting.is_finished(), "four are held of two");
        drop(held);
        drop(granted(waiting).await);
        nothing_is_left(&ensemble).await;
    }
}
