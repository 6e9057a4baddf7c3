//! Contenders of one process that share one node of the queue.

mod threads;
mod tries;
mod unsettled;

use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, poll};
use lock_recipes::{
    Acquire, AcquireError, ConfigError, Error, FencingToken, InterProcessMutex,
    InterProcessReadWriteLock, LockOptions, LostReason, MutexGuard, Owner, Session,
};
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble,
};
use tokio::sync::mpsc;

const PATH: &str = "/locks/orders";

fn options(handoffs: u32) -> LockOptions {
    LockOptions::new().local_handoffs(handoffs)
}

fn mutex(session: &Session, handoffs: u32) -> InterProcessMutex {
    InterProcessMutex::with_options(session, PATH, &options(handoffs)).unwrap()
}

fn read_write_lock(session: &Session, handoffs: u32) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::with_options(session, PATH, &options(handoffs)).unwrap()
}

type Waiter<'a> = BoxFuture<'a, Result<MutexGuard, Error>>;

/// Contenders that wait in this order. Each has been polled once.
async fn waiters(lock: &InterProcessMutex, count: usize) -> Vec<Waiter<'_>> {
    let mut waiters = Vec::new();
    for _ in 0..count {
        let mut waiter = lock.acquire().boxed();
        assert!(poll!(waiter.as_mut()).is_pending());
        waiters.push(waiter);
    }
    waiters
}

/// Another contender, on a task. It reports when it has its turn, and releases when it may.
fn contend(
    lock: InterProcessMutex,
    name: &'static str,
    grants: mpsc::UnboundedSender<&'static str>,
) {
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        grants.send(name).unwrap();
        guard.release().await.unwrap();
    });
}

fn parts(token: FencingToken) -> (i64, u32) {
    (token.as_i64(), token.handoff())
}

on_every_ensemble!(
    another_process_waits_for_no_more_sections_than_promised,
    who_gives_up_leaves_its_place_in_the_queue_to_the_next,
    turn_that_is_dropped_on_its_way_goes_to_the_next,
    waiters_do_not_wait_for_the_guards_of_a_lost_lock,
    session_that_is_closed_ends_all_waiters,
    session_that_is_closed_ends_who_waits_behind_one_that_nobody_polls,
    downgraded_write_lock_is_not_handed_on,
    write_lock_is_handed_on_though_readers_wait,
    owner_re_enters_what_was_handed_on_to_it,
);
on_ensembles_of_their_own!(waiters_of_a_process_share_a_node_and_are_served_in_order);
on_ensembles_of_their_own!(watches: whoever_has_the_node_is_told_that_it_was_removed);

async fn waiters_of_a_process_share_a_node_and_are_served_in_order(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    let mut held = lock.acquire().await.unwrap();
    let (czxid, _) = parts(held.fencing_token());
    let node = held.members()[0].node_path.clone();
    let others = waiters(&lock, 5).await;
    let before = ensemble.zxid().await;
    for (waiter, handoff) in others.into_iter().zip(1..) {
        held.release().await.unwrap();
        held = waiter.await.unwrap();
        assert_eq!(parts(held.fencing_token()), (czxid, handoff));
        assert_eq!(held.members()[0].node_path, node);
        assert!(held.is_valid());
    }
    // Nothing was written for any of the waiters.
    assert_eq!(ensemble.zxid().await, before);
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    held.release().await.unwrap();
    assert!(ensemble.children(PATH).await.is_empty());
}

async fn another_process_waits_for_no_more_sections_than_promised(ensemble: TestEnsemble) {
    const HANDOFFS: u32 = 3;
    let (ours, others) = (ensemble.session().await, ensemble.session().await);
    let (lock, other) = (mutex(&ours, HANDOFFS), mutex(&others, 0));
    let mut held = lock.acquire().await.unwrap();
    let mut waiting = waiters(&lock, 12).await.into_iter();
    let mut other = pin!(other.acquire());
    assert!(poll!(other.as_mut()).is_pending());
    ensemble
        .until("the other's node", async || {
            assert!(poll!(other.as_mut()).is_pending());
            (ensemble.children(PATH).await.len() == 2).then_some(())
        })
        .await;
    // The present hold is the first of them.
    for _ in 0..HANDOFFS {
        held.release().await.unwrap();
        held = waiting.next().unwrap().await.unwrap();
    }
    // Our next contender makes a node of its own, after the other's.
    let mut ours = waiting.next().unwrap();
    held.release().await.unwrap();
    let granted = tokio::select! {
        biased;
        _ = ours.as_mut() => panic!("one section too many"),
        granted = other => granted.unwrap(),
    };
    granted.release().await.unwrap();
    let granted = ours.await.unwrap();
    assert_eq!(granted.fencing_token().handoff(), 0);
    granted.release().await.unwrap();
}

/// Waits until there are two nodes. False if the contender gave up before.
async fn is_queued(ensemble: &TestEnsemble, contender: &mut Pin<Box<Acquire<MutexGuard>>>) -> bool {
    ensemble
        .until("our node", async || {
            if let Poll::Ready(ended) = poll!(contender.as_mut()) {
                assert!(ended.is_err(), "granted beside the holder");
                return Some(false);
            }
            (ensemble.children(PATH).await.len() == 2).then_some(true)
        })
        .await
}

async fn who_gives_up_leaves_its_place_in_the_queue_to_the_next(ensemble: TestEnsemble) {
    let (ours, others) = (ensemble.session().await, ensemble.session().await);
    let (lock, other) = (mutex(&ours, 9), mutex(&others, 0));
    let held = other.acquire().await.unwrap();
    let mut patience = Duration::from_millis(200);
    let mut head = Box::pin(lock.acquire().timeout(patience));
    // On a busy machine its time may be up before its node is seen. The next one has more.
    while !is_queued(&ensemble, &mut head).await {
        // Behind what this session has sent, so that its node is not yet to come.
        lock.participants().await.unwrap();
        ensemble.await_children(PATH, 1).await;
        patience *= 4;
        head = Box::pin(lock.acquire().timeout(patience));
    }
    let before = ensemble.children(PATH).await;
    let (grants, mut granted) = mpsc::unbounded_channel();
    let mut second = lock.acquire().boxed();
    assert!(poll!(second.as_mut()).is_pending());
    contend(lock.clone(), "ours", grants.clone());
    ensemble.let_something_happen().await;
    contend(other.clone(), "other", grants);
    ensemble.await_children(PATH, 3).await;

    // The first one times out. The second goes on with its node, and gives up too.
    let timed_out = head.await.unwrap_err();
    assert!(
        matches!(timed_out, Error::Acquire(AcquireError::TimedOut { .. })),
        "{timed_out}"
    );
    assert!(poll!(second.as_mut()).is_pending());
    drop(second);
    let after = ensemble.children(PATH).await;
    assert!(
        before.iter().all(|node| after.contains(node)),
        "{before:?} {after:?}"
    );
    held.release().await.unwrap();
    assert_eq!(granted.recv().await, Some("ours"));
    assert_eq!(granted.recv().await, Some("other"));
    ensemble.await_children(PATH, 0).await;
}

async fn turn_that_is_dropped_on_its_way_goes_to_the_next(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    let held = lock.acquire().await.unwrap();
    let mut others = waiters(&lock, 3).await.into_iter();
    held.release().await.unwrap();
    // The lock is handed to the first, which is dropped before it learns of it.
    drop(others.next());
    let granted = others.next().unwrap().await.unwrap();
    assert_eq!(granted.fencing_token().handoff(), 1);
    drop(granted);
    drop(others.next());
    ensemble.await_children(PATH, 0).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

async fn waiters_do_not_wait_for_the_guards_of_a_lost_lock(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    let held = lock.acquire().await.unwrap();
    let mut others = waiters(&lock, 2).await.into_iter();
    ensemble.expire(&session).await;
    held.lost().await;
    let granted = others.next().unwrap().await.unwrap();
    assert!(granted.fencing_token().as_i64() > held.fencing_token().as_i64());
    assert_eq!(granted.fencing_token().handoff(), 0);
    // Its release does not succeed, because the node was lost.
    held.release().await.unwrap_err();
    assert!(granted.is_valid());
    granted.release().await.unwrap();
    assert_eq!(
        others
            .next()
            .unwrap()
            .await
            .unwrap()
            .fencing_token()
            .handoff(),
        1
    );
}

async fn whoever_has_the_node_is_told_that_it_was_removed(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    for watched in [false, true] {
        let first = lock.acquire().await.unwrap();
        let released = first.lost();
        let node = first.members()[0].node_path.clone();
        let mut others = waiters(&lock, 2).await.into_iter();
        if watched {
            ensemble.await_watches(1).await;
        }
        first.release().await.unwrap();
        let held = others.next().unwrap().await.unwrap();
        ensemble.delete(&node).await;
        assert_eq!(held.lost().await.reason, LostReason::NodeRemoved);
        // The next contender has made another node, although the guard of the lost one still
        // exists.
        let next = others.next().unwrap().await.unwrap();
        assert_ne!(next.members()[0].node_path, node);
        held.release().await.unwrap_err();
        next.release().await.unwrap();
        assert!(released.now_or_never().is_none(), "released long ago");
    }
}

async fn session_that_is_closed_ends_all_waiters(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    let held = lock.acquire().await.unwrap();
    let others = waiters(&lock, 3).await;
    session.close().await;
    for waiter in others {
        let closed = waiter.await.unwrap_err();
        assert!(
            matches!(closed, Error::Acquire(AcquireError::SessionClosed { .. })),
            "{closed}"
        );
    }
    held.release().await.unwrap_err();
}

async fn session_that_is_closed_ends_who_waits_behind_one_that_nobody_polls(
    ensemble: TestEnsemble,
) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    let held = lock.acquire().await.unwrap();
    // It has the turn from then on, and does not use it.
    let _unpolled = waiters(&lock, 1).await;
    let behind = waiters(&lock, 1).await.remove(0);
    session.close().await;
    let closed = behind.await.unwrap_err();
    assert!(
        matches!(closed, Error::Acquire(AcquireError::SessionClosed { .. })),
        "{closed}"
    );
    let closed = lock.try_acquire().await.unwrap_err();
    assert!(
        matches!(closed, Error::Acquire(AcquireError::SessionClosed { .. })),
        "{closed}"
    );
    drop(held);
}

async fn downgraded_write_lock_is_not_handed_on(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = read_write_lock(&session, 9);
    let writer = lock.write().await.unwrap();
    let mut next = Box::pin(lock.write());
    assert!(poll!(next.as_mut()).is_pending());
    let reader = writer.downgrade().await.unwrap();
    ensemble
        .until("the next writer's node", async || {
            assert!(poll!(next.as_mut()).is_pending(), "beside a reader");
            (ensemble.children(PATH).await.len() == 2).then_some(())
        })
        .await;
    reader.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
}

async fn write_lock_is_handed_on_though_readers_wait(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = read_write_lock(&session, 1);
    let first = lock.write().await.unwrap();
    let mut second = Box::pin(lock.write());
    let mut third = Box::pin(lock.write());
    assert!(poll!(second.as_mut()).is_pending());
    assert!(poll!(third.as_mut()).is_pending());
    let mut reader = Box::pin(lock.read());
    ensemble
        .until("the reader's node", async || {
            assert!(poll!(reader.as_mut()).is_pending());
            (ensemble.children(PATH).await.len() == 2).then_some(())
        })
        .await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert_eq!(second.fencing_token().handoff(), 1);
    assert!(poll!(reader.as_mut()).is_pending());
    second.release().await.unwrap();
    let reading = tokio::select! {
        biased;
        _ = third.as_mut() => panic!("beyond the reader"),
        reading = reader => reading.unwrap(),
    };
    reading.release().await.unwrap();
    third.await.unwrap().release().await.unwrap();
}

async fn owner_re_enters_what_was_handed_on_to_it(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session, 9);
    let held = lock.acquire().await.unwrap();
    let owner = Owner::new();
    let mut waiter = Box::pin(lock.acquire().owner(&owner));
    assert!(poll!(waiter.as_mut()).is_pending());
    held.release().await.unwrap();
    let outer = waiter.await.unwrap();
    let inner = lock.acquire().owner(&owner).await.unwrap();
    assert_eq!(inner.hold_count(), 2);
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    drop(outer);
    let mut next = Box::pin(lock.acquire());
    assert!(poll!(next.as_mut()).is_pending());
    drop(inner);
    next.await.unwrap().release().await.unwrap();
    assert!(ensemble.children(PATH).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn sections_of_one_process_cost_one_create_and_one_delete_for_each_node() {
    const SECTIONS: usize = 100;
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let lock = mutex(&session, 9);
    lock.acquire().await.unwrap().release().await.unwrap();
    memory.reset_requests();
    let sections = (0..SECTIONS).map(|_| async {
        lock.acquire().await.unwrap().release().await.unwrap();
    });
    join_all(sections).await;
    assert_eq!(memory.request_count(Operation::Create), SECTIONS / 10);
    assert_eq!(memory.request_count(Operation::Delete), SECTIONS / 10);
}

#[tokio::test]
async fn handles_of_a_path_agree_on_the_hand_offs() {
    let session = MemoryEnsemble::new().session();
    let _lock = mutex(&session, 1);
    let differs = InterProcessMutex::new(&session, PATH).unwrap_err();
    assert!(
        matches!(differs, Error::Config(ConfigError::OptionsDiffer { .. })),
        "{differs}"
    );
}
