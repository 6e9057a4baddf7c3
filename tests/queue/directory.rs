//! The lock directory: other nodes in it, its counter, its parents.

use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, ParentMode, Session, ZooKeeper};
use test_rig::{MemoryEnsemble, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

on_every_ensemble!(
    stranger_that_sorts_behind_is_passed,
    contender_without_a_uuid_takes_its_place_by_its_number,
);
on_every_ensemble!(
    but_etcd:
    stranger_that_sorts_in_front_is_waited_for,
    contenders_of_go_and_kazoo_take_their_places_by_their_numbers,
    reaped_parents_are_made_again_and_tokens_go_on_rising,
    persistent_parents_stay,
);
on_ensembles_of_their_own!(node_ahead_that_changes_its_data_is_still_ahead);

async fn stranger_that_sorts_in_front_is_waited_for(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    ensemble.create(&format!("{PATH}/-stranger"), b"").await;
    assert!(mutex(&session).try_acquire().await.unwrap().is_none());
    let lock = mutex(&session);
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 2).await;
    let participants = mutex(&session).participants().await.unwrap();
    assert_eq!(participants[0].path, format!("{PATH}/-stranger"));
    assert_eq!(
        (participants[0].sequence, participants[0].session_id),
        (None, 0)
    );
    assert_eq!(participants[1].sequence, Some(1));
    ensemble.delete(&format!("{PATH}/-stranger")).await;
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn stranger_that_sorts_behind_is_passed(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    ensemble.create(&format!("{PATH}/zstranger"), b"").await;
    let held = mutex(&session).try_acquire().await.unwrap().unwrap();
    let participants = mutex(&session).participants().await.unwrap();
    assert_eq!(participants[0].path, held.members()[0].node_path);
    assert_eq!(participants[1].path, format!("{PATH}/zstranger"));
    held.release().await.unwrap();
}

async fn contender_without_a_uuid_takes_its_place_by_its_number(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // A node as a client without Curator's protection would have created it.
    ensemble
        .create(&format!("{PATH}/lock-0000000000"), b"")
        .await;
    let lock = mutex(&session);
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 2).await;
    assert_eq!(
        mutex(&session).participants().await.unwrap()[0].sequence,
        Some(0)
    );
    ensemble.delete(&format!("{PATH}/lock-0000000000")).await;
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn contenders_of_go_and_kazoo_take_their_places_by_their_numbers(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let go = format!("{PATH}/_c_{}-lock-0000000000", "f".repeat(32));
    let kazoo = format!("{PATH}/{}__lock__0000000001", "f".repeat(32));
    // It follows ours, though its name sorts ahead of all numbers.
    let later = format!("{PATH}/{}__lock__0000000004", "0".repeat(32));
    for node in [&go, &kazoo, &later] {
        ensemble.create(node, b"").await;
    }
    let lock = mutex(&session);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 4).await;
    let participants = lock.participants().await.unwrap();
    let numbers: Vec<_> = participants.iter().map(|it| it.sequence).collect();
    assert_eq!(numbers, [0, 1, 3, 4].map(Some));
    assert_eq!(
        [&participants[0].path, &participants[1].path],
        [&go, &kazoo]
    );
    ensemble.delete(&go).await;
    ensemble.let_something_happen().await;
    assert!(!waiter.is_finished());
    ensemble.delete(&kazoo).await;
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
}

async fn node_ahead_that_changes_its_data_is_still_ahead(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 2).await;
    for request in ["__REVOKE__", "anything"] {
        ensemble
            .set(&held.members()[0].node_path, request.as_bytes())
            .await;
    }
    held.verify().await.unwrap();
    assert!(!waiter.is_finished());
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn reaped_parents_are_made_again_and_tokens_go_on_rising(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let first = mutex(&session).acquire().await.unwrap();
    let (token, name) = (first.fencing_token(), first.members()[0].node_path.clone());
    first.release().await.unwrap();
    ensemble.await_reaper(PATH).await;
    let second = mutex(&session).acquire().await.unwrap();
    let again = second.members()[0].node_path.clone();
    assert_eq!(
        name[name.len() - 10..],
        again[again.len() - 10..],
        "sequences restart"
    );
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
}

async fn persistent_parents_stay(ensemble: TestEnsemble) {
    let options = ZooKeeper::builder().parent_mode(ParentMode::Persistent);
    let session = ensemble.session_with(options).await;
    for path in ["/kept/a", "/kept/b/c"] {
        let lock = InterProcessMutex::new(&session, path).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    // When this one is reaped, those would have been reaped, too.
    mutex(&ensemble.session().await)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    ensemble.await_reaper(PATH).await;
    assert!(ensemble.read("/kept/b/c").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn server_without_containers_gets_persistent_parents() {
    let ensemble = MemoryEnsemble::builder().containers(false).build();
    mutex(&ensemble.session())
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(ensemble.stat(PATH).unwrap().ephemeral_owner, 0);
}

/// Numbers that continue below zero (servers before 3.6), or a last number that every node gets. No
/// real server gets its counter there in the time of a test.
#[tokio::test(start_paused = true)]
async fn numbers_behind_the_last_are_refused_and_leave_nothing() {
    for next in [i32::MIN, i32::MAX] {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        ensemble.create(PATH, b"").unwrap();
        ensemble.set_sequence(PATH, next).unwrap();
        let refused = mutex(&session).acquire().await.unwrap_err();
        assert!(
            matches!(&refused, Error::Acquire(AcquireError::SequenceExhausted { path, sequence })
                if path == PATH && *sequence == next),
            "{refused}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(ensemble.children(PATH).is_empty());
    }
}
