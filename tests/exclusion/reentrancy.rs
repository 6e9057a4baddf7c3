//! Owners that re-enter a lock, and those that must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use lock_recipes::{InterProcessMutex, LockFactory, MutexGuard, Owner, Session};
use test_rig::{TestEnsemble, on_ensembles_of_their_own, on_every_ensemble};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// Detects two tasks that hold at once, independently of the lock.
#[derive(Clone, Debug, Default)]
struct Room {
    inside: Arc<AtomicUsize>,
    visits: Arc<AtomicUsize>,
}

impl Room {
    async fn visit(&self) {
        assert_eq!(
            self.inside.fetch_add(1, Ordering::SeqCst),
            0,
            "two are inside"
        );
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether another contender would have to wait.
async fn is_held(session: &Session) -> bool {
    mutex(session).try_acquire().await.unwrap().is_none()
}

on_every_ensemble!(
    named_owner_and_reenter_share_the_hold_without_a_scope,
    another_owner_waits,
    guard_moved_to_another_task_and_dropped_there_releases,
    branches_of_a_join_exclude_each_other,
    loop_that_acquires_and_spawns_excludes_its_tasks,
    handle_shared_by_tasks_excludes_them,
    handle_inside_a_local_mutex_excludes_others,
    spawned_task_does_not_inherit_the_scope,
    acquires_side_by_side_in_one_scope_have_one_node_at_a_time,
    acquires_side_by_side_in_one_scope_all_get_the_hold,
);
on_ensembles_of_their_own!(nested_acquires_of_one_scope_share_one_node_until_the_last_release);

async fn nested_acquires_of_one_scope_share_one_node_until_the_last_release(
    ensemble: TestEnsemble,
) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    let direct = mutex(&session);
    let from_factory = LockFactory::new(&session, "/locks")
        .unwrap()
        .mutex("orders")
        .unwrap();
    Owner::new()
        .scope(async {
            let first = direct.acquire().await.unwrap();
            let written = ensemble.zxid().await;
            let second = from_factory.acquire().await.unwrap();
            let third = direct.try_acquire().await.unwrap().unwrap();
            assert_eq!(ensemble.zxid().await, written);
            assert_eq!(ensemble.children(PATH).await.len(), 1);
            assert_eq!(first.hold_count(), 3);
            assert_eq!(first.fencing_token(), third.fencing_token());
            second.release().await.unwrap();
            first.release().await.unwrap();
            assert!(is_held(&other).await);
            assert_eq!(third.hold_count(), 1);
            third.release().await.unwrap();
            assert!(!is_held(&other).await);
        })
        .await;
    ensemble.await_children(PATH, 0).await;
}

async fn named_owner_and_reenter_share_the_hold_without_a_scope(ensemble: TestEnsemble) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    let owner = Owner::new();
    let first = mutex(&session).acquire().owner(&owner).await.unwrap();
    let second = mutex(&session)
        .try_acquire()
        .owner(&owner)
        .await
        .unwrap()
        .unwrap();
    let third = second.reenter().unwrap();
    let fourth = mutex(&session)
        .acquire()
        .owner(&owner)
        .timeout(Duration::from_millis(1))
        .await
        .unwrap();
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    assert_eq!(fourth.hold_count(), 4);
    drop(first);
    drop(fourth);
    second.release().await.unwrap();
    assert!(is_held(&other).await);
    third.release().await.unwrap();
    assert!(!is_held(&other).await);
}

async fn another_owner_waits(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (one, another) = (Owner::new(), Owner::new());
    let held = mutex(&session).acquire().owner(&one).await.unwrap();
    assert!(
        mutex(&session)
            .try_acquire()
            .owner(&another)
            .await
            .unwrap()
            .is_none()
    );
    assert!(mutex(&session).is_acquired_in_this_process());
    let lock = mutex(&session);
    let waiter = tokio::spawn(lock.acquire().owner(&another));
    ensemble.await_children(PATH, 2).await;
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(!mutex(&session).is_acquired_in_this_process());
}

async fn guard_moved_to_another_task_and_dropped_there_releases(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    tokio::spawn(async move { drop(held) }).await.unwrap();
    mutex(&session)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    ensemble.await_children(PATH, 0).await;
}

async fn branches_of_a_join_exclude_each_other(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (lock, room) = (mutex(&session), Room::default());
    let branch = async || {
        let guard = lock.acquire().await.unwrap();
        room.visit().await;
        guard.release().await.unwrap();
    };
    tokio::join!(branch(), branch(), branch());
    assert_eq!(room.visits.load(Ordering::SeqCst), 3);
}

async fn loop_that_acquires_and_spawns_excludes_its_tasks(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (lock, room) = (mutex(&session), Room::default());
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let guard = lock.acquire().await.unwrap();
        let room = room.clone();
        tasks.push(tokio::spawn(async move {
            room.visit().await;
            guard.release().await.unwrap();
        }));
    }
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    assert_eq!(room.visits.load(Ordering::SeqCst), 4);
}

async fn handle_shared_by_tasks_excludes_them(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (lock, room) = (Arc::new(mutex(&session)), Room::default());
    let tasks = (0..8).map(|_| {
        let (lock, room) = (Arc::clone(&lock), room.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            room.visit().await;
            guard.release().await.unwrap();
        })
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    assert_eq!(room.visits.load(Ordering::SeqCst), 8);
}

async fn handle_inside_a_local_mutex_excludes_others(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (local, room) = (
        Arc::new(tokio::sync::Mutex::new(mutex(&session))),
        Room::default(),
    );
    let tasks = (0..8).map(|_| {
        let (local, room) = (Arc::clone(&local), room.clone());
        tokio::spawn(async move {
            let guard = local.lock().await.acquire().await.unwrap();
            room.visit().await;
            guard.release().await.unwrap();
        })
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    assert_eq!(room.visits.load(Ordering::SeqCst), 8);
}

async fn spawned_task_does_not_inherit_the_scope(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let owner = Owner::new();
    let inherited = owner
        .scope(async {
            let held = lock.acquire().await.unwrap();
            let lock = lock.clone();
            let tried = tokio::spawn(async move {
                assert_eq!(Owner::current(), None);
                lock.try_acquire().await.unwrap().is_some()
            });
            let tried = tried.await.unwrap();
            held.release().await.unwrap();
            tried
        })
        .await;
    assert!(!inherited);
}

async fn acquires_side_by_side_in_one_scope_have_one_node_at_a_time(ensemble: TestEnsemble) {
    let (holding, session) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&session);
    Owner::new()
        .scope(async {
            let mut second = Box::pin(lock.acquire());
            {
                let mut first = Box::pin(lock.acquire());
                ensemble
                    .until("one node for both", async || {
                        assert!(poll!(&mut first).is_pending());
                        assert!(poll!(&mut second).is_pending());
                        (ensemble.children(PATH).await.len() == 2).then_some(())
                    })
                    .await;
                // The first waiter, which has the node, is dropped here.
            }
            ensemble.await_children(PATH, 1).await;
            // The second, which waited for the first, queues up by itself.
            ensemble
                .until("a node of the second", async || {
                    assert!(poll!(&mut second).is_pending());
                    (ensemble.children(PATH).await.len() == 2).then_some(())
                })
                .await;
            held.release().await.unwrap();
            let guard: MutexGuard = second.await.unwrap();
            assert_eq!(guard.hold_count(), 1);
            guard.release().await.unwrap();
        })
        .await;
    ensemble.await_children(PATH, 0).await;
}

async fn acquires_side_by_side_in_one_scope_all_get_the_hold(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    Owner::new()
        .scope(async {
            let (one, two, three) =
                tokio::join!(lock.acquire(), lock.try_acquire(), lock.acquire());
            let guards: Vec<_> = [Some(one.unwrap()), two.unwrap(), Some(three.unwrap())]
                .into_iter()
                .flatten()
                .collect();
            assert_eq!(guards[0].hold_count(), guards.len());
            assert_eq!(ensemble.children(PATH).await.len(), 1);
        })
        .await;
    ensemble.await_children(PATH, 0).await;
}

mod self_wait {
    use test_rig::MemoryEnsemble;

    use super::*;
    use crate::log::{Log, logging};

    /// Waits this long for a lock that the first given task holds. Returns what was logged.
    async fn logged_while_waiting(waited: Duration, by_another_task: bool) -> Log {
        let (log, _logging) = logging();
        let session = MemoryEnsemble::new().session();
        let (lock, _held) = (mutex(&session), mutex(&session).acquire().await.unwrap());
        let acquire = async move { lock.acquire().timeout(waited).await.unwrap_err() };
        if by_another_task {
            tokio::spawn(acquire).await.unwrap();
        } else {
            acquire.await;
        }
        log
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_waits_for_itself_is_warned_after_five_seconds() {
        let log = logged_while_waiting(Duration::from_secs(6), false).await;
        let warning = log.lines("WARN").remove(0);
        assert!(
            warning.contains("Owner::scope") && warning.contains(PATH),
            "{warning}"
        );
        let log = logged_while_waiting(Duration::from_secs(4), false).await;
        assert!(!log.text().contains("Owner::scope"), "{}", log.text());
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_waits_for_another_is_not_warned() {
        let log = logged_while_waiting(Duration::from_secs(60), true).await;
        assert!(!log.text().contains("Owner::scope"), "{}", log.text());
    }
}
