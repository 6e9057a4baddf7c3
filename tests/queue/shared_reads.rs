//! Readers of one session that share a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, poll};
use lock_recipes::{
    ConfigError, Error, InterProcessReadWriteLock, LockOptions, LostReason, Owner, ReadGuard,
    ReleaseOutcome, Session,
};
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble,
};
use tokio::time::sleep;

const PATH: &str = "/locks/configuration";

fn lock(session: &Session, open_for: Duration) -> InterProcessReadWriteLock {
    let options = LockOptions::new().shared_reads(open_for);
    InterProcessReadWriteLock::with_options(session, PATH, &options).unwrap()
}

/// Of readers that share a node for as long as possible.
fn for_long(session: &Session) -> InterProcessReadWriteLock {
    lock(session, Duration::MAX)
}

/// A writer of the session ends the sharing.
async fn write(lock: &InterProcessReadWriteLock) {
    let guard = lock.write().await.unwrap();
    guard.release().await.unwrap();
}

fn node(guard: &ReadGuard) -> String {
    guard.members()[0].node_path.clone()
}

type Reader<'a> = BoxFuture<'a, Result<ReadGuard, Error>>;

/// Readers that wait. Each has been polled once.
async fn readers(lock: &InterProcessReadWriteLock, count: usize) -> Vec<Reader<'_>> {
    let mut readers = Vec::new();
    for _ in 0..count {
        let mut reader = lock.read().boxed();
        assert!(poll!(reader.as_mut()).is_pending());
        readers.push(reader);
    }
    readers
}

on_every_ensemble!(
    readers_that_wait_share_a_node_and_those_that_give_up_leave_it_to_the_others,
    writer_of_another_session_waits_for_no_reader_that_comes_after_the_time,
    writer_goes_ahead_of_the_readers_of_its_session_that_come_later,
    reader_that_tries_joins_a_node_and_never_one_that_waits,
    each_reader_has_a_hold_of_its_own,
    node_that_was_removed_unnoticed_is_joined_by_nobody,
    downgraded_writer_shares_its_node_with_nobody,
);
on_ensembles_of_their_own!(readers_join_a_node_without_a_write);
on_ensembles_of_their_own!(watches: loss_and_request_reach_each_reader_and_nobody_joins_any_more);

async fn readers_join_a_node_without_a_write(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = for_long(&session);
    let first = lock.read().await.unwrap();
    let before = ensemble.zxid().await;
    let mut others = Vec::new();
    for _ in 0..5 {
        let other = lock.read().await.unwrap();
        assert_eq!(node(&other), node(&first));
        assert_eq!(other.fencing_token(), first.fencing_token());
        assert!(other.is_valid());
        others.push(other);
    }
    let shared = node(&first);
    for guard in std::iter::once(first).chain(others) {
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    }
    // Nobody reads, and the next one finds the node.
    let next = lock.read().await.unwrap();
    assert_eq!(node(&next), shared);
    assert_eq!(ensemble.zxid().await, before, "something was written");
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    next.verify().await.unwrap();
    // A writer ends that, and waits for the reader.
    let mut writer = lock.write().boxed();
    assert!(poll!(writer.as_mut()).is_pending());
    ensemble.await_children(PATH, 2).await;
    next.verify().await.unwrap();
    next.release().await.unwrap();
    writer.await.unwrap().release().await.unwrap();
    assert!(ensemble.children(PATH).await.is_empty());
}

async fn readers_that_wait_share_a_node_and_those_that_give_up_leave_it_to_the_others(
    ensemble: TestEnsemble,
) {
    let (ours, others) = (ensemble.session().await, ensemble.session().await);
    let writer = for_long(&others).write().await.unwrap();
    let lock = lock(&ours, Duration::from_millis(50));
    let mut waiting = readers(&lock, 5).await;
    ensemble
        .until("their node", async || {
            for reader in &mut waiting {
                assert!(poll!(reader.as_mut()).is_pending());
            }
            (ensemble.children(PATH).await.len() == 2).then_some(())
        })
        .await;
    // The first one has begun the attempt.
    drop(waiting.remove(0));
    drop(waiting.remove(1));
    writer.release().await.unwrap();
    let guards: Vec<_> = join_all(waiting)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    // Also when the time is over, the readers that hold keep the node, and then it goes.
    let last = guards.len() - 1;
    for (index, guard) in guards.into_iter().enumerate() {
        if index == last {
            sleep(Duration::from_millis(60)).await;
        }
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
    }
    ensemble.await_children(PATH, 0).await;
    // The session gives up by itself what nobody reads.
    let guard = lock.read().await.unwrap();
    guard.release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
    // Who gives up alone leaves nothing.
    let writer = for_long(&others).write().await.unwrap();
    let mut alone = lock.read().timeout(Duration::from_millis(50)).boxed();
    ensemble
        .until("its end", async || {
            poll!(alone.as_mut()).is_ready().then_some(())
        })
        .await;
    ensemble.await_children(PATH, 1).await;
    writer.release().await.unwrap();
}

/// Readers that are never all away would keep the writer out for ever.
async fn writer_of_another_session_waits_for_no_reader_that_comes_after_the_time(
    ensemble: TestEnsemble,
) {
    const HELD: Duration = Duration::from_millis(20);
    let (ours, others) = (ensemble.session().await, ensemble.session().await);
    let lock = lock(&ours, Duration::from_millis(100));
    let reads = async |from: Duration| {
        sleep(from).await;
        loop {
            let guard = lock.read().await.unwrap();
            sleep(HELD).await;
            guard.release().await.unwrap();
        }
    };
    let readers = join_all((0..4).map(|it| reads(it * HELD / 4)));
    let writer = async {
        // The first one has its node.
        let is_read = async || (!ensemble.children(PATH).await.is_empty()).then_some(());
        ensemble.until("a reader", is_read).await;
        for _ in 0..3 {
            write(&for_long(&others)).await;
        }
    };
    tokio::select! {
        _ = readers => {}
        () = writer => {}
    }
}

async fn writer_goes_ahead_of_the_readers_of_its_session_that_come_later(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = for_long(&session);
    let held = lock.read().await.unwrap();
    let mut writer = lock.write().boxed();
    assert!(poll!(writer.as_mut()).is_pending());
    let mut later = readers(&lock, 3).await;
    ensemble
        .until("their nodes", async || {
            assert!(poll!(writer.as_mut()).is_pending());
            for reader in &mut later {
                assert!(poll!(reader.as_mut()).is_pending(), "it went ahead");
            }
            // The holder's, the writer's, and one for those that came later.
            (ensemble.children(PATH).await.len() == 3).then_some(())
        })
        .await;
    held.release().await.unwrap();
    let written = writer.await.unwrap();
    for reader in &mut later {
        assert!(poll!(reader.as_mut()).is_pending(), "next to a writer");
    }
    written.release().await.unwrap();
    let guards: Vec<_> = join_all(later)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(node(&guards[0]), node(&guards[2]));
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn reader_that_tries_joins_a_node_and_never_one_that_waits(ensemble: TestEnsemble) {
    let (ours, others) = (ensemble.session().await, ensemble.session().await);
    let lock = for_long(&ours);
    let first = lock.try_read().await.unwrap().unwrap();
    let held = lock.read().await.unwrap();
    // A try makes a node of its own if there is none to join.
    assert_ne!(node(&first), node(&held));
    let tried = lock.try_read().await.unwrap().unwrap();
    assert_eq!(node(&tried), node(&held));
    for guard in [first, held, tried] {
        guard.release().await.unwrap();
    }
    write(&lock).await;
    let written = for_long(&others).write().await.unwrap();
    let mut waits = lock.read().boxed();
    assert!(poll!(waits.as_mut()).is_pending());
    assert!(lock.try_read().await.unwrap().is_none());
    written.release().await.unwrap();
    waits.await.unwrap().release().await.unwrap();
}

async fn each_reader_has_a_hold_of_its_own(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = for_long(&session);
    let (alice, bob) = (Owner::new(), Owner::new());
    let outer = lock.read().owner(&alice).await.unwrap();
    let inner = lock.read().owner(&alice).await.unwrap();
    let other = lock.read().owner(&bob).await.unwrap();
    assert_eq!(
        [&outer, &inner, &other].map(|it| it.hold_count()),
        [2, 2, 1]
    );
    // Of an owner that reads, whoever shares its node.
    let refused = lock.write().owner(&bob).await.unwrap_err();
    assert!(refused.to_string().contains("read"), "{refused}");
    let ends = outer.lost();
    outer.release().await.unwrap();
    inner.release().await.unwrap();
    assert_eq!(other.hold_count(), 1);
    ensemble.delete(&node(&other)).await;
    assert_eq!(other.lost().await.reason, LostReason::NodeRemoved);
    assert!(ends.now_or_never().is_none(), "it was released before");
    other.release().await.unwrap_err();
}

/// Nobody watches a node in the first moments after its grant.
async fn node_that_was_removed_unnoticed_is_joined_by_nobody(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = for_long(&session);
    let first = lock.read().await.unwrap();
    ensemble.delete(&node(&first)).await;
    let next = lock.read().await.unwrap();
    let is_slow = !matches!(ensemble, TestEnsemble::Memory(_)) && node(&next) == node(&first);
    if is_slow {
        // On a busy machine it was watched by then, and the news are on their way.
        assert_eq!(next.lost().await.reason, LostReason::NodeRemoved);
        next.release().await.unwrap_err();
    } else {
        assert_ne!(node(&next), node(&first));
        next.verify().await.unwrap();
        next.release().await.unwrap();
    }
    first.release().await.unwrap_err();
}

async fn downgraded_writer_shares_its_node_with_nobody(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = for_long(&session);
    let written = lock.write().await.unwrap();
    let downgraded = written.downgrade().await.unwrap();
    let other = lock.read().await.unwrap();
    assert_ne!(node(&downgraded), node(&other));
    downgraded.release().await.unwrap();
    other.verify().await.unwrap();
    other.release().await.unwrap();
}

async fn loss_and_request_reach_each_reader_and_nobody_joins_any_more(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = for_long(&session);
    for is_removed in [false, true] {
        let (one, two) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        assert_eq!(node(&one), node(&two));
        match is_removed {
            true => {
                ensemble.delete(&node(&one)).await;
                for guard in [&one, &two] {
                    assert_eq!(guard.lost().await.reason, LostReason::NodeRemoved);
                }
            }
            false => {
                let holders = lock.read_participants().await.unwrap();
                assert!(holders[0].revoke(&session).await.unwrap());
                one.revocation_requested().await;
                two.revocation_requested().await;
            }
        }
        let next = lock.read().await.unwrap();
        assert_ne!(node(&next), node(&one));
        next.release().await.unwrap();
        for guard in [one, two] {
            assert_eq!(guard.release().await.is_err(), is_removed);
        }
    }
    write(&lock).await;
    assert!(ensemble.children(PATH).await.is_empty());
}

#[tokio::test]
async fn reader_that_never_waits_lets_other_tasks_run_in_memory() {
    const READS: usize = 10_000;
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let lock = for_long(&session);
    let done = Arc::new(AtomicUsize::new(0));
    let reads = Arc::clone(&done);
    let reader = tokio::spawn(async move {
        for _ in 0..READS {
            lock.read().await.unwrap().release().await.unwrap();
            reads.fetch_add(1, Ordering::Relaxed);
        }
    });
    while done.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let first = done.load(Ordering::Relaxed);
    assert!(first < READS, "it did all of them at one time");
    reader.await.unwrap();
}

/// Somebody who waited with others, and is not polled any more, still has the answer.
#[tokio::test(start_paused = true)]
async fn refusal_of_a_group_is_for_those_who_waited_with_it_in_memory() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let lock = for_long(&session);
    ensemble.deny(PATH, Operation::Create);
    let mut waiting = readers(&lock, 2).await;
    waiting.remove(0).await.unwrap_err();
    ensemble.allow_all();
    lock.read().await.unwrap().release().await.unwrap();
    waiting.remove(0).await.unwrap_err();
}

/// All handles of a path share the same groups.
#[tokio::test]
async fn option_that_differs_between_handles_is_refused_in_memory() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let _lock = for_long(&session);
    let other = LockOptions::new().shared_reads(Duration::from_secs(1));
    let refused = InterProcessReadWriteLock::with_options(&session, PATH, &other).unwrap_err();
    assert!(
        matches!(
            &refused,
            Error::Config(ConfigError::OptionsDiffer {
                option: "shared_reads",
                ..
            })
        ),
        "{refused}"
    );
}
