//! A semaphore shared with Curator.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_recipes::{InterProcessSemaphore, InterProcessSemaphoreMutex};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{PATH, PATIENCE, Stage};

const LOCKS: &str = "/locks/orders/locks";
const LEASES: &str = "/locks/orders/leases";

impl Stage {
    /// Our semaphore on the path of Curator's `s`.
    async fn semaphore(&self, permits: u32) -> InterProcessSemaphore {
        let made = self.curator.semaphore("s", "c", PATH, permits).await;
        made.unwrap();
        InterProcessSemaphore::new(&self.ours, PATH, permits as usize).unwrap()
    }

    /// Makes directories that the server does not remove when they are empty. It looks every half a second, and on a busy machine
    /// Curator, which makes a missing directory only once, may find its new one gone.
    async fn directories_that_stay(&self) {
        for path in [LOCKS, LEASES] {
            self.ensemble.create(path, b"").await;
        }
    }

    async fn none_is_left(&self) {
        self.ensemble.await_children(LOCKS, 0).await;
        self.ensemble.await_children(LEASES, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_waits_for_a_permit_of_ours_and_we_for_one_of_curators() {
    let stage = Stage::set_up().await;
    let (curator, ours) = (&stage.curator, stage.semaphore(2).await);
    let both = ours.acquire_many(2).unwrap().await.unwrap();
    let theirs = curator.acquire("t", "s", None);
    // Curator has the mutex and a lease, and watches the leases.
    stage.ensemble.await_children(LEASES, 3).await;
    assert!(!curator.held("s").await.unwrap());
    both.release().await.unwrap();
    assert!(timeout(PATIENCE, theirs).await.unwrap().unwrap());
    let lease = curator.lock_path("t", "s").await.unwrap().unwrap();
    let shown = ours.participants().await.unwrap();
    assert!(shown[0].path.ends_with(&lease), "{lease} in {shown:?}");

    assert!(curator.acquire("t", "s", None).await.unwrap());
    assert!(ours.try_acquire().await.unwrap().is_none());
    let waiting = {
        let ours = ours.clone();
        tokio::spawn(async move { ours.acquire().await.unwrap() })
    };
    stage.ensemble.await_children(LEASES, 3).await;
    curator.release("t", "s").await.unwrap();
    let permit = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    let tried = curator.acquire("t", "s", Some(std::time::Duration::from_millis(50)));
    assert!(!tried.await.unwrap());
    curator.release("t", "s").await.unwrap();
    permit.release().await.unwrap();
    stage.none_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_and_we_stand_in_one_queue_for_permits() {
    let stage = Stage::set_up().await;
    let (curator, ours) = (&stage.curator, stage.semaphore(1).await);
    let first = ours.acquire().await.unwrap();
    let second = curator.acquire("t2", "s", None);
    stage.ensemble.await_children(LOCKS, 1).await;
    let third = {
        let ours = ours.clone();
        tokio::spawn(async move { ours.acquire().await.unwrap() })
    };
    stage.ensemble.await_children(LOCKS, 2).await;
    let fourth = curator.acquire("t4", "s", None);
    stage.ensemble.await_children(LOCKS, 3).await;
    first.release().await.unwrap();
    assert!(timeout(PATIENCE, second).await.unwrap().unwrap());
    assert!(!third.is_finished());
    curator.release("t2", "s").await.unwrap();
    let third = timeout(PATIENCE, third).await.unwrap().unwrap();
    third.release().await.unwrap();
    assert!(timeout(PATIENCE, fourth).await.unwrap().unwrap());
    curator.release("t4", "s").await.unwrap();
    stage.none_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_three_of_ours_and_curators_together() {
    const PERMITS: usize = 3;
    const ROUNDS: usize = 40;
    let stage = Stage::set_up().await;
    stage.directories_that_stay().await;
    let ours = stage.semaphore(3).await;
    let curator = Arc::new(stage.curator);
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut contenders = JoinSet::new();
    for number in 0..8 {
        let (ours, curator) = (ours.clone(), Arc::clone(&curator));
        let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
        let enter = move |count: usize| {
            let now = inside.fetch_add(count, Ordering::SeqCst) + count;
            assert!(now <= PERMITS, "{now} permits are held");
            most.fetch_max(now, Ordering::SeqCst);
            let inside = Arc::clone(&inside);
            move || inside.fetch_sub(count, Ordering::SeqCst)
        };
        contenders.spawn(async move {
            let thread = format!("t{number}");
            for round in 0..ROUNDS {
                if number % 2 == 0 {
                    let count = 1 + (number + round) % PERMITS;
                    let permits = ours.acquire_many(count).unwrap();
                    let permits = timeout(PATIENCE, permits).await.unwrap().unwrap();
                    let leave = enter(count);
                    tokio::task::yield_now().await;
                    leave();
                    permits.release().await.unwrap();
                } else {
                    let granted = curator.acquire(&thread, "s", None);
                    assert!(timeout(PATIENCE, granted).await.unwrap().unwrap());
                    let leave = enter(1);
                    tokio::task::yield_now().await;
                    leave();
                    curator.release(&thread, "s").await.unwrap();
                }
            }
            number
        });
    }
    let mut through = BTreeSet::new();
    while let Some(number) = contenders.join_next().await {
        through.insert(number.unwrap());
    }
    assert_eq!(through.len(), 8);
    assert_eq!(most.load(Ordering::SeqCst), PERMITS, "never full");
    stage.ensemble.await_children(LOCKS, 0).await;
    stage.ensemble.await_children(LEASES, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphore_mutex_excludes_curators() {
    let stage = Stage::set_up().await;
    let curator = &stage.curator;
    curator.semaphore_mutex("sm", "c", PATH).await.unwrap();
    let ours = InterProcessSemaphoreMutex::new(&stage.ours, PATH).unwrap();
    let held = ours.acquire().await.unwrap();
    let theirs = curator.acquire("t", "sm", None);
    stage.ensemble.await_children(LEASES, 2).await;
    held.release().await.unwrap();
    assert!(timeout(PATIENCE, theirs).await.unwrap().unwrap());
    assert!(ours.try_acquire().await.unwrap().is_none());
    curator.release("t", "sm").await.unwrap();
    let again = timeout(PATIENCE, ours.acquire()).await.unwrap().unwrap();
    again.release().await.unwrap();
    stage.none_is_left().await;
}
