//! The contract that every exclusive, reentrant lock must pass, however it is built.
//!
//! It follows Curator's `TestInterProcessMutexBase`, which Curator runs against all its locks.
//! Tests that come from there name the original. [`lock_contract!`](crate::lock_contract) makes
//! tests of the functions here.

#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a contract that is not kept has failed its test"
)]

use std::future::{Future, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use recipes_core::{
    AcquireError, DistributedLock, Error, LockGuard, Owner, ReleaseError, ReleaseOutcome, Session,
    SessionHealth,
};

use crate::memory::MemoryEnsemble;

/// How long a test waits for what must happen, on a busy machine: a server that is started again, and its quarantine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a test waits to see that something does not happen.
const IMPATIENCE: Duration = Duration::from_millis(50);

/// How often to look for it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// An ensemble on which the contract is tested, as its operator sees it. The methods panic if the
/// ensemble refuses.
pub trait Stage {
    /// Opens a session.
    fn session(&self) -> impl Future<Output = Session>;
    /// Names of the children of a node; none if it does not exist.
    fn children(&self, path: &str) -> impl Future<Output = Vec<String>>;
    /// Ends a session, as if it had timed out.
    fn expire(&self, session: &Session) -> impl Future<Output = ()>;
    /// Stops the ensemble, which keeps its data.
    fn stop(&self) -> impl Future<Output = ()>;
    /// Starts it again.
    fn start_again(&self) -> impl Future<Output = ()>;
    /// Waits until a container and its parents have been reaped.
    fn await_reaper(&self, path: &str) -> impl Future<Output = ()>;
}

impl Stage for MemoryEnsemble {
    fn session(&self) -> impl Future<Output = Session> {
        ready(self.session())
    }

    fn children(&self, path: &str) -> impl Future<Output = Vec<String>> {
        ready(self.children(path))
    }

    fn expire(&self, session: &Session) -> impl Future<Output = ()> {
        let id = session.session_id().unwrap();
        assert!(self.expire(id), "session has ended already");
        ready(())
    }

    fn stop(&self) -> impl Future<Output = ()> {
        self.stop();
        ready(())
    }

    fn start_again(&self) -> impl Future<Output = ()> {
        self.restart();
        ready(())
    }

    async fn await_reaper(&self, path: &str) {
        let top = path.split('/').nth(1).unwrap_or_default();
        while self.exists(&format!("/{top}")) {
            self.reap_containers();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

async fn until<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let looks = async {
        loop {
            match answer().await {
                Some(answer) => return answer,
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    };
    match tokio::time::timeout(PATIENCE, looks).await {
        Ok(answer) => answer,
        Err(_) => panic!("{what}: not after {PATIENCE:?}"),
    }
}

async fn await_children(ensemble: &impl Stage, path: &str, count: usize) {
    let what = format!("{count} children of {path}");
    until(&what, async || {
        (ensemble.children(path).await.len() == count).then_some(())
    })
    .await;
}

/// A kind of lock that must pass the contract.
#[derive(Clone, Copy, Debug)]
pub struct LockUnderTest {
    /// Makes a handle; all handles are of one lock.
    pub make: fn(&Session) -> Box<dyn DistributedLock>,
    /// The directories that its nodes are in.
    pub directories: &'static [&'static str],
}

impl LockUnderTest {
    async fn await_contenders(&self, ensemble: &impl Stage, count: usize) {
        for directory in self.directories {
            await_children(ensemble, directory, count).await;
        }
    }

    /// The directory of the first lock. A contender that holds some locks of a set may be waiting
    /// here.
    fn first_directory(&self) -> &'static str {
        self.directories.first().copied().unwrap_or("/")
    }

    /// Whether a contender in another session would have to wait.
    async fn is_held(&self, elsewhere: &Session) -> bool {
        (self.make)(elsewhere)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    }
}

async fn acquired(lock: &dyn DistributedLock) -> LockGuard {
    tokio::time::timeout(PATIENCE, lock.acquire())
        .await
        .unwrap()
        .unwrap()
}

/// Curator `testLocker`.
pub async fn guard_holds_until_it_is_released(ensemble: impl Stage, lock: LockUnderTest) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let guard = acquired(&*(lock.make)(&here)).await;
    assert!(guard.is_valid());
    assert!(lock.is_held(&elsewhere).await);
    let late = (lock.make)(&elsewhere)
        .acquire()
        .timeout(IMPATIENCE)
        .await
        .unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    guard.release().await.unwrap();
    // That of the late one may take a reconnect to go.
    lock.await_contenders(&ensemble, 0).await;
    assert!(!lock.is_held(&elsewhere).await);
    lock.await_contenders(&ensemble, 0).await;
}

/// A guard that goes out of scope, by return or by panic, releases the lock.
pub async fn guard_that_is_dropped_releases(ensemble: impl Stage, lock: LockUnderTest) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let handle = (lock.make)(&here);
    let panicked = tokio::spawn(async move {
        let _guard = handle.acquire().await.unwrap();
        panic!("on purpose");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    drop(acquired(&*(lock.make)(&elsewhere)).await);
    lock.await_contenders(&ensemble, 0).await;
}

/// Curator `testWaitingProcessKilledServer`.
pub async fn holder_and_waiter_survive_a_restart(ensemble: impl Stage, lock: LockUnderTest) {
    let session = ensemble.session().await;
    let guard = acquired(&*(lock.make)(&session)).await;
    let handle = (lock.make)(&session);
    let waiter = tokio::spawn(async move { acquired(&*handle).await });
    await_children(&ensemble, lock.first_directory(), 2).await;
    ensemble.stop().await;
    let mut health = session.watch_health();
    while session.health() == SessionHealth::Connected {
        health.changed().await;
    }
    ensemble.start_again().await;
    match guard.release().await {
        Ok(_) | Err(Error::Release(ReleaseError::Lost(_))) => {}
        Err(error) => panic!("{error}"),
    }
    waiter.await.unwrap().release().await.unwrap();
    lock.await_contenders(&ensemble, 0).await;
}

/// Curator `testKilledSession`.
pub async fn waiter_gets_the_lock_of_an_expired_session(ensemble: impl Stage, lock: LockUnderTest) {
    let session = ensemble.session().await;
    let guard = acquired(&*(lock.make)(&session)).await;
    let handle = (lock.make)(&session);
    let waiter = tokio::spawn(async move { acquired(&*handle).await });
    await_children(&ensemble, lock.first_directory(), 2).await;
    ensemble.expire(&session).await;
    let granted = waiter.await.unwrap();
    // The holder has not released, and is notified that the lock is lost.
    guard.lost().await;
    assert!(!guard.is_valid());
    assert!(granted.is_valid());
    drop(guard);
    granted.verify().await.unwrap();
    granted.release().await.unwrap();
    lock.await_contenders(&ensemble, 0).await;
}

/// Curator `testContainerCleanup`; the ensemble must reap.
pub async fn nothing_is_left_of_directories_that_are_not_used(
    ensemble: impl Stage,
    lock: LockUnderTest,
) {
    let session = ensemble.session().await;
    let users = (0..10).map(|_| {
        let handle = (lock.make)(&session);
        tokio::spawn(async move { acquired(&*handle).await.release().await.unwrap() })
    });
    for released in join_all(users).await {
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    }
    for directory in lock.directories {
        ensemble.await_reaper(directory).await;
    }
}

/// Curator `testWithNamespace`, for sessions that see only the nodes below `chroot`, and for others.
pub async fn lock_works_below_a_chroot(
    ensemble: impl Stage,
    (inside, chroot): (Session, &str),
    lock: LockUnderTest,
) {
    let outside = ensemble.session().await;
    let guard = acquired(&*(lock.make)(&inside)).await;
    for directory in lock.directories {
        await_children(&ensemble, &format!("{chroot}{directory}"), 1).await;
    }
    // The path is the same, but it is another lock.
    assert!(!lock.is_held(&outside).await);
    guard.release().await.unwrap();
}

/// Curator `testReentrantSingleLock`.
pub async fn handle_of_many_tasks_lets_in_one(ensemble: impl Stage, lock: LockUnderTest) {
    let session = ensemble.session().await;
    let handle: Arc<dyn DistributedLock> = (lock.make)(&session).into();
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks = (0..10).map(|_| {
        let (handle, inside) = (Arc::clone(&handle), Arc::clone(&inside));
        tokio::spawn(async move {
            let guard = acquired(&*handle).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.unwrap();
        })
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    lock.await_contenders(&ensemble, 0).await;
}

/// Curator `testReentrant2Threads`, with an assertion that can fail.
pub async fn one_owner_re_enters_while_another_waits(ensemble: impl Stage, lock: LockUnderTest) {
    let session = ensemble.session().await;
    let (one, another) = (Owner::new(), Owner::new());
    let handle = (lock.make)(&session);
    let first = handle.acquire().owner(&one).await.unwrap();
    let mut waiting = handle.acquire().owner(&another);
    until("a waiter", async || {
        assert!(poll!(&mut waiting).is_pending());
        (ensemble.children(lock.first_directory()).await.len() == 2).then_some(())
    })
    .await;
    let second = handle.acquire().owner(&one).await.unwrap();
    assert_eq!((first.hold_count(), second.hold_count()), (2, 2));
    first.release().await.unwrap();
    assert!(poll!(&mut waiting).is_pending());
    second.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    lock.await_contenders(&ensemble, 0).await;
}

/// Curator `testReentrant`.
pub async fn nested_holds_count_down(ensemble: impl Stage, lock: LockUnderTest) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let handle = (lock.make)(&here);
    Owner::new()
        .scope(async {
            let guards = [
                handle.acquire().await.unwrap(),
                handle.try_acquire().await.unwrap().unwrap(),
                handle.acquire().timeout(Duration::ZERO).await.unwrap(),
            ];
            lock.await_contenders(&ensemble, 1).await;
            for guard in guards {
                assert!(lock.is_held(&elsewhere).await);
                guard.release().await.unwrap();
            }
            assert!(!lock.is_held(&elsewhere).await);
        })
        .await;
}

/// Curator `test2Clients`.
pub async fn release_in_one_session_is_a_grant_in_another(
    ensemble: impl Stage,
    lock: LockUnderTest,
) {
    let sessions = [ensemble.session().await, ensemble.session().await];
    let mut held = acquired(&*(lock.make)(&sessions[0])).await;
    for session in sessions.iter().cycle().skip(1).take(6) {
        let handle = (lock.make)(session);
        let waiter = tokio::spawn(async move { acquired(&*handle).await });
        await_children(&ensemble, lock.first_directory(), 2).await;
        assert!(!waiter.is_finished());
        held.release().await.unwrap();
        held = waiter.await.unwrap();
    }
    held.release().await.unwrap();
    lock.await_contenders(&ensemble, 0).await;
}

/// Waiters that time out or are dropped leave the queue to the others.
pub async fn waiters_that_give_up_leave_nothing(ensemble: impl Stage, lock: LockUnderTest) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let guard = acquired(&*(lock.make)(&here)).await;
    let handle = (lock.make)(&elsewhere);
    {
        let mut dropped = handle.acquire();
        until("a waiter", async || {
            assert!(poll!(&mut dropped).is_pending());
            (ensemble.children(lock.first_directory()).await.len() == 2).then_some(())
        })
        .await;
    }
    let late = handle.acquire().timeout(IMPATIENCE).await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    assert!(handle.try_acquire().await.unwrap().is_none());
    lock.await_contenders(&ensemble, 1).await;
    guard.release().await.unwrap();
    lock.await_contenders(&ensemble, 0).await;
}

/// Makes the tests of the contract for one kind of lock, in memory.
///
/// ```ignore
/// lock_recipes::testing::lock_contract!(LockUnderTest {
///     make: |session| Box::new(InterProcessMutex::new(session, "/contract").unwrap()),
///     directories: &["/contract"],
/// });
/// ```
///
/// `lock_contract!(not_reentrant, ..)` is for a lock that no owner enters twice. The crate needs
/// tokio with the features `macros`, `rt` and `test-util`.
#[macro_export]
macro_rules! lock_contract {
    ($lock:expr) => {
        $crate::lock_contract!(@reentrant [$crate::lock_contract] [@in_memory] $lock);
    };
    (not_reentrant, $lock:expr) => {
        $crate::lock_contract!(@not_reentrant [$crate::lock_contract] [@in_memory] $lock);
    };
    // Calls a macro with each behaviour.
    (@reentrant $call:tt $first:tt $lock:expr) => {
        $crate::lock_contract!(@not_reentrant $call $first $lock);

        $crate::lock_contract!(@each $call $first $lock;
            one_owner_re_enters_while_another_waits
            nested_holds_count_down
        );
    };
    (@not_reentrant $call:tt $first:tt $lock:expr) => {
        $crate::lock_contract!(@each $call $first $lock;
            guard_holds_until_it_is_released
            guard_that_is_dropped_releases
            holder_and_waiter_survive_a_restart
            waiter_gets_the_lock_of_an_expired_session
            nothing_is_left_of_directories_that_are_not_used
            handle_of_many_tasks_lets_in_one
            release_in_one_session_is_a_grant_in_another
            waiters_that_give_up_leave_nothing
        );
    };
    (@each $call:tt $first:tt $lock:expr; $($name:ident)+) => {$(
        $crate::lock_contract!(@call $call $first $name $lock);
    )+};
    (@call [$($call:tt)+] [$($first:tt)*] $name:ident $lock:expr) => {
        $($call)+!($($first)* $name $lock);
    };
    (@in_memory $name:ident $lock:expr) => {
        mod $name {
            use super::*;

            #[tokio::test(start_paused = true)]
            async fn in_memory() {
                let ensemble = $crate::MemoryEnsemble::builder().without_session_timeout();
                $crate::contract::$name(ensemble.build(), $lock).await;
            }
        }
    };
}
