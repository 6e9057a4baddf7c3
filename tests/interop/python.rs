//! The same locks, acquired by this library and by kazoo: under Curator's names, and a mutex under
//! its own.

use lock_recipes::InterProcessReadWriteLock;
use test_rig::{ForeignPeer, Naming};

use crate::curator::{PATH, PATIENCE};
use crate::foreign::{self, Stage};
use crate::peers_fail_here::soon;

async fn kazoo() -> ForeignPeer {
    ForeignPeer::kazoo().await.unwrap()
}

async fn stage(naming: Naming) -> Stage {
    Stage::set_up(kazoo().await, naming).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other_under_curators_names() {
    foreign::each_waits_for_the_other(stage(Naming::Curator).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other_under_kazoos_own_names() {
    foreign::each_waits_for_the_other(stage(Naming::Counting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_of_ours_and_eight_of_kazoos_share_one_queue_under_curators_names() {
    foreign::share_one_queue(stage(Naming::Curator).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_of_ours_and_eight_of_kazoos_share_one_queue_under_kazoos_own_names() {
    foreign::share_one_queue(stage(Naming::Counting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_locks_pass_from_one_to_the_other() {
    let peers = [kazoo().await, kazoo().await];
    foreign::lost_locks_pass_from_one_to_the_other(peers, Naming::Counting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_gives_up_is_passed() {
    foreign::waiter_that_gives_up_is_passed(stage(Naming::Counting).await).await;
}

/// Their reader joins ours, and writers of both wait for the other's readers and writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_both_share_a_lock_under_curators_names() {
    let stage = stage(Naming::Curator).await;
    let Stage { ensemble, peer, .. } = &stage;
    let lock = InterProcessReadWriteLock::new(&stage.ours, PATH).unwrap();
    for (name, naming) in [("r", Naming::CuratorRead), ("w", Naming::CuratorWrite)] {
        peer.lock(name, "c", PATH, naming).await.unwrap();
    }

    let ours = lock.read().await.unwrap();
    assert!(peer.acquire("t", "r", Some(PATIENCE)).await.unwrap());
    assert!(lock.try_write().await.unwrap().is_none());
    let theirs = peer.acquire("u", "w", None);
    ensemble.await_children(PATH, 3).await;
    // Readers queue after the writer.
    let late = tokio::spawn(lock.read());
    ensemble.await_children(PATH, 4).await;
    ours.release().await.unwrap();
    ensemble.await_children(PATH, 3).await;
    assert!(!late.is_finished());
    peer.release("t", "r").await.unwrap();
    assert!(soon(theirs).await.unwrap());
    assert!(!late.is_finished());
    peer.release("u", "w").await.unwrap();
    soon(late).await.unwrap().unwrap().release().await.unwrap();

    // A downgrade leaves no gap for their writer.
    let writer = lock.write().await.unwrap();
    let theirs = peer.acquire("u", "w", None);
    ensemble.await_children(PATH, 2).await;
    let reader = writer.downgrade().await.unwrap();
    ensemble.await_children(PATH, 2).await;
    reader.verify().await.unwrap();
    assert_eq!(ensemble.children(PATH).await.len(), 2);
    reader.release().await.unwrap();
    assert!(soon(theirs).await.unwrap());
    peer.release("u", "w").await.unwrap();
}

/// A writer of kazoo's has the name of its mutex. Next to a read/write lock of ours it is a node of
/// another recipe, so nobody takes it for a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_of_ours_waits_for_a_writer_of_kazoos() {
    let stage = stage(Naming::OwnWrite).await;
    stage.theirs("w").await;
    assert!(stage.peer.acquire("t", "w", None).await.unwrap());
    let lock = stage.mutex();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 2).await;
    stage.peer.release("t", "w").await.unwrap();
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}
