//! Runtimes that end before the sessions and guards on them.

use std::thread;
use std::time::Duration;

use lock_recipes::{AcquireError, Error, LostReason, MutexGuard, Session, ZooKeeper};
use tokio::runtime::{Builder, Runtime};

use crate::{LONG, PATH, SHORT, assert_nothing_left, mutex, server, session, start};

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// A holder on a runtime of its own.
fn holder(connect_string: String, timeout: Duration) -> (Runtime, Session, MutexGuard) {
    let own = runtime();
    let (session, guard) = own.block_on(async {
        let options = ZooKeeper::builder().session_timeout(timeout);
        let session = options.connect(&connect_string).await.unwrap();
        let guard = mutex(&session).acquire().await.unwrap();
        (session, guard)
    });
    (own, session, guard)
}

/// No task is left to delete the node. The ensemble deletes it when the session times out. The
/// guard is invalid at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_that_is_shut_down_loses_its_locks_at_once_and_hangs_nobody() {
    let ensemble = start().await;
    let connect_string = server(&ensemble).connect_string();
    let holding = thread::spawn(move || {
        let (own, session, guard) = holder(connect_string, SHORT);
        own.shutdown_timeout(Duration::from_secs(5));
        (session, guard)
    });
    let (session_of_it, guard) = holding.join().unwrap();
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::SessionClosed);
    assert!(!guard.is_valid());
    let late = mutex(&session_of_it).acquire().await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::SessionClosed { .. })),
        "{late}"
    );
    assert!(
        guard
            .transaction()
            .set("/guarded", "late")
            .commit()
            .await
            .is_err()
    );

    let other = session(&ensemble, LONG).await;
    let next = mutex(&other).acquire().timeout(LONG).await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    guard.release().await.unwrap_err();
    session_of_it.close().await;
    next.release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_dropped_outside_a_runtime_is_released_by_the_session() {
    let ensemble = start().await;
    let session = session(&ensemble, LONG).await;
    let guard = mutex(&session).acquire().await.unwrap();
    let dropping = thread::spawn(move || drop(guard));
    dropping.join().unwrap();
    // Much earlier than the session could expire.
    ensemble.await_children(PATH, 0).await;
    assert_eq!(session.epoch(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_dropped_after_its_runtime_goes_with_the_session() {
    let ensemble = start().await;
    let connect_string = server(&ensemble).connect_string();
    let dropping = thread::spawn(move || {
        let (own, session, guard) = holder(connect_string, SHORT);
        drop(own);
        drop(guard);
        drop(session);
    });
    dropping.join().unwrap();
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}
