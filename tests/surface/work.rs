//! Work under a lock in one call: what it has come to, and what is left of the lock.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use lock_recipes::{
    Done, Error, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore,
    LeaderElection, Member, MultiLock, Owner, ReleaseError, ReleaseOutcome, Session,
};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};
use tokio::sync::oneshot;

const PATH: &str = "/locks/orders";
const SHORT: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

fn assert_freed<T>(done: &Done<T>) {
    assert_eq!(*done.release.as_ref().unwrap(), ReleaseOutcome::Released);
}

on_every_ensemble!(
    work_gives_its_output_and_leaves_the_lock_free,
    work_is_not_begun_while_the_lock_is_busy,
    work_is_dropped_when_the_lock_is_lost,
    work_of_an_owner_re_enters,
    every_kind_of_lock_runs_work,
    work_that_panics_leaves_the_lock_free,
    work_that_is_given_up_leaves_the_lock_free,
);

async fn work_gives_its_output_and_leaves_the_lock_free(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    // Borrows from here, and is sent to another task from there.
    let name = String::from("4711");
    let done = lock
        .acquire()
        .run(async |guard| {
            assert!(lock.is_acquired_in_this_process());
            guard.verify().await.unwrap();
            format!("{name} under {}", guard.fencing_token())
        })
        .await
        .unwrap();
    assert!(done.output.starts_with("4711 under "), "{done:?}");
    assert_freed(&done);
    assert!(ensemble.children(PATH).await.is_empty());
    let sent = lock.try_acquire().run(async move |_| name.len());
    let done = tokio::spawn(sent).await.unwrap().unwrap().unwrap();
    assert_eq!(done.output, 4);
    assert_freed(&done);
    assert!(ensemble.children(PATH).await.is_empty());
}

async fn work_is_not_begun_while_the_lock_is_busy(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let held = lock.acquire().await.unwrap();
    let has_begun = AtomicBool::new(false);
    let begin = async |_: &_| has_begun.store(true, Ordering::SeqCst);
    let tried = lock.try_acquire().run(begin).await;
    assert!(tried.unwrap().is_none());
    // On a busy machine the store may not have answered by then, and it has more time.
    let mut waits = SHORT;
    let error = loop {
        let begin = async |_: &_| has_begun.store(true, Ordering::SeqCst);
        let waited = lock.acquire().timeout(waits).run(begin).await;
        match waited.unwrap_err() {
            late if late.is_busy() || waits > PATIENCE => break late,
            _ => waits *= 4,
        }
    };
    assert!(
        matches!(error, Error::Acquire(_)) && error.is_busy(),
        "{error}"
    );
    assert!(!has_begun.load(Ordering::SeqCst));
    held.release().await.unwrap();
}

/// Set when this is dropped.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

async fn work_is_dropped_when_the_lock_is_lost(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let was_dropped = AtomicBool::new(false);
    let work = async |_: &_| {
        let _flag = Flag(&was_dropped);
        ensemble.expire(&session).await;
        std::future::pending::<()>().await;
    };
    let error = mutex(&session).acquire().run(work).await.unwrap_err();
    assert!(
        matches!(error, Error::Lost(_)) && error.is_lost(),
        "{error}"
    );
    assert!(was_dropped.load(Ordering::SeqCst));
}

async fn work_of_an_owner_re_enters(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let alice = Owner::new();
    let done = lock
        .acquire()
        .owner(&alice)
        .run(async |outer| {
            let inner = lock.acquire().owner(&alice);
            let inner = inner.run(async |inner| inner.hold_count()).await.unwrap();
            // The outer hold keeps it.
            assert_freed(&inner);
            assert!(outer.is_valid());
            (inner.output, outer.hold_count())
        })
        .await
        .unwrap();
    assert_eq!(done.output, (2, 1));
    assert!(ensemble.children(PATH).await.is_empty());
}

async fn every_kind_of_lock_runs_work(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let both = InterProcessReadWriteLock::new(&session, "/locks/config").unwrap();
    let read = both.read().run(async |it| it.path().to_owned()).await;
    let read = read.unwrap();
    assert_eq!(read.output, both.path());
    assert_freed(&read);
    let write = both.write().run(async |it| it.fencing_token()).await;
    assert_freed(&write.unwrap());
    let members = ["/locks/a", "/locks/b"].map(Member::mutex);
    let set = MultiLock::new(&session, members).unwrap();
    let set = set.acquire().run(async |it| it.members().len()).await;
    let set = set.unwrap();
    assert_eq!(set.output, 2);
    assert_freed(&set);
    let permits = InterProcessSemaphore::new(&session, "/locks/permits", 3).unwrap();
    let permits = permits.acquire_many(2).unwrap();
    let permits = permits.run(async |it| it.count()).await.unwrap();
    assert_eq!(permits.output, 2);
    assert_freed(&permits);
    let election = LeaderElection::new(&session, "/locks/election", "host").unwrap();
    let term = election.campaign().run(async |it| it.is_valid()).await;
    let term = term.unwrap();
    assert!(term.output);
    assert_freed(&term);
}

async fn work_that_panics_leaves_the_lock_free(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let work = lock.acquire().run(async |_| panic!("the work"));
    AssertUnwindSafe(work).catch_unwind().await.unwrap_err();
    ensemble.await_children(PATH, 0).await;
}

async fn work_that_is_given_up_leaves_the_lock_free(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (begun, has_begun) = oneshot::channel();
    let work = mutex(&session).acquire().run(async move |_| {
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    tokio::select! {
        _ = work => unreachable!("it has no end"),
        begun = has_begun => begun.unwrap(),
    }
    ensemble.await_children(PATH, 0).await;
}

mod in_memory {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn release_that_is_not_confirmed_is_told_beside_the_output() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let work = async |_: &_| {
            ensemble.stop();
            7
        };
        let done = mutex(&session).acquire().run(work).await.unwrap();
        assert_eq!(done.output, 7);
        assert_eq!(done.release.unwrap(), ReleaseOutcome::Pending);
    }

    #[tokio::test(start_paused = true)]
    async fn release_that_is_refused_is_told_beside_the_output() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        ensemble.deny(PATH, Operation::Delete);
        let done = mutex(&session).acquire().run(async |_| 7).await.unwrap();
        assert_eq!(done.output, 7);
        let refused = done.release.unwrap_err();
        assert!(
            matches!(refused, Error::Release(ReleaseError::Refused { .. })),
            "{refused}"
        );
    }
}
