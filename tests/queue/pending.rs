//! A release without an answer makes no finished work fail. It says so, and goes on.

use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    AcquireError, DistributedLock, Error, InterProcessMutex, InterProcessReadWriteLock, LockGuard,
    LostReason, Member, MultiLock, ReleaseError, ReleaseOutcome, Session,
};
use test_rig::{MemoryEnsemble, TestEnsemble, on_ensembles_of_their_own};
use tokio::time::timeout;

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

const DIRECTORIES: [&str; 5] = ["/locks/m", "/locks/r", "/locks/w", "/locks/a", "/locks/b"];

/// An ensemble whose sessions time out, as those of a server do.
fn memory() -> MemoryEnsemble {
    let builder = MemoryEnsemble::builder();
    builder.session_timeout(Duration::from_secs(12)).build()
}

fn mortal(ensemble: TestEnsemble) -> TestEnsemble {
    match ensemble {
        TestEnsemble::Memory(_) => TestEnsemble::Memory(memory()),
        real => real,
    }
}

/// A guard of each kind of lock.
async fn one_of_each(session: &Session) -> Vec<LockGuard> {
    let read_write = |path| InterProcessReadWriteLock::new(session, path).unwrap();
    let members = ["/locks/a", "/locks/b"].map(Member::mutex);
    let locks: [Box<dyn DistributedLock>; 4] = [
        Box::new(InterProcessMutex::new(session, "/locks/m").unwrap()),
        Box::new(read_write("/locks/r").read_lock()),
        Box::new(read_write("/locks/w").write_lock()),
        Box::new(MultiLock::new(session, members).unwrap()),
    ];
    let acquired = join_all(locks.iter().map(|lock| lock.acquire())).await;
    acquired.into_iter().map(Result::unwrap).collect()
}

on_ensembles_of_their_own!(
    release_while_the_store_is_down_is_pending_and_goes_on,
    release_of_a_lock_that_an_outage_took_is_an_error,
);

async fn release_while_the_store_is_down_is_pending_and_goes_on(ensemble: TestEnsemble) {
    let ensemble = mortal(ensemble);
    let session = ensemble.session().await;
    let held = one_of_each(&session).await;
    ensemble.stop().await;
    // On a busy machine, the stop may have taken so long that the locks are lost.
    let releases = held
        .into_iter()
        .map(|guard| async move { (guard.is_valid(), guard.release().await) });
    let in_memory = matches!(ensemble, TestEnsemble::Memory(_));
    for (was_valid, released) in timeout(PATIENCE, join_all(releases)).await.unwrap() {
        assert!(was_valid || !in_memory);
        match released {
            Ok(outcome) => assert_eq!(outcome, ReleaseOutcome::Pending),
            Err(error) => assert!(!was_valid, "{error}"),
        }
    }
    ensemble.start_again().await;
    for directory in DIRECTORIES {
        ensemble.await_children(directory, 0).await;
    }
}

async fn release_of_a_lock_that_an_outage_took_is_an_error(ensemble: TestEnsemble) {
    let ensemble = mortal(ensemble);
    let session = ensemble.session().await;
    let held = one_of_each(&session).await;
    ensemble.stop().await;
    for guard in held {
        timeout(PATIENCE, guard.lost()).await.unwrap();
        // The connection is still down, so nothing confirms or denies it.
        let released = timeout(PATIENCE, guard.release()).await.unwrap();
        let Err(Error::Release(ReleaseError::Lost(lost))) = released else {
            panic!("{released:?}");
        };
        assert_eq!(lost.reason, LostReason::DeadlinePassed);
    }
    ensemble.start_again().await;
    for directory in DIRECTORIES {
        ensemble.await_children(directory, 0).await;
    }
}

mod in_memory {
    use super::*;

    fn in_turn(sessions: [&Session; 2]) -> MultiLock {
        let [first, second] = sessions;
        let locks: Vec<Box<dyn DistributedLock>> = vec![
            Box::new(InterProcessMutex::new(first, "/first").unwrap()),
            Box::new(InterProcessMutex::new(second, "/second").unwrap()),
        ];
        MultiLock::from_locks(locks).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn set_is_pending_while_one_of_its_locks_is() {
        let (here, there) = (memory(), memory());
        let (one, other) = (here.session(), there.session());
        let held = in_turn([&one, &other]).acquire().await.unwrap();
        there.stop();
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Pending);
        assert!(here.children("/first").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn other_guard_of_the_owner_keeps_the_lock() {
        let ensemble = memory();
        let session = ensemble.session();
        let held = InterProcessMutex::new(&session, "/first").unwrap();
        let held = held.acquire().await.unwrap();
        let again = held.reenter().unwrap();
        ensemble.stop();
        // It only leaves, which needs no answer.
        assert_eq!(again.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Pending);
    }

    #[tokio::test(start_paused = true)]
    async fn set_that_is_not_acquired_names_what_is_released_late() {
        let (here, there) = (memory(), memory());
        let (one, other) = (here.session(), there.session());
        let busy = there.session();
        let busy = InterProcessMutex::new(&busy, "/second").unwrap();
        let _busy = busy.acquire().await.unwrap();
        let set = in_turn([&one, &other]);
        let waiting = tokio::spawn(set.acquire().timeout(Duration::from_secs(2)));
        TestEnsemble::Memory(there)
            .await_children("/second", 2)
            .await;
        here.stop();
        let late = waiting.await.unwrap().unwrap_err();
        let Error::Acquire(AcquireError::RolledBackLate {
            source,
            pending,
            failures,
        }) = &late
        else {
            panic!("{late:?}");
        };
        assert!(
            matches!(&**source, AcquireError::TimedOut { .. }),
            "{source}"
        );
        assert_eq!(pending, &["/first"]);
        assert!(failures.is_empty(), "{failures:?}");
        let told = "set of locks not acquired; 1 of them are released later, in the background";
        assert_eq!(late.to_string(), told);
        here.restart();
        TestEnsemble::Memory(here).await_children("/first", 0).await;
    }
}
