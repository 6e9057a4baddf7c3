//! Readers share, writers do not, and both keep to the queue.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use futures::poll;
use lock_recipes::{
    AcquireError, ConfigError, Error, InterProcessMutex, InterProcessReadWriteLock, LockKind,
    LockOptions, Owner, Session,
};
use test_rig::{TestEnsemble, on_ensembles_of_their_own, on_every_ensemble};
use tokio::time::timeout;

mod costs;

const PATH: &str = "/locks/settings";
const IMPATIENCE: Duration = Duration::from_millis(50);

fn lock(session: &Session) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(session, PATH).unwrap()
}

/// A reader next to its writer may have a mark behind the writer's number.
fn sequence(node_path: &str) -> u32 {
    let digits = node_path.trim_end_matches('+');
    digits[digits.len() - 10..].parse().unwrap()
}

on_every_ensemble!(
    participants_are_listed_by_kind,
    writer_lets_in_its_own_reader_and_no_other,
    writer_that_reads_may_release_either_first,
    writer_queued_before_a_downgrade_waits_for_the_reader,
    writer_queued_after_a_downgrade_waits_for_the_reader,
    other_write_guards_keep_the_writer_through_a_downgrade,
    downgrade_of_a_lost_writer_fails_and_leaves_nothing,
    reader_beside_a_writer_of_others_is_respected,
    both_kinds_carry_the_data_that_was_given,
    reader_gets_the_lock_of_a_writer_whose_session_expired,
    mutex_of_the_same_path_is_refused,
    readers_without_pause_keep_a_writer_waiting_for_one_generation,
    acquire_or_downgrade_dropped_at_every_poll_leaves_nothing,
);
on_ensembles_of_their_own!(reader_that_asks_to_write_is_refused_at_once);

/// The reader's node has no number of its own on the store. A listing that passes it by has nobody ahead.
async fn writer_queued_after_a_downgrade_waits_for_the_reader(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let writer = lock(&here).write().await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    let mut queued = tokio::spawn(lock(&elsewhere).write());
    ensemble.await_children(PATH, 2).await;
    assert!(timeout(IMPATIENCE, &mut queued).await.is_err());
    reader.verify().await.unwrap();
    let token = reader.fencing_token();
    reader.release().await.unwrap();
    let writer = queued.await.unwrap().unwrap();
    assert!(writer.fencing_token() > token);
    writer.release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

/// Curator `testGetParticipantNodes`.
async fn participants_are_listed_by_kind(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let reader = lock(&session);
    let readers = try_join_all((0..20).map(|_| reader.read())).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let writer = lock(&session);
            tokio::spawn(async move { writer.write().await.unwrap().release().await })
        })
        .collect();
    ensemble.await_children(PATH, 28).await;
    assert_eq!(lock(&session).read_participants().await.unwrap().len(), 20);
    let waiting = lock(&session).write_participants().await.unwrap();
    assert_eq!(waiting.len(), 8);
    assert_eq!(waiting[0].identity().unwrap().kind, Some(LockKind::Write));
    assert!(lock(&session).read_lock().is_acquired_in_this_process());
    assert!(!lock(&session).write_lock().is_acquired_in_this_process());
    drop(readers);
    for released in try_join_all(writers).await.unwrap() {
        released.unwrap();
    }
    ensemble.await_children(PATH, 0).await;
}

/// Curator `testThatUpgradingIsDisallowed`, without its five seconds.
async fn reader_that_asks_to_write_is_refused_at_once(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let owner = Owner::new();
    let reader = lock(&session).read().owner(&owner).await.unwrap();
    let before = ensemble.zxid().await;
    let refused = lock(&session).write().owner(&owner).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Acquire(AcquireError::WouldDeadlock { path }) if path == PATH),
        "{refused}"
    );
    assert_eq!(ensemble.zxid().await, before);
    reader.release().await.unwrap();
    lock(&session)
        .write()
        .owner(&owner)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Curator `testThatDowngradingRespectsThreads`.
async fn writer_lets_in_its_own_reader_and_no_other(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (writing, other) = (Owner::new(), Owner::new());
    let writer = lock(&session).write().owner(&writing).await.unwrap();
    let refused = lock(&session)
        .read()
        .owner(&other)
        .timeout(IMPATIENCE)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::TimedOut { .. })),
        "{refused}"
    );
    assert!(
        lock(&session)
            .try_read()
            .owner(&other)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        lock(&session)
            .try_write()
            .owner(&other)
            .await
            .unwrap()
            .is_none()
    );
    let reader = lock(&session)
        .try_read()
        .owner(&writing)
        .await
        .unwrap()
        .unwrap();
    reader.release().await.unwrap();
    writer.release().await.unwrap();
    lock(&session)
        .read()
        .owner(&other)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Curator `testDowngrading`. Both orders of release are right.
async fn writer_that_reads_may_release_either_first(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for writer_first in [true, false] {
        Owner::new()
            .scope(async {
                let writer = lock(&session).write().await.unwrap();
                let reader = lock(&session).read().await.unwrap();
                assert_eq!(reader.fencing_token(), writer.fencing_token());
                assert_eq!(ensemble.children(PATH).await.len(), 2);
                let nodes = [&writer, &reader as &lock_recipes::LockGuard]
                    .map(|it| sequence(&it.members()[0].node_path));
                assert_eq!(nodes[0], nodes[1], "the reader takes the writer's place");
                let again = lock(&session).read().await.unwrap();
                assert_eq!(again.hold_count(), 2);
                again.release().await.unwrap();
                if writer_first {
                    writer.release().await.unwrap();
                    assert!(reader.is_valid());
                    reader.verify().await.unwrap();
                    reader.release().await.unwrap();
                } else {
                    reader.release().await.unwrap();
                    writer.verify().await.unwrap();
                    writer.release().await.unwrap();
                }
            })
            .await;
        ensemble.await_children(PATH, 0).await;
    }
}

/// Curator `testContendingDowngrading`, which Curator before 5.5.0 fails.
async fn writer_queued_before_a_downgrade_waits_for_the_reader(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let writer = lock(&here).write().await.unwrap();
    let token = writer.fencing_token();
    let queued = lock(&elsewhere);
    let queued = tokio::spawn(queued.write());
    ensemble.await_children(PATH, 2).await;

    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.fencing_token(), token);
    ensemble.await_children(PATH, 2).await;
    reader.verify().await.unwrap();
    assert!(!queued.is_finished());
    // Other readers queue after that writer, so none overtakes it.
    assert!(lock(&here).try_read().await.unwrap().is_none());
    reader.release().await.unwrap();
    let writer = queued.await.unwrap().unwrap();
    assert!(writer.fencing_token() > token);
    writer.release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

async fn other_write_guards_keep_the_writer_through_a_downgrade(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let outer = lock(&here).write().await.unwrap();
    let reader = outer.reenter().unwrap().downgrade().await.unwrap();
    assert_eq!(outer.hold_count(), 1);
    assert!(lock(&elsewhere).try_read().await.unwrap().is_none());
    outer.release().await.unwrap();
    let shared = lock(&elsewhere).try_read().await.unwrap().unwrap();
    assert!(lock(&elsewhere).try_write().await.unwrap().is_none());
    shared.release().await.unwrap();
    reader.release().await.unwrap();
}

async fn downgrade_of_a_lost_writer_fails_and_leaves_nothing(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let writer = lock(&session).write().await.unwrap();
    ensemble.delete(&writer.members()[0].node_path).await;
    let refused = writer.downgrade().await.unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::Lost(_))),
        "{refused:?}"
    );
    ensemble.await_children(PATH, 0).await;
    lock(&session)
        .write()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Curator from 5.5.0 on creates such a reader for a writer that reads.
async fn reader_beside_a_writer_of_others_is_respected(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let writer = lock(&session).write().await.unwrap();
    let node = &writer.members()[0].node_path;
    let (_, number) = node.split_once("__WRIT__").unwrap();
    let mark = if number.len() > 10 { "+" } else { "" };
    let beside = format!("{PATH}/_c_01234567-89ab-cdef-0123-456789abcdef-__READ__{number}{mark}");
    ensemble.create(&beside, b"").await;
    let queued = lock(&session);
    let queued = tokio::spawn(queued.write());
    ensemble.await_children(PATH, 3).await;
    writer.verify().await.unwrap();
    writer.release().await.unwrap();
    let readers = lock(&session).read_participants().await.unwrap();
    assert_eq!(readers.len(), 1);
    assert!(lock(&session).try_write().await.unwrap().is_none());
    assert!(!queued.is_finished());
    ensemble.delete(&beside).await;
    queued.await.unwrap().unwrap().release().await.unwrap();
}

/// Curator `testSetNodeData`.
async fn both_kinds_carry_the_data_that_was_given(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let options = LockOptions::new().identity(*b"mine").unwrap();
    let lock = InterProcessReadWriteLock::with_options(&session, PATH, &options).unwrap();
    let writer = lock.write().await.unwrap();
    let reader = writer.read().await.unwrap();
    for participants in [
        lock.read_participants().await,
        lock.write_participants().await,
    ] {
        assert_eq!(participants.unwrap()[0].data, b"mine");
    }
    drop((writer, reader));
}

/// Curator `testLockPath`.
async fn reader_gets_the_lock_of_a_writer_whose_session_expired(ensemble: TestEnsemble) {
    let (writing, reading) = (ensemble.session().await, ensemble.session().await);
    let writer = lock(&writing).write().await.unwrap();
    let node = writer.members()[0].node_path.clone();
    let waiter = lock(&reading);
    let waiter = tokio::spawn(waiter.read());
    ensemble.await_children(PATH, 2).await;
    ensemble.expire(&writing).await;
    let reader = waiter.await.unwrap().unwrap();
    assert_eq!(ensemble.read(&node).await, None);
    // It may take a while: an explicit expiry gives the writer no time to learn of it first.
    writer.lost().await;
    assert!(!writer.is_valid());
    assert!(writer.release().await.is_err());
    reader.release().await.unwrap();
}

async fn mutex_of_the_same_path_is_refused(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = lock(&session).read().await.unwrap();
    let refused = InterProcessMutex::new(&session, PATH).unwrap_err();
    assert!(matches!(&refused, Error::Config(ConfigError::RecipeDiffers { path }) if path == PATH));
    held.release().await.unwrap();
    assert!(InterProcessMutex::new(&session, PATH).is_ok());
}

async fn readers_without_pause_keep_a_writer_waiting_for_one_generation(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let first: Vec<_> = try_join_all((0..3).map(|_| async { lock(&session).read().await }))
        .await
        .unwrap();
    let writer = lock(&session);
    let writer = tokio::spawn(writer.write());
    ensemble.await_children(PATH, 4).await;
    // Later ones queue after it, however many they are.
    let later: Vec<_> = (0..5)
        .map(|_| {
            let reader = lock(&session);
            tokio::spawn(reader.read())
        })
        .collect();
    ensemble.await_children(PATH, 9).await;
    drop(first);
    let writer = writer.await.unwrap().unwrap();
    assert!(later.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    for reader in join_all(later).await {
        reader.unwrap().unwrap().release().await.unwrap();
    }
    ensemble.await_children(PATH, 0).await;
}

async fn acquire_or_downgrade_dropped_at_every_poll_leaves_nothing(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = lock(&session);
    for polls in 0..12 {
        for writes in [false, true] {
            let mut acquire = match writes {
                true => Box::pin(async { lock.write().await.map(drop) })
                    as std::pin::Pin<Box<dyn Future<Output = _>>>,
                false => Box::pin(async { lock.read().await.map(drop) }),
            };
            for _ in 0..polls {
                if poll!(&mut acquire).is_ready() {
                    break;
                }
                ensemble.let_something_happen().await;
            }
        }
        {
            let writer = lock.write().await.unwrap();
            let mut downgrade = Box::pin(writer.downgrade());
            for _ in 0..polls {
                if poll!(&mut downgrade).is_ready() {
                    break;
                }
                ensemble.let_something_happen().await;
            }
        }
        lock.write().await.unwrap().release().await.unwrap();
        ensemble.await_children(PATH, 0).await;
    }
}
