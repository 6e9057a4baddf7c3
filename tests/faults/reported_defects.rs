//! Defects that users of other lock libraries have reported, unless another file tests them.
//!
//! The tests run in memory, where they choose the moment. Each test names its reports.

use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    AcquireError, DistributedLock, Error, GuardState, InterProcessMutex, InterProcessReadWriteLock,
    LockGuard, Session, Step,
};
use test_rig::{Lost, MemoryEnsemble, Operation, TestEnsemble};

const PATH: &str = "/locks/orders";
const PATIENCE: Duration = Duration::from_secs(60);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// Lets this many things happen.
async fn pass(steps: usize) {
    for _ in 0..steps {
        tokio::task::yield_now().await;
    }
}

/// A holder that excludes all others, and a waiter of one kind.
type Pair = fn(&Session, &Session) -> (Box<dyn DistributedLock>, Box<dyn DistributedLock>);

const PAIRS: [(&str, Pair); 3] = [
    ("mutex", |holding, waiting| {
        (Box::new(mutex(holding)), Box::new(mutex(waiting)))
    }),
    ("reader", |holding, waiting| {
        let of = |session| InterProcessReadWriteLock::new(session, PATH).unwrap();
        (
            Box::new(of(holding).write_lock()),
            Box::new(of(waiting).read_lock()),
        )
    }),
    ("writer", |holding, waiting| {
        let of = |session| InterProcessReadWriteLock::new(session, PATH).unwrap();
        (
            Box::new(of(holding).write_lock()),
            Box::new(of(waiting).write_lock()),
        )
    }),
];

/// etcd#9921, etcd#10111, etcd#16221, CURATOR-307.
#[tokio::test(start_paused = true)]
async fn waiter_that_expires_while_it_is_granted_has_no_valid_guard_without_a_node() {
    for (kind, pair) in PAIRS {
        for (expires_first, steps) in (0..60).map(|n| (n < 30, n % 30)) {
            let ensemble = MemoryEnsemble::new();
            let (holding, waiting) = (ensemble.session(), ensemble.session());
            let (holder, waiter) = pair(&holding, &waiting);
            let held = holder.acquire().await.unwrap();
            let granted = tokio::spawn(async move { waiter.acquire().await.unwrap() });
            TestEnsemble::Memory(ensemble.clone())
                .await_children(PATH, 2)
                .await;
            let expiring = waiting.session_id().unwrap();
            let release = held.release();
            if expires_first {
                ensemble.expire(expiring);
                pass(steps).await;
                release.await.unwrap();
            } else {
                let released = tokio::spawn(release);
                pass(steps).await;
                ensemble.expire(expiring);
                released.await.unwrap().unwrap();
            }
            let case = format!("{kind}, expires first: {expires_first}, after {steps} steps");
            let granted = tokio::time::timeout(PATIENCE, granted).await;
            let granted = granted.unwrap_or_else(|_| panic!("{case}: hangs")).unwrap();
            if expires_first {
                check_valid(&ensemble, &granted, &case);
            }
            // A waiter that was granted before it expired learns of it.
            tokio::time::sleep(PATIENCE).await;
            check_valid(&ensemble, &granted, &case);
            drop(granted);
            TestEnsemble::Memory(ensemble).await_children(PATH, 0).await;
        }
    }
}

/// A guard that reports to be valid has a node.
fn check_valid(ensemble: &MemoryEnsemble, guard: &LockGuard, case: &str) {
    let node = &guard.members()[0].node_path;
    assert_eq!(guard.is_valid(), ensemble.exists(node), "{case}");
}

/// go-zookeeper#229, zk-ruby#54, accumulo#637: the search for the node is lost as well.
#[tokio::test(start_paused = true)]
async fn create_whose_search_is_lost_too_leaves_one_node() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        for (lists, syncs) in [(1, 0), (3, 0), (0, 3), (3, 3)] {
            let ensemble = MemoryEnsemble::new();
            let session = ensemble.session();
            ensemble.create(PATH, b"").unwrap();
            let lose = |operation, times| {
                for _ in 0..times {
                    ensemble.lose_reply(session.session_id(), operation, lost);
                }
            };
            session.read("/").await.unwrap();
            ensemble.lose_reply(session.session_id(), Operation::Create, Lost::AfterCommit);
            lose(Operation::List, lists);
            lose(Operation::Sync, syncs);
            let held = mutex(&session).acquire().timeout(PATIENCE).await.unwrap();
            assert_eq!(ensemble.children(PATH).len(), 1, "{lost:?} {lists} {syncs}");
            held.release().await.unwrap();
            assert_eq!(ensemble.children(PATH), [""; 0], "{lost:?} {lists} {syncs}");
        }
    }
}

/// etcd#22082: the retry of an old release must not delete a lock that was acquired since.
#[tokio::test(start_paused = true)]
async fn release_that_is_pursued_spares_the_lock_that_was_acquired_since() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let old = mutex(&session).acquire().await.unwrap();
        ensemble.lose_reply(session.session_id(), Operation::Delete, lost);
        drop(old);
        let new = mutex(&session).acquire().await.unwrap();
        tokio::time::sleep(PATIENCE).await;
        assert!(new.is_valid(), "{lost:?}");
        new.verify().await.unwrap();
        assert_eq!(ensemble.children(PATH).len(), 1, "{lost:?}");
    }
}

/// CURATOR-205: a clean-up that fails goes on after the acquire was dropped.
#[tokio::test(start_paused = true)]
async fn dropped_waiter_whose_deletes_are_lost_again_and_again_leaves_nothing() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let ensemble = MemoryEnsemble::new();
        let (holding, waiting) = (ensemble.session(), ensemble.session());
        let held = mutex(&holding).acquire().await.unwrap();
        let waiter = mutex(&waiting);
        let waiter = tokio::spawn(waiter.acquire());
        let stage = TestEnsemble::Memory(ensemble.clone());
        stage.await_children(PATH, 2).await;
        for _ in 0..5 {
            ensemble.lose_reply(waiting.session_id(), Operation::Delete, lost);
        }
        waiter.abort();
        stage.await_children(PATH, 1).await;
        held.verify().await.unwrap();
    }
}

/// zk-ruby#49, aiozk#34: timeouts that occur together.
#[tokio::test(start_paused = true)]
async fn fifty_waiters_that_time_out_together_leave_the_lock_usable() {
    let ensemble = MemoryEnsemble::new();
    let sessions = [ensemble.session(), ensemble.session()];
    let held = mutex(&sessions[0]).acquire().await.unwrap();
    let waiters = (0..50).map(|n| {
        let lock = mutex(&sessions[n % 2]);
        tokio::spawn(lock.acquire().timeout(Duration::from_secs(1)))
    });
    for waited in join_all(waiters).await {
        let late = waited.unwrap().unwrap_err();
        assert!(
            matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
            "{late}"
        );
    }
    let stage = TestEnsemble::Memory(ensemble.clone());
    stage.await_children(PATH, 1).await;
    // The holder's watch on its own node.
    let watches = async || (ensemble.watch_count() == 1).then_some(());
    stage.until("no watch of a waiter", watches).await;
    held.release().await.unwrap();
    let next = mutex(&sessions[1]).try_acquire().await.unwrap();
    next.unwrap().release().await.unwrap();
}

/// CURATOR-41: an error in the clean-up does not hide the first error.
#[tokio::test(start_paused = true)]
async fn first_error_is_told_where_the_clean_up_fails_too() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    ensemble.create(PATH, b"").unwrap();
    ensemble.deny(PATH, Operation::List);
    ensemble.deny(PATH, Operation::Delete);
    let refused = mutex(&session).acquire().await.unwrap_err();
    let is_first = matches!(
        refused,
        Error::Acquire(AcquireError::NotAuthorized {
            step: Step::List,
            ..
        })
    );
    assert!(is_first, "{refused}");
    ensemble.allow_all();
    session.close().await;
    assert_eq!(ensemble.children(PATH), [""; 0]);
}

/// CURATOR-644, CURATOR-645: contenders that are cut off again and again keep their nodes.
#[tokio::test(start_paused = true)]
async fn fifty_reconnections_make_and_delete_no_node() {
    let ensemble = MemoryEnsemble::new();
    let sessions = [ensemble.session(), ensemble.session()];
    let held = mutex(&sessions[0]).acquire().await.unwrap();
    let waiter = mutex(&sessions[1]);
    let waiter = tokio::spawn(waiter.acquire());
    let queue = TestEnsemble::Memory(ensemble.clone())
        .await_children(PATH, 2)
        .await;
    ensemble.reset_requests();
    for _ in 0..50 {
        for session in &sessions {
            ensemble.disconnect(session.session_id().unwrap());
        }
        pass(100).await;
        for session in &sessions {
            ensemble.reconnect(session.session_id().unwrap());
        }
        pass(100).await;
    }
    assert_eq!(ensemble.request_count(Operation::Create), 0);
    assert_eq!(ensemble.request_count(Operation::Delete), 0);
    assert_eq!(ensemble.children(PATH), queue);
    assert_eq!(held.state(), GuardState::Held);
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}
