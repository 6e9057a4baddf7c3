//! What others do to the nodes of a semaphore: operators, and programs that are no semaphore's.

use test_rig::{TestEnsemble, on_ensembles_of_their_own, on_every_ensemble};

use super::{LEASES, LOCKS, acquired, granted, nothing_is_left, queued, semaphore, writes_nothing};

on_every_ensemble!(
    contender_whose_mutex_node_is_deleted_queues_again,
    contender_whose_lease_is_deleted_makes_another,
    child_that_is_no_lease_takes_a_permit,
    child_that_sorts_ahead_of_the_mutex_keeps_all_waiting,
);
on_ensembles_of_their_own!(try_beside_a_child_that_is_no_lease_writes_nothing);

async fn contender_whose_mutex_node_is_deleted_queues_again(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 2), semaphore(&there, 2));
    let both = acquired(&ours, 2).await;
    let first = queued(&ensemble, &theirs, 2).await;
    ensemble.await_children(LEASES, 4).await;
    let second = queued(&ensemble, &ours, 1).await;
    let mutex = ours.waiters().await.unwrap().remove(0);
    ensemble.delete(&mutex.path).await;
    // The second has the mutex now, and a lease. The first is behind it, without leases.
    ensemble.await_children(LEASES, 3).await;
    ensemble.await_children(LOCKS, 2).await;
    assert!(!first.is_finished() && !second.is_finished());
    both.release().await.unwrap();
    let second = granted(second).await;
    assert!(!first.is_finished());
    second.release().await.unwrap();
    drop(granted(first).await);
    nothing_is_left(&ensemble).await;
}

async fn contender_whose_lease_is_deleted_makes_another(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 3), semaphore(&there, 3));
    let held = acquired(&ours, 3).await;
    for deleted in 0..3 {
        let contender = queued(&ensemble, &theirs, 3).await;
        ensemble.await_children(LEASES, 6).await;
        let mut leases = ours.participants().await.unwrap();
        let own = there.session_id().unwrap();
        leases.retain(|it| it.session_id == own);
        let path = leases.remove(deleted).path;
        ensemble.delete(&path).await;
        let is_another = async || {
            let leases = ours.participants().await.unwrap();
            let own = leases.iter().filter(|it| it.session_id == own);
            (own.filter(|it| it.path != path).count() == 3).then_some(())
        };
        ensemble.until("another lease", is_another).await;
        assert!(!contender.is_finished());
        contender.abort();
        ensemble.await_children(LEASES, 3).await;
        ensemble.await_children(LOCKS, 0).await;
    }
    drop(held);
    nothing_is_left(&ensemble).await;
}

/// As in Curator, wherever its name sorts.
async fn child_that_is_no_lease_takes_a_permit(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 2);
    for name in ["-stranger", "zstranger", "stranger-0000000003"] {
        let stranger = format!("{LEASES}/{name}");
        ensemble.create(&stranger, b"").await;
        let one = acquired(&limit, 1).await;
        ensemble.await_children(LOCKS, 0).await;
        assert!(limit.try_acquire().await.unwrap().is_none());
        let second = queued(&ensemble, &limit, 1).await;
        ensemble.let_something_happen().await;
        assert!(!second.is_finished(), "{name} counts");
        ensemble.delete(&stranger).await;
        drop((granted(second).await, one));
        nothing_is_left(&ensemble).await;
    }
}

async fn child_that_sorts_ahead_of_the_mutex_keeps_all_waiting(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 2);
    let (ahead, behind) = (format!("{LOCKS}/-stranger"), format!("{LOCKS}/zstranger"));
    ensemble.create(&behind, b"").await;
    let one = acquired(&limit, 1).await;
    ensemble.create(&ahead, b"").await;
    assert!(limit.try_acquire().await.unwrap().is_none());
    // That of the first permit may be on its way.
    ensemble.await_children(LOCKS, 2).await;
    let second = queued(&ensemble, &limit, 1).await;
    ensemble.let_something_happen().await;
    assert!(!second.is_finished());
    // Only the lease that is held: it takes back its own.
    ensemble.await_children(LEASES, 1).await;
    ensemble.delete(&ahead).await;
    drop((granted(second).await, one));
    ensemble.await_children(LEASES, 0).await;
    ensemble.await_children(LOCKS, 1).await;
    ensemble.delete(&behind).await;
}

async fn try_beside_a_child_that_is_no_lease_writes_nothing(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = semaphore(&session, 1);
    ensemble.create(&format!("{LEASES}/zstranger"), b"").await;
    writes_nothing(&ensemble, async || {
        assert!(limit.try_acquire().await.unwrap().is_none());
    })
    .await;
}
