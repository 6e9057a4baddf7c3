//! Who gets how many permits, and what a release gives to whom.

use lock_recipes::{
    GuardState, InterProcessMutex, InterProcessSemaphoreMutex, MultiLock, Owner, Recipe, inspect,
};
use test_rig::{TestEnsemble, on_every_ensemble};
use tokio::time::timeout;

use super::{LEASES, LOCKS, PATH, PATIENCE, acquired, granted, nothing_is_left, queued, semaphore};

on_every_ensemble!(
    as_many_hold_as_there_are_permits,
    each_release_lets_in_the_first_of_the_queue,
    many_permits_come_together_or_not_at_all,
    contender_for_many_is_not_overtaken,
    two_contenders_for_many_do_not_wait_for_each_other,
    contender_that_gives_up_leaves_nothing,
    permits_of_an_expired_session_are_free,
    lost_permit_is_told,
    owner_enters_no_permit_twice,
    semaphore_mutex_is_a_member_of_a_set,
    nodes_are_shown_as_those_of_a_semaphore,
);

async fn as_many_hold_as_there_are_permits(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 3), semaphore(&there, 3));
    let one = acquired(&ours, 1).await;
    let two = acquired(&theirs, 2).await;
    assert_eq!((one.count(), two.count()), (1, 2));
    assert_eq!((one.path(), two.path()), (PATH, PATH));
    assert!(one.fencing_token().is_some());
    assert_eq!(two.fencing_token(), None);
    assert_eq!(ensemble.await_children(LEASES, 3).await.len(), 3);
    ensemble.await_children(LOCKS, 0).await;
    for full in [&ours, &theirs] {
        assert!(full.try_acquire().await.unwrap().is_none());
    }
    ensemble.await_children(LOCKS, 0).await;
    assert_eq!(ours.participants().await.unwrap().len(), 3);
    two.release().await.unwrap();
    let two = ours.try_acquire_many(2).unwrap().await.unwrap().unwrap();
    assert!(theirs.try_acquire().await.unwrap().is_none());
    drop((one, two));
    nothing_is_left(&ensemble).await;
}

async fn each_release_lets_in_the_first_of_the_queue(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 2), semaphore(&there, 2));
    let mut held = vec![acquired(&ours, 1).await, acquired(&theirs, 1).await];
    let mut waiting = Vec::new();
    for number in 0..6 {
        let semaphore = if number % 2 == 0 { &ours } else { &theirs };
        waiting.push(queued(&ensemble, semaphore, 1).await);
    }
    assert_eq!(ours.waiters().await.unwrap().len(), 6);
    // Either of the holders may go first.
    for (turn, contender) in waiting.into_iter().enumerate() {
        held.remove(turn % 2).release().await.unwrap();
        held.push(granted(contender).await);
        assert!(held.iter().all(|it| it.is_valid()));
        ensemble.await_children(LOCKS, 5 - turn).await;
    }
    drop(held);
    nothing_is_left(&ensemble).await;
}

async fn many_permits_come_together_or_not_at_all(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 4), semaphore(&there, 4));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(acquired(&ours, 1).await);
    }
    let contender = queued(&ensemble, &theirs, 3).await;
    assert!(ours.try_acquire().await.unwrap().is_none());
    for _ in 0..2 {
        held.pop().unwrap().release().await.unwrap();
    }
    // Two are free now, and nobody gets them.
    ensemble.let_something_happen().await;
    assert!(!contender.is_finished());
    assert!(ours.try_acquire().await.unwrap().is_none());
    held.pop().unwrap().release().await.unwrap();
    let three = granted(contender).await;
    assert_eq!(three.members().len(), 3);
    assert!(ours.try_acquire().await.unwrap().is_none());
    three.release().await.unwrap();
    ensemble.await_children(LEASES, 1).await;
    drop(held);
    nothing_is_left(&ensemble).await;
}

async fn contender_for_many_is_not_overtaken(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 3), semaphore(&there, 3));
    let one = acquired(&ours, 1).await;
    let all = queued(&ensemble, &theirs, 3).await;
    // Two are free, but they are kept for the one that came first.
    let last = queued(&ensemble, &ours, 1).await;
    ensemble.let_something_happen().await;
    assert!(!all.is_finished() && !last.is_finished());
    one.release().await.unwrap();
    let all = granted(all).await;
    assert!(!last.is_finished());
    all.release().await.unwrap();
    drop(granted(last).await);
    nothing_is_left(&ensemble).await;
}

async fn two_contenders_for_many_do_not_wait_for_each_other(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 3), semaphore(&there, 3));
    for _ in 0..5 {
        let (one, other) =
            tokio::join!(async { acquired(&ours, 2).await.release().await }, async {
                acquired(&theirs, 2).await.release().await
            },);
        one.unwrap();
        other.unwrap();
    }
    nothing_is_left(&ensemble).await;
}

async fn contender_that_gives_up_leaves_nothing(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 2), semaphore(&there, 2));
    let both = acquired(&ours, 2).await;
    // The first has leases, the second has none.
    let first = queued(&ensemble, &theirs, 2).await;
    ensemble.await_children(LEASES, 4).await;
    let second = queued(&ensemble, &theirs, 1).await;
    first.abort();
    ensemble.await_children(LEASES, 3).await;
    second.abort();
    ensemble.await_children(LOCKS, 0).await;
    assert_eq!(ensemble.await_children(LEASES, 2).await.len(), 2);
    assert!(both.is_valid());
    both.release().await.unwrap();
    nothing_is_left(&ensemble).await;
}

async fn permits_of_an_expired_session_are_free(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (ours, theirs) = (semaphore(&here, 2), semaphore(&there, 2));
    let lost = acquired(&ours, 2).await;
    let contender = queued(&ensemble, &theirs, 2).await;
    ensemble.expire(&here).await;
    let both = granted(contender).await;
    assert!(!lost.is_valid());
    assert!(lost.release().await.is_err());
    both.release().await.unwrap();
    nothing_is_left(&ensemble).await;
}

async fn lost_permit_is_told(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let both = acquired(&semaphore(&session, 2), 2).await;
    let members = both.members();
    ensemble.delete(&members[1].node_path).await;
    timeout(PATIENCE, both.lost()).await.unwrap();
    assert!(matches!(both.state(), GuardState::Lost(_)));
    assert!(both.release().await.is_err());
    nothing_is_left(&ensemble).await;
}

async fn owner_enters_no_permit_twice(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (owner, two) = (Owner::new(), semaphore(&session, 2));
    let (one, other) = owner
        .scope(async { (acquired(&two, 1).await, acquired(&two, 1).await) })
        .await;
    assert_ne!(one.members()[0].node_path, other.members()[0].node_path);
    assert_eq!((one.hold_count(), other.hold_count()), (1, 1));
    let third = owner.scope(async { two.try_acquire().owner(&owner).await });
    assert!(third.await.unwrap().is_none());
    // Another guard of one permit.
    let again = one.reenter().unwrap();
    one.release().await.unwrap();
    assert!(again.is_valid());
    assert!(two.try_acquire().await.unwrap().is_none());
    drop((again, other));
    nothing_is_left(&ensemble).await;
}

async fn semaphore_mutex_is_a_member_of_a_set(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let single = || InterProcessSemaphoreMutex::new(&here, PATH).unwrap();
    let mutex = InterProcessMutex::new(&there, "/locks/orders").unwrap();
    let set = MultiLock::from_locks(vec![Box::new(single()), Box::new(mutex.clone())]).unwrap();
    let held = timeout(PATIENCE, set.acquire()).await.unwrap().unwrap();
    assert!(single().try_acquire().await.unwrap().is_none());
    assert!(mutex.try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    single().acquire().await.unwrap().release().await.unwrap();
    nothing_is_left(&ensemble).await;
}

async fn nodes_are_shown_as_those_of_a_semaphore(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = acquired(&semaphore(&session, 2), 2).await;
    let shown = inspect(&session, LEASES).await.unwrap();
    assert_eq!(shown.recipe, Recipe::Semaphore);
    assert_eq!(shown.holders().count(), 2);
    let record = shown.contenders[0].participant.identity().unwrap();
    assert_eq!(record.kind.unwrap().as_str(), "permit");
    drop(held);
    nothing_is_left(&ensemble).await;
}
