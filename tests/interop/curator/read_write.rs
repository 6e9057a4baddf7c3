//! The read/write lock shared with Curator.

use std::time::Duration;

use futures::future::try_join_all;
use lock_recipes::InterProcessReadWriteLock;
use test_rig::{Grant, GrantKind, ReadWriteMix, check_grants};
use tokio::time::timeout;
use zookeeper_client::Client;

use super::{PATH, PATIENCE, Stage, count, increment, sequence};
use crate::is_older_than;

const COUNTERS: [&str; 2] = ["/first", "/second"];

impl Stage {
    /// Our lock on the path of Curator's `rw.read` and `rw.write`.
    async fn read_write(&self) -> InterProcessReadWriteLock {
        self.curator.read_write_lock("rw", "c", PATH).await.unwrap();
        InterProcessReadWriteLock::new(&self.ours, PATH).unwrap()
    }
}

/// Does what the peer's threads do: writers raise both counters, readers find them equal.
async fn contend(lock: InterProcessReadWriteLock, store: Client, rounds: u32) -> Vec<Grant> {
    let mut grants = Vec::new();
    for round in 0..rounds {
        let (kind, value, guard): (_, _, lock_recipes::LockGuard) = if round % 5 == 0 {
            let guard = lock.write().await.unwrap();
            let value = increment(&store, COUNTERS[0]).await;
            assert_eq!(increment(&store, COUNTERS[1]).await, value, "torn");
            (GrantKind::Exclusive, value, guard.into())
        } else {
            let guard = lock.read().await.unwrap();
            let value = count(&store, COUNTERS[0]).await;
            assert_eq!(count(&store, COUNTERS[1]).await, value, "torn");
            (GrantKind::Shared, value, guard.into())
        };
        let sequence = sequence(&guard.members()[0].node_path);
        grants.push(Grant {
            kind,
            value,
            sequence,
        });
        guard.release().await.unwrap();
    }
    grants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_of_ours_and_four_of_curators_read_and_write_in_one_queue() {
    let stage = Stage::set_up().await;
    let lock = stage.read_write().await;
    let store = stage.counter(COUNTERS[0]).await;
    stage.counter(COUNTERS[1]).await;
    // The server would delete a container between two grants, and count from 0 again.
    stage.ensemble.create(PATH, b"").await;

    // The lock is held until all contenders are in the queue.
    let held = lock.write().await.unwrap();
    let mix = ReadWriteMix {
        rounds: 252,
        threads: 4,
        write_percent: 20,
        seed: 7,
    };
    let theirs = stage.curator.contend_read_write("c", PATH, COUNTERS, mix);
    let ours: Vec<_> = (0..4)
        .map(|_| tokio::spawn(contend(lock.clone(), store.clone(), 63)))
        .collect();
    stage.ensemble.await_children(PATH, 9).await;
    held.release().await.unwrap();

    let ours: Vec<Grant> = try_join_all(ours)
        .await
        .unwrap()
        .into_iter()
        .flatten()
        .collect();
    let theirs = theirs.await.unwrap().grants;
    let all = [ours, theirs].concat();
    assert_eq!(all.len(), 504);
    check_grants(0, &all).unwrap();
    let writes = all
        .iter()
        .filter(|grant| grant.kind == GrantKind::Exclusive)
        .count();
    assert_eq!(
        count(&store, COUNTERS[0]).await,
        u64::try_from(writes).unwrap()
    );
    assert!(stage.ensemble.children(PATH).await.is_empty());
}

/// The same script on both: write, another writer queues, read, release the write lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_queued_before_a_downgrade_waits_with_us_and_gets_in_with_curator_5_4() {
    let stage = Stage::set_up().await;
    let lock = stage.read_write().await;

    // Our writer downgrades, and Curator's writer waits.
    let writer = lock.write().await.unwrap();
    let queued = stage.curator.acquire("t", "rw.write", Some(PATIENCE));
    stage.ensemble.await_children(PATH, 2).await;
    let reader = writer.downgrade().await.unwrap();
    stage.ensemble.await_children(PATH, 2).await;
    let early = stage
        .curator
        .acquire("u", "rw.read", Some(Duration::from_millis(100)));
    assert!(!early.await.unwrap(), "a reader overtook the queued writer");
    assert!(!stage.curator.held("rw.write").await.unwrap());
    reader.verify().await.unwrap();
    reader.release().await.unwrap();
    assert!(queued.await.unwrap());
    stage.curator.release("t", "rw.write").await.unwrap();

    // Curator downgrades. Before 5.5.0 its reader queues after our writer, which is granted while it
    // reads. CURATOR-621 gives it the place of its writer.
    assert!(stage.curator.acquire("t", "rw.write", None).await.unwrap());
    let mut queued = tokio::spawn(lock.write());
    stage.ensemble.await_children(PATH, 2).await;
    assert!(stage.curator.acquire("t", "rw.read", None).await.unwrap());
    stage.curator.release("t", "rw.write").await.unwrap();
    let writer = match is_older_than(&stage.curator, [5, 5]) {
        true => {
            let writer = queued.await.unwrap().unwrap();
            let is_held = stage.curator.held("rw.read").await.unwrap();
            assert!(is_held, "so both are inside");
            stage.curator.release("t", "rw.read").await.unwrap();
            writer
        }
        false => {
            let early = timeout(Duration::from_secs(1), &mut queued).await;
            assert!(early.is_err(), "{early:?}");
            assert!(stage.curator.held("rw.read").await.unwrap());
            stage.curator.release("t", "rw.read").await.unwrap();
            queued.await.unwrap().unwrap()
        }
    };
    writer.release().await.unwrap();
    assert!(stage.ensemble.children(PATH).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_both_hold_together_and_writers_of_both_wait_for_them() {
    let stage = Stage::set_up().await;
    let lock = stage.read_write().await;
    let ours = lock.read().await.unwrap();
    assert!(
        stage
            .curator
            .acquire("t", "rw.read", Some(PATIENCE))
            .await
            .unwrap()
    );
    assert!(lock.try_write().await.unwrap().is_none());
    let refused = stage
        .curator
        .acquire("u", "rw.write", Some(Duration::from_millis(50)));
    assert!(!refused.await.unwrap());

    let theirs = stage.curator.participants("rw.read").await.unwrap();
    let listed = lock.read_participants().await.unwrap();
    assert_eq!(
        listed.into_iter().map(|it| it.path).collect::<Vec<_>>(),
        theirs
    );
    assert_eq!(theirs.len(), 2);

    let queued = tokio::spawn(lock.write());
    stage.ensemble.await_children(PATH, 3).await;
    ours.release().await.unwrap();
    stage.ensemble.await_children(PATH, 2).await;
    assert!(!queued.is_finished());
    stage.curator.release("t", "rw.read").await.unwrap();
    let writer = queued.await.unwrap().unwrap();
    let theirs = stage.curator.acquire("t", "rw.read", Some(PATIENCE));
    stage.ensemble.await_children(PATH, 2).await;
    writer.release().await.unwrap();
    assert!(theirs.await.unwrap());
    stage.curator.release("t", "rw.read").await.unwrap();
}
