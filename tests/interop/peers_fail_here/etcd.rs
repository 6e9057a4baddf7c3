//! Faults of the mutex of Go's `concurrency` 3.5.

use lock_recipes::{Error, InterProcessMutex, ReleaseError};

use super::{MOMENT, mutex, soon};
use crate::etcd::{PATH as THEIRS, Stage};

const OURS: &str = "/orders/ours";

impl Stage {
    /// A lock of ours on the path of Go's.
    fn on_theirs(&self) -> InterProcessMutex {
        mutex(&self.ours, THEIRS)
    }

    async fn delete(&self, key: &str) {
        let deleted = self.server.command(&["del", key]).await.unwrap();
        assert_eq!(deleted.trim(), "1", "{key}");
    }

    async fn end(&self, session: i64) {
        let lease = format!("{session:x}");
        let revoke = ["lease", "revoke", &lease];
        self.server.command(&revoke).await.unwrap();
    }

    /// Waits until the lock has so many contenders.
    async fn contenders(&self, path: &str, count: usize) {
        let lock = mutex(&self.ours, path);
        while soon(lock.participants()).await.unwrap().len() != count {
            tokio::task::yield_now().await;
        }
    }
}

/// The key of a node of ours, whose number is no part of it.
fn key(node_path: &str) -> &str {
    node_path.trim_end_matches(|it: char| it.is_ascii_digit())
}

#[tokio::test]
async fn release_of_a_lost_lock_returns_no_error_where_ours_says_so() {
    let stage = Stage::set_up().await;
    assert!(stage.go.try_acquire("t", "go").await.unwrap());
    stage.end(stage.go.session("go").await.unwrap()).await;
    let next = soon(stage.on_theirs().acquire()).await.unwrap();
    stage.go.release("t", "go").await.unwrap();
    next.verify().await.unwrap();

    let held = mutex(&stage.ours, OURS).acquire().await.unwrap();
    stage.end(stage.ours.session_id().unwrap()).await;
    soon(held.lost()).await;
    let released = held.release().await;
    assert!(
        matches!(released, Err(Error::Release(ReleaseError::Lost(_)))),
        "{released:?}"
    );
}

#[tokio::test]
async fn holder_whose_key_is_deleted_is_not_notified_where_ours_is() {
    let stage = Stage::set_up().await;
    assert!(stage.go.try_acquire("t", "go").await.unwrap());
    let theirs = stage.go.lock_path("t", "go").await.unwrap().unwrap();
    stage.delete(&theirs).await;
    let next = soon(stage.on_theirs().acquire()).await.unwrap();
    assert!(!stage.go.lost("go", MOMENT).await.unwrap(), "two holders");
    next.verify().await.unwrap();

    let held = mutex(&stage.ours, OURS).acquire().await.unwrap();
    stage.delete(key(&held.members()[0].node_path)).await;
    soon(held.lost()).await;
}

#[tokio::test]
async fn waiter_whose_key_is_deleted_fails_where_ours_queues_again() {
    let stage = Stage::set_up().await;
    let held = stage.on_theirs().acquire().await.unwrap();
    let waiting = stage.go.acquire("t", "go", None);
    stage.contenders(THEIRS, 2).await;
    let session = stage.go.session("go").await.unwrap();
    stage.delete(&format!("{THEIRS}/{session:x}")).await;
    held.release().await.unwrap();
    let failed = soon(waiting).await.unwrap_err().to_string();
    assert!(failed.contains("session is expired"), "{failed}");

    let lock = mutex(&stage.ours, OURS);
    let held = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(mutex(&stage.ours, OURS).acquire());
    stage.contenders(OURS, 2).await;
    let deleted = lock.participants().await.unwrap().swap_remove(1);
    stage.delete(key(&deleted.path)).await;
    held.release().await.unwrap();
    let granted = soon(waiter).await.unwrap().unwrap();
    assert_ne!(granted.members()[0].node_path, deleted.path);
    granted.verify().await.unwrap();
}

#[tokio::test]
async fn two_locks_of_one_session_both_hold_where_ours_exclude_each_other() {
    let stage = Stage::set_up().await;
    stage.go.lock("again", "go", THEIRS).await.unwrap();
    assert!(stage.go.try_acquire("t", "go").await.unwrap());
    assert!(stage.go.try_acquire("u", "again").await.unwrap());
    stage.go.release("t", "go").await.unwrap();
    let next = stage.on_theirs().try_acquire().await.unwrap();
    assert!(next.is_some(), "freed for both");

    let held = mutex(&stage.ours, OURS).acquire().await.unwrap();
    let again = mutex(&stage.ours, OURS).try_acquire().await.unwrap();
    assert!(again.is_none());
    held.release().await.unwrap();
}

#[tokio::test]
async fn lock_above_another_one_waits_for_it_where_ours_does_not() {
    let stage = Stage::set_up().await;
    let below = mutex(&stage.ours, OURS).acquire().await.unwrap();
    stage.go.lock("above", "go", "/orders").await.unwrap();
    assert!(!stage.go.try_acquire("t", "above").await.unwrap());
    let above = mutex(&stage.ours, "/orders").try_acquire().await.unwrap();
    assert!(above.is_some());
    below.release().await.unwrap();
}
