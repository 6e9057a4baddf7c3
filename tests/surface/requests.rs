//! An acquire is a value that does nothing until it is polled, and a future like any other.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{join, lazy};
use futures::{FutureExt, poll};
use lock_recipes::{
    Acquire, DistributedLock, InterProcessMutex, InterProcessReadWriteLock, LockGuard, Member,
    MultiGuard, MultiLock, MutexGuard, Owner, ReadGuard, Session, TryAcquire, WriteGuard,
};
use test_rig::{TestEnsemble, on_every_ensemble};
use tokio::time::timeout;

const PATH: &str = "/locks/orders";
const SETTINGS: &str = "/locks/settings";
const PATIENCE: Duration = Duration::from_secs(30);

/// What `tokio::spawn`, `select!` with `&mut` and a `Vec` in a struct need.
fn can_be_kept_and_moved<T: Send + Unpin + std::fmt::Debug + 'static>() {}

// It fails to compile, not to run: Rust 1.85 takes a function for dead that only a constant calls.
#[test]
fn requests_can_be_kept_and_moved() {
    can_be_kept_and_moved::<Acquire<LockGuard>>();
    can_be_kept_and_moved::<Acquire<MultiGuard>>();
    can_be_kept_and_moved::<Acquire<MutexGuard>>();
    can_be_kept_and_moved::<Acquire<ReadGuard>>();
    can_be_kept_and_moved::<Acquire<WriteGuard>>();
    can_be_kept_and_moved::<TryAcquire<LockGuard>>();
    can_be_kept_and_moved::<TryAcquire<MultiGuard>>();
    can_be_kept_and_moved::<TryAcquire<MutexGuard>>();
    can_be_kept_and_moved::<TryAcquire<ReadGuard>>();
    can_be_kept_and_moved::<TryAcquire<WriteGuard>>();
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

fn settings(session: &Session) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(session, SETTINGS).unwrap()
}

fn both(session: &Session) -> MultiLock {
    MultiLock::new(session, [Member::mutex(PATH), Member::read(SETTINGS)]).unwrap()
}

on_every_ensemble!(
    requests_that_are_not_polled_change_nothing,
    spawn_join_select_and_timeout_take_a_request_as_it_is,
    request_outlives_its_handle,
    request_belongs_to_the_scope_of_its_first_poll,
    named_owner_goes_before_the_scope,
    requests_of_halves_and_of_any_lock_take_owner_and_timeout,
    guard_is_dropped_and_next_acquire_begins_outside_of_a_runtime,
);

async fn requests_that_are_not_polled_change_nothing(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let owner = Owner::new();
    let acquires = (
        mutex(&session).acquire().owner(&owner).timeout(PATIENCE),
        settings(&session).read().owner(&owner).timeout(PATIENCE),
        settings(&session).write().owner(&owner).timeout(PATIENCE),
        both(&session).acquire().owner(&owner).timeout(PATIENCE),
    );
    let tries = (
        mutex(&session).try_acquire().owner(&owner),
        settings(&session).try_read().owner(&owner),
        settings(&session).try_write().owner(&owner),
        both(&session).try_acquire().owner(&owner),
    );
    // The next transaction of the session comes after all that the requests would have sent.
    let other = InterProcessMutex::new(&session, "/other").unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
    assert!(ensemble.read("/locks").await.is_none());
    drop((acquires, tries));
    other.acquire().await.unwrap().release().await.unwrap();
    assert!(ensemble.read("/locks").await.is_none());
    let free = mutex(&session).try_acquire().await.unwrap();
    assert!(free.is_some());
}

async fn spawn_join_select_and_timeout_take_a_request_as_it_is(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let spawned = tokio::spawn(mutex(&session).acquire()).await;
    let held = spawned.unwrap().unwrap();

    let late = timeout(Duration::from_millis(50), mutex(&session).acquire());
    late.await.unwrap_err();

    let lock = mutex(&session);
    tokio::select! {
        biased;
        guard = lock.acquire() => panic!("{guard:?}"),
        tried = lock.try_acquire() => assert!(tried.unwrap().is_none()),
    }

    let mut waiting = lock.acquire();
    assert!(poll!(&mut waiting).is_pending());
    let (granted, released) = tokio::join!(&mut waiting, held.release());
    released.unwrap();
    drop(granted.unwrap());

    let (reader, other) = join(settings(&session).read(), settings(&session).read()).await;
    assert!(reader.unwrap().fencing_token() != other.unwrap().fencing_token());
}

async fn request_outlives_its_handle(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let request = mutex(&session).acquire();
    let guard = request.await.unwrap();
    assert!(mutex(&session).try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

async fn request_belongs_to_the_scope_of_its_first_poll(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (owner, lock) = (Owner::new(), mutex(&session));
    let held = lock.acquire().owner(&owner).await.unwrap();

    let made_outside = lock.acquire();
    let again = owner.scope(made_outside).await.unwrap();
    assert_eq!(held.hold_count(), 2);
    drop(again);

    let made_inside = owner.scope(lazy(|_| lock.try_acquire())).await;
    assert!(made_inside.await.unwrap().is_none(), "a new owner");

    let mut polled_inside = lock.acquire();
    let other = Owner::new();
    other
        .scope(async { assert!(poll!(&mut polled_inside).is_pending()) })
        .await;
    held.release().await.unwrap();
    let guard = polled_inside.await.unwrap();
    let again = lock.try_acquire().owner(&other).await.unwrap();
    assert!(again.is_some(), "the later polls change nothing");
    drop(guard);
}

async fn named_owner_goes_before_the_scope(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (owner, lock) = (Owner::new(), mutex(&session));
    let held = lock.acquire().owner(&owner).await.unwrap();
    let request = lock.acquire().owner(&owner).timeout(PATIENCE);
    let again = Owner::new().scope(request).await.unwrap();
    assert_eq!(held.hold_count(), 2);
    drop(again);
}

async fn requests_of_halves_and_of_any_lock_take_owner_and_timeout(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let owner = Owner::new();
    let locks: [Box<dyn DistributedLock>; 4] = [
        Box::new(mutex(&session)),
        Box::new(settings(&session).write_lock()),
        Box::new(settings(&session).read_lock()),
        Box::new(both(&session)),
    ];
    for lock in locks {
        let guard = lock.acquire().timeout(PATIENCE).owner(&owner).await;
        let guard = guard.unwrap();
        let again = lock.try_acquire().owner(&owner).await.unwrap();
        assert_eq!(guard.hold_count(), 2);
        drop(again);
        guard.release().await.unwrap();
    }
}

/// A request leaves where it is asked for, and no store may need a runtime there.
async fn guard_is_dropped_and_next_acquire_begins_outside_of_a_runtime(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let held = lock.acquire().await.unwrap();
    let mut next = lock.acquire();
    let outside = std::thread::spawn(move || {
        drop(held);
        let mut context = Context::from_waker(Waker::noop());
        let begun = next.poll_unpin(&mut context);
        (begun, next)
    });
    let granted = match outside.join().unwrap() {
        // On a machine that was busy in between.
        (Poll::Ready(granted), _) => granted,
        (Poll::Pending, next) => timeout(PATIENCE, next).await.unwrap(),
    };
    let token = granted.unwrap().fencing_token();
    let again = timeout(PATIENCE, lock.acquire()).await.unwrap().unwrap();
    assert!(again.fencing_token() > token);
}
