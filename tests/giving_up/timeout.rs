//! How long an acquire waits, and what it leaves behind.

use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, ReleaseError, Session};
use test_rig::{TestEnsemble, on_ensembles_of_their_own, on_every_ensemble};
use tokio::time::Instant;

const PATH: &str = "/locks/orders";
const HALF_A_SECOND: Duration = Duration::from_millis(500);
/// What is late for so long is not the machine's fault.
const PATIENCE: Duration = Duration::from_secs(120);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// Times out this many times at least, and until it did so in time once: a slow moment of the machine is none of the
/// lock's.
async fn times_out_in_time(waiter: &InterProcessMutex, times: usize) {
    let since = Instant::now();
    let mut shortest = Duration::MAX;
    for number in 1.. {
        let started = Instant::now();
        let error = waiter.acquire().timeout(HALF_A_SECOND).await.unwrap_err();
        let took = started.elapsed();
        assert!(took >= HALF_A_SECOND, "{took:?}");
        assert!(
            matches!(&error, Error::Acquire(AcquireError::TimedOut { path, waited, .. })
                if path == PATH && *waited == HALF_A_SECOND),
            "{error}"
        );
        shortest = shortest.min(took);
        if number >= times && shortest <= HALF_A_SECOND.mul_f64(1.1) {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{shortest:?}");
    }
}

on_every_ensemble!(
    the_longest_timeout_waits,
    of_many_tries_at_once_at_most_one_succeeds_and_the_rest_leave_nothing,
);
on_ensembles_of_their_own!(
    acquire_times_out_in_time_while_the_server_is_down,
    try_ends_in_its_time_while_the_server_is_down,
    no_time_at_all_takes_a_free_lock_and_writes_nothing_where_it_is_held,
    try_of_a_held_lock_writes_nothing,
);
on_ensembles_of_their_own!(watches: acquire_of_a_held_lock_times_out_in_time_and_leaves_nothing);

async fn acquire_of_a_held_lock_times_out_in_time_and_leaves_nothing(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let before = ensemble.await_children(PATH, 1).await;
    // The holder watches its own node after a moment.
    ensemble.await_watches(1).await;

    let waiter = mutex(&waiting);
    let mut patience = Duration::from_millis(100);
    while !waiter
        .acquire()
        .timeout(patience)
        .await
        .unwrap_err()
        .is_busy()
    {
        // The store had not answered by then, so the node goes later. It is not yet to come once this is answered.
        waiter.participants().await.unwrap();
        ensemble.await_children(PATH, 1).await;
        assert!(patience < PATIENCE, "not answered within {patience:?}");
        patience *= 4;
    }
    // What this session sees from now on does not contain it.
    assert_eq!(waiter.participants().await.unwrap().len(), 1);
    times_out_in_time(&waiter, 5).await;
    assert_eq!(ensemble.await_children(PATH, 1).await, before);
    ensemble.await_watches(1).await;
    held.release().await.unwrap();
}

async fn acquire_times_out_in_time_while_the_server_is_down(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let waiter = mutex(&waiting);
    ensemble.stop().await;
    times_out_in_time(&waiter, 3).await;
    ensemble.start_again().await;
    // Requests that were made while the server was down are cleaned up, sooner or later.
    match held.release().await {
        Ok(_) | Err(Error::Release(ReleaseError::Lost(_))) => {}
        Err(error) => panic!("{error}"),
    }
    waiter.acquire().await.unwrap().release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

async fn try_ends_in_its_time_while_the_server_is_down(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    mutex(&session).participants().await.unwrap();
    ensemble.stop().await;
    let since = Instant::now();
    loop {
        let started = Instant::now();
        let tried = mutex(&session).try_acquire().timeout(HALF_A_SECOND);
        let error = tried.await.unwrap_err();
        let took = started.elapsed();
        assert!(took >= HALF_A_SECOND, "{took:?}");
        assert!(
            matches!(error, Error::Acquire(AcquireError::TimedOut { waited, .. }) if waited == HALF_A_SECOND),
            "{error}"
        );
        assert!(error.is_transient() && !error.is_busy(), "{error}");
        // A third of the connect timeout.
        if took < Duration::from_secs(5) {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{took:?}");
    }
    ensemble.start_again().await;
}

async fn the_longest_timeout_waits(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let waiter = mutex(&session);
    let waiter = tokio::spawn(waiter.acquire().timeout(Duration::MAX));
    ensemble.await_children(PATH, 2).await;
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn no_time_at_all_takes_a_free_lock_and_writes_nothing_where_it_is_held(
    ensemble: TestEnsemble,
) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let held = lock.acquire().timeout(Duration::ZERO).await.unwrap();
    let before = ensemble.zxid().await;
    let error = lock.acquire().timeout(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(error, Error::Acquire(AcquireError::TimedOut { .. })),
        "{error}"
    );
    assert_eq!(ensemble.zxid().await, before);
    held.release().await.unwrap();
}

async fn try_of_a_held_lock_writes_nothing(ensemble: TestEnsemble) {
    let (holding, trying) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let before = ensemble.zxid().await;
    for _ in 0..3 {
        assert!(mutex(&trying).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(ensemble.zxid().await, before);
    held.release().await.unwrap();
    let taken = mutex(&trying).try_acquire().await.unwrap().unwrap();
    assert!(mutex(&holding).try_acquire().await.unwrap().is_none());
    taken.release().await.unwrap();
    assert!(ensemble.children(PATH).await.is_empty());
}

async fn of_many_tries_at_once_at_most_one_succeeds_and_the_rest_leave_nothing(
    ensemble: TestEnsemble,
) {
    let sessions = [ensemble.session().await, ensemble.session().await];
    let tries = (0..16).map(|n| {
        let lock = mutex(&sessions[n % 2]);
        tokio::spawn(lock.try_acquire())
    });
    let mut guards = Vec::new();
    for outcome in futures::future::join_all(tries).await {
        guards.extend(outcome.unwrap().unwrap());
    }
    assert!(guards.len() <= 1, "{guards:?}");
    assert_eq!(ensemble.children(PATH).await.len(), guards.len());
}
