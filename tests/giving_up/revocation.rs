//! Requests to give a lock up: which holders are notified, and when.

mod while_down;

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, poll};
use lock_recipes::{
    Error, GuardState, InterProcessMutex, InterProcessReadWriteLock, LockGuard, LockOptions,
    Member, MultiLock, MutexGuard, Owner, Participant, QueryError, Session, ZooKeeper,
};
use test_rig::{
    Cut, FaultProxy, MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own,
    on_every_ensemble,
};
use tokio::time::timeout;

const PATH: &str = "/locks/orders";
const PATIENCE: Duration = Duration::from_secs(300);
const REQUEST: &[u8] = b"__REVOKE__";
/// A lock that is lost in each of so many restarts is held over none.
const RESTARTS: usize = 8;

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

fn sharing_mutex(session: &Session) -> InterProcessMutex {
    let options = LockOptions::new().local_handoffs(9);
    InterProcessMutex::with_options(session, PATH, &options).unwrap()
}

fn node(guard: &LockGuard) -> String {
    guard.members()[0].node_path.clone()
}

async fn told(guard: &LockGuard) {
    let requested = timeout(PATIENCE, guard.revocation_requested()).await;
    assert!(requested.is_ok(), "nobody tells of the request");
}

async fn last(lock: &InterProcessMutex) -> Participant {
    lock.participants().await.unwrap().pop().unwrap()
}

on_every_ensemble!(
    holder_that_is_asked_and_gives_way_lets_the_next_one_in,
    request_from_before_the_first_watch_is_told,
    nobody_is_told_after_a_release,
    all_guards_of_a_hold_are_told,
    set_is_asked_by_any_of_its_members,
    reader_beside_its_writer_is_asked_by_its_own_node,
    node_that_was_asked_for_is_not_handed_on,
);
on_ensembles_of_their_own!(
    watches:
    request_is_told_through_the_watch_and_so_is_the_next,
    request_for_a_waiter_is_told_when_it_is_granted,
    request_after_a_restart_of_the_server_is_told,
    what_is_not_exactly_a_request_is_none,
    request_reaches_whoever_the_node_was_handed_on_to,
);

async fn holder_that_is_asked_and_gives_way_lets_the_next_one_in(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let waiter = mutex(&waiting);
    let participant = last(&waiter).await;
    assert_eq!(participant.path, node(&held));
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children(PATH, 2).await;
    assert!(participant.revoke(&waiting).await.unwrap());
    assert_eq!(ensemble.read(&participant.path).await.unwrap().0, REQUEST);
    told(&held).await;
    // It was only requested.
    assert!(held.is_valid() && !waiter.is_finished());
    held.release().await.unwrap();
    let granted = waiter.await.unwrap().unwrap();
    assert!(granted.revocation_requested().now_or_never().is_none());
    assert!(
        !participant.revoke(&waiting).await.unwrap(),
        "asked a node that is gone"
    );
    granted.release().await.unwrap();
}

async fn request_from_before_the_first_watch_is_told(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.set(&node(&held), REQUEST).await;
    told(&held).await;
}

async fn request_is_told_through_the_watch_and_so_is_the_next(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.await_watches(1).await;
    let mut first = pin!(held.revocation_requested());
    assert!(poll!(first.as_mut()).is_pending());
    ensemble.set(&node(&held), REQUEST).await;
    timeout(PATIENCE, first).await.unwrap();
    ensemble.await_watches(1).await;
    ensemble.set(&node(&held), REQUEST).await;
    ensemble.await_watches(1).await;
    told(&held).await;
    // Other data that is written over the request does not take it back.
    ensemble.set(&node(&held), b"anything").await;
    held.verify().await.unwrap();
    told(&held).await;
    held.release().await.unwrap();
}

async fn request_for_a_waiter_is_told_when_it_is_granted(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 2).await;
    ensemble.await_watches(3).await;
    let asked = last(&lock).await;
    let revoked = async { assert!(asked.revoke(&holding).await.unwrap()) };
    ensemble.heard_of(revoked, 3).await;
    // What is written over the request does not take it back.
    let written = ensemble.set(&asked.path, b"anything");
    ensemble.heard_of(written, 3).await;
    assert!(held.revocation_requested().now_or_never().is_none());
    held.release().await.unwrap();
    told(&waiter.await.unwrap().unwrap()).await;
}

/// A guard that was held over a restart of the server. It is lost if the server is down for longer than it is valid.
async fn held_over_a_restart(ensemble: &TestEnsemble, lock: &InterProcessMutex) -> MutexGuard {
    for _ in 0..RESTARTS {
        let held = lock.acquire().await.unwrap();
        ensemble.await_watches(1).await;
        ensemble.stop().await;
        ensemble.start_again().await;
        let is_held = ensemble
            .until("held again, or lost", async || match held.state() {
                GuardState::Held => Some(true),
                GuardState::Lost(_) => Some(false),
                _ => None,
            })
            .await;
        if is_held {
            return held;
        }
    }
    panic!("lost in each of {RESTARTS} restarts");
}

async fn request_after_a_restart_of_the_server_is_told(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = held_over_a_restart(&ensemble, &mutex(&session)).await;
    let mut requested = pin!(held.revocation_requested());
    assert!(poll!(requested.as_mut()).is_pending());
    ensemble.set(&node(&held), REQUEST).await;
    timeout(PATIENCE, requested).await.unwrap();
}

async fn what_is_not_exactly_a_request_is_none(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.await_watches(1).await;
    let mut requested = pin!(held.revocation_requested());
    let others: [&[u8]; 6] = [
        b"",
        b"10.0.0.7",
        b"__REVOKE__ ",
        b"__REVOKE__\0",
        b"__revoke__",
        b"\x1f\x8b__REVOKE__",
    ];
    for other in others {
        ensemble.set(&node(&held), other).await;
        ensemble.await_watches(1).await;
        held.verify().await.unwrap();
        assert!(poll!(requested.as_mut()).is_pending(), "{other:?}");
    }
    ensemble.set(&node(&held), REQUEST).await;
    timeout(PATIENCE, requested).await.unwrap();
}

async fn nobody_is_told_after_a_release(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let held = lock.acquire().await.unwrap();
    let mut unpolled = pin!(held.revocation_requested());
    ensemble.set(&node(&held), REQUEST).await;
    told(&held).await;
    held.release().await.unwrap();
    assert!(poll!(unpolled.as_mut()).is_pending());
    // The request does not concern the next hold.
    let next = lock.acquire().await.unwrap();
    let mut requested = pin!(next.revocation_requested());
    assert!(poll!(requested.as_mut()).is_pending());
    ensemble.set(&node(&next), REQUEST).await;
    timeout(PATIENCE, requested).await.unwrap();
    assert!(poll!(unpolled.as_mut()).is_pending());
}

async fn all_guards_of_a_hold_are_told(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (lock, owner) = (mutex(&session), Owner::new());
    let outer = lock.acquire().owner(&owner).await.unwrap();
    let inner = lock.acquire().owner(&owner).await.unwrap();
    let again = outer.reenter().unwrap();
    ensemble.set(&node(&inner), REQUEST).await;
    told(&outer).await;
    drop(outer);
    for guard in [&inner, &again] {
        told(guard).await;
        assert!(guard.is_valid());
    }
}

async fn set_is_asked_by_any_of_its_members(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for asked in 0..2 {
        let set = MultiLock::new(&session, ["/set/a", "/set/b"].map(Member::mutex)).unwrap();
        let held = set.acquire().await.unwrap();
        let mut requested = pin!(held.revocation_requested());
        assert!(poll!(requested.as_mut()).is_pending());
        ensemble
            .set(&held.members()[asked].node_path, REQUEST)
            .await;
        timeout(PATIENCE, requested).await.unwrap();
        held.release().await.unwrap();
    }
}

async fn reader_beside_its_writer_is_asked_by_its_own_node(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let writer = lock.write().await.unwrap();
    let reader = writer.read().await.unwrap();
    assert!(
        lock.read_participants().await.unwrap()[0]
            .revoke(&session)
            .await
            .unwrap()
    );
    told(&reader).await;
    writer.verify().await.unwrap();
    assert!(writer.revocation_requested().now_or_never().is_none());
    assert!(
        lock.write_participants().await.unwrap()[0]
            .revoke(&session)
            .await
            .unwrap()
    );
    told(&writer).await;
}

async fn node_that_was_asked_for_is_not_handed_on(ensemble: TestEnsemble) {
    let (ours, others) = (ensemble.session().await, ensemble.session().await);
    let (lock, other) = (sharing_mutex(&ours), mutex(&others));
    let held = lock.acquire().await.unwrap();
    let mut local = Box::pin(lock.acquire());
    assert!(poll!(local.as_mut()).is_pending());
    let other = tokio::spawn(other.acquire());
    ensemble.await_children(PATH, 2).await;
    ensemble.set(&node(&held), REQUEST).await;
    told(&held).await;
    held.release().await.unwrap();
    let granted = tokio::select! {
        biased;
        _ = local.as_mut() => panic!("handed on, over the head of the one who asked"),
        granted = other => granted.unwrap().unwrap(),
    };
    granted.release().await.unwrap();
    let next = local.await.unwrap();
    assert_eq!(next.fencing_token().handoff(), 0);
    assert!(next.revocation_requested().now_or_never().is_none());
    next.release().await.unwrap();
}

async fn request_reaches_whoever_the_node_was_handed_on_to(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = sharing_mutex(&session);
    for is_watched in [false, true] {
        let first = lock.acquire().await.unwrap();
        let mut released = pin!(first.revocation_requested());
        let mut second = Box::pin(lock.acquire());
        assert!(poll!(second.as_mut()).is_pending());
        if is_watched {
            ensemble.await_watches(1).await;
        }
        first.release().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(second.fencing_token().handoff(), 1);
        ensemble.set(&node(&second), REQUEST).await;
        told(&second).await;
        assert!(poll!(released.as_mut()).is_pending());
        second.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn granted_waiter_knows_at_once_of_a_request_from_before() {
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (holding, waiting) = (memory.session(), memory.session());
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire());
    let nodes = ensemble.await_children(PATH, 2).await;
    ensemble.await_watches(3).await;
    let mut paths = nodes.iter().map(|it| format!("{PATH}/{it}"));
    let own = paths.find(|it| *it != node(&held)).unwrap();
    memory.reset_requests();
    memory.set_data(&own, REQUEST).unwrap();
    ensemble
        .until("another look", async || {
            (memory.request_count(Operation::Watch) == 1).then_some(())
        })
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    memory.reset_requests();
    held.release().await.unwrap();
    let granted = waiter.await.unwrap().unwrap();
    assert!(granted.revocation_requested().now_or_never().is_some());
    let asked = memory.request_count(Operation::Watch) + memory.request_count(Operation::Read);
    assert_eq!(asked, 0);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_request_are_told() {
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let (session, other) = (memory.session(), memory.session());
    let held = mutex(&session).acquire().await.unwrap();
    let participant = last(&mutex(&other)).await;
    memory.deny(PATH, Operation::Multi);
    let refused = participant.revoke(&other).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Query(QueryError::NotAuthorized { path }) if *path == node(&held)),
        "{refused}"
    );
    memory.allow_all();
    let id = other.session_id().unwrap();
    memory.disconnect(id);
    let unanswered = participant.revoke(&other).await.unwrap_err();
    assert!(
        matches!(&unanswered, Error::Query(QueryError::Unknown { source, .. }) if source.is_transient()),
        "{unanswered}"
    );
    assert!(
        unanswered.to_string().contains("may or may not"),
        "{unanswered}"
    );
    memory.reconnect(id);
    other.close().await;
    let closed = participant.revoke(&other).await.unwrap_err();
    assert!(
        matches!(closed, Error::Query(QueryError::SessionClosed { .. })),
        "{closed}"
    );
}

#[tokio::test(start_paused = true)]
async fn future_keeps_neither_lock_nor_session() {
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    let mut requested = pin!(held.revocation_requested());
    assert!(poll!(requested.as_mut()).is_pending());
    drop((held, session));
    ensemble.await_children(PATH, 0).await;
    let is_closed = async || memory.sessions().is_empty().then_some(());
    ensemble.until("closed session", is_closed).await;
    assert!(poll!(requested.as_mut()).is_pending());
}
