//! A scan of all locks below a node.
//!
//! ```sh
//! SCANNED_LOCKS=10000 cargo test -p tests --test inspect -- thousands --nocapture
//! ```
//!
//! Run so, the test prints how long the scan took and how much heap it needed. The heap is its own
//! only if no other test runs at the same time.

#![allow(clippy::print_stderr, reason = "what a scan costs is for people")]

use std::env;

use futures::future::join_all;
use lock_recipes::{InterProcessMutex, InterProcessReadWriteLock, Recipe, ZooKeeper, scan};
use test_rig::{Operation, TestEnsemble, ZooKeeperServer, on_every_ensemble};
use tokio::time::Instant;

use crate::HEAP;

/// The default number. It takes three seconds, most of them to acquire the locks.
const LOCKS: usize = 2_000;
/// How many locks are acquired together.
const AT_ONCE: usize = 200;

fn paths(seen: &lock_recipes::Scan) -> Vec<(&str, Recipe)> {
    let locks = seen.locks.iter();
    locks.map(|it| (it.path.as_str(), it.recipe)).collect()
}

on_every_ensemble!(locks_are_found_wherever_they_are_and_nothing_else);

async fn locks_are_found_wherever_they_are_and_nothing_else(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // A lock may be below another, and below a node that is named like a lock's node.
    let mut held = Vec::new();
    for path in ["/a", "/a/b", "/a/b/c/d", "/e/lock-0000000001/f"] {
        let lock = InterProcessMutex::new(&session, path).unwrap();
        held.push(lock.acquire().await.unwrap());
    }
    let settings = InterProcessReadWriteLock::new(&session, "/settings").unwrap();
    let reading = settings.read().await.unwrap();
    for path in [
        "/empty/lock",
        "/data/block-0000000001",
        "/data/lock-0000000002",
    ] {
        ensemble.create(path, b"not a lock").await;
    }
    let seen = scan(&session, "/").await.unwrap();
    assert_eq!(
        paths(&seen),
        [
            ("/a", Recipe::Mutex),
            ("/a/b", Recipe::Mutex),
            ("/a/b/c/d", Recipe::Mutex),
            ("/e/lock-0000000001/f", Recipe::Mutex),
            ("/settings", Recipe::ReadWrite),
        ]
    );
    assert!(seen.unreadable.is_empty(), "{seen:?}");
    let below = scan(&session, "/a/b").await.unwrap();
    assert_eq!(
        paths(&below),
        [("/a/b", Recipe::Mutex), ("/a/b/c/d", Recipe::Mutex)]
    );
    reading.release().await.unwrap();
    for held in held {
        held.release().await.unwrap();
    }
    assert!(scan(&session, "/").await.unwrap().locks.is_empty());
}

/// One request for each node that may have children, one for each that contends, and a `sync`.
#[tokio::test(start_paused = true)]
async fn each_directory_is_listed_and_each_contender_read_once() {
    let TestEnsemble::Memory(ensemble) = TestEnsemble::in_memory() else {
        unreachable!("it was made so")
    };
    let session = ensemble.session();
    let locks = (0..300).map(|it| InterProcessMutex::new(&session, &format!("/locks/{it}")));
    let locks: Vec<_> = locks.map(Result::unwrap).collect();
    let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
    ensemble.reset_requests();
    assert_eq!(scan(&session, "/").await.unwrap().locks.len(), 300);
    let requests = ensemble.requests();
    let count = |operation| {
        requests
            .iter()
            .filter(|it| it.operation == operation)
            .count()
    };
    // The root, `/locks`, and the locks.
    assert_eq!(count(Operation::List), 302);
    assert_eq!(count(Operation::Read), 300);
    assert_eq!(count(Operation::Sync), 1);
    assert_eq!(requests.len(), 603);
    drop(held);
}

#[tokio::test]
async fn chroot_hides_what_is_outside_of_it_on_a_real_server() {
    let ensemble = test_rig::own::on_a_real_server().await;
    ensemble.create("/app", b"").await;
    let inside = ensemble.session_below("/app", ZooKeeper::builder()).await;
    let outside = ensemble.session().await;
    let mut held = Vec::new();
    for (session, path) in [(&inside, "/locks/a"), (&outside, "/locks/b")] {
        let lock = InterProcessMutex::new(session, path).unwrap();
        held.push(lock.acquire().await.unwrap());
    }
    let seen = scan(&inside, "/").await.unwrap();
    assert_eq!(paths(&seen), [("/locks/a", Recipe::Mutex)]);
    assert!(
        seen.locks[0].contenders[0]
            .participant
            .path
            .starts_with("/locks/a/_c_")
    );
    let seen = scan(&outside, "/").await.unwrap();
    assert_eq!(
        paths(&seen),
        [("/app/locks/a", Recipe::Mutex), ("/locks/b", Recipe::Mutex)]
    );
    for held in held {
        held.release().await.unwrap();
    }
}

/// How many packets the server has had from its clients.
async fn received_by(server: &ZooKeeperServer) -> usize {
    let told = server.four_letter("mntr").await.unwrap();
    let received = told
        .lines()
        .find_map(|it| it.strip_prefix("zk_packets_received"));
    received.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_locks_are_scanned_with_two_requests_for_each_on_a_real_server() {
    let server = ZooKeeperServer::builder()
        .heap_mib(512)
        .start()
        .await
        .unwrap();
    let session = ZooKeeper::connect(&server.connect_string()).await.unwrap();
    let count = env::var("SCANNED_LOCKS").map_or(LOCKS, |it| it.parse().unwrap());
    let mut held = Vec::with_capacity(count);
    for start in (0..count).step_by(AT_ONCE) {
        let some = (start..count.min(start + AT_ONCE)).map(|number| {
            let lock = InterProcessMutex::new(&session, &format!("/locks/{number:08}")).unwrap();
            async move { lock.acquire().await.unwrap() }
        });
        held.extend(join_all(some).await);
    }
    let (before, started) = (received_by(&server).await, Instant::now());
    let heap = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let seen = scan(&session, "/").await.unwrap();
    let elapsed = started.elapsed();
    let (kept, peak) = (HEAP.current_usage(), HEAP.peak_usage());
    let requests = received_by(&server).await - before;
    assert_eq!((seen.locks.len(), seen.unreadable.len()), (count, 0));
    let [kept, peak] = [kept, peak].map(|it| it.saturating_sub(heap) / 1024);
    eprintln!(
        "{count} locks scanned in {elapsed:?} with {requests} requests; \
         {peak} KiB at most, {kept} KiB for the result"
    );
    // A list and a read each, and in addition a few pings, heartbeats and watches of guards.
    let watches = count;
    assert!(requests >= 2 * count, "{requests}");
    assert!(requests <= 2 * count + watches + 200, "{requests}");
    session.close().await;
}
