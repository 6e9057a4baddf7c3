//! Thousands of locks held at a time in one process: what one costs, and that it leaves nothing
//! behind when it is released.
//!
//! ```sh
//! MANY_LOCKS=10000 cargo test -p tests --test many_locks -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

use std::env;
use std::ops::Range;
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{InterProcessMutex, MutexGuard, Session, ZooKeeper};
use peak_alloc::PeakAlloc;
use test_rig::ZooKeeperServer;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The default number.
const LOCKS: usize = 2_000;
/// How many locks are acquired together.
const AT_ONCE: usize = 200;
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most that a held lock may cost. It takes about 2 KiB with its watch. More would
/// be a future or a listing that is kept.
const HELD_BYTES_MAX: usize = 4 << 10;
/// What may be left of a lock on average, because of other activity in the process. It is less than
/// an entry of any map takes.
const LEFT_BYTES_MAX: usize = 8;

/// Rounds after the first. Tables grow in some, however many locks are held.
const ROUNDS: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Census {
    heap: usize,
    tasks: usize,
}

impl Census {
    fn take() -> Self {
        Self {
            heap: HEAP.current_usage(),
            tasks: Handle::current().metrics().num_alive_tasks(),
        }
    }

    /// The census after all notifications of the server have been handled.
    async fn settled() -> Self {
        let mut before = Self::take();
        let settled = async {
            loop {
                sleep(Duration::from_millis(100)).await;
                let now = Self::take();
                if now == before {
                    return now;
                }
                before = now;
            }
        };
        timeout(PATIENCE, settled).await.unwrap()
    }
}

/// How many ephemeral nodes and watches the server has.
async fn kept_by(server: &ZooKeeperServer) -> (usize, usize) {
    let told = server.four_letter("mntr").await.unwrap();
    let count = |key: &str| {
        let value = told.lines().find_map(|line| line.strip_prefix(key));
        value.unwrap().trim().parse().unwrap()
    };
    (count("zk_ephemerals_count"), count("zk_watch_count"))
}

async fn until_kept(server: &ZooKeeperServer, expected: (usize, usize)) {
    let reached = async {
        while kept_by(server).await != expected {
            sleep(Duration::from_millis(50)).await;
        }
    };
    let reached = timeout(PATIENCE, reached).await;
    assert!(reached.is_ok(), "{:?}", kept_by(server).await);
}

async fn acquire_all(session: &Session, locks: Range<usize>) -> Vec<MutexGuard> {
    let mut guards = Vec::with_capacity(locks.len());
    let mut locks = locks.peekable();
    while locks.peek().is_some() {
        let together = locks.by_ref().take(AT_ONCE).map(|lock| async move {
            let path = format!("/locks/orders/{lock:08}");
            let lock = InterProcessMutex::new(session, &path).unwrap();
            lock.acquire().await.unwrap()
        });
        guards.extend(join_all(together).await);
    }
    guards
}

async fn release_all(guards: Vec<MutexGuard>) {
    let mut guards = guards.into_iter().peekable();
    while guards.peek().is_some() {
        let together = guards.by_ref().take(AT_ONCE).map(MutexGuard::release);
        for released in join_all(together).await {
            released.unwrap();
        }
    }
}

/// Acquires these locks, and releases them.
async fn round(server: &ZooKeeperServer, session: &Session, locks: Range<usize>) -> Census {
    let (count, before) = (locks.len(), Census::settled().await);
    let guards = acquire_all(session, locks).await;
    let granted = Census::take();
    until_kept(server, (count, count)).await;
    let watched = Census::settled().await;
    assert_eq!(watched.tasks, before.tasks, "a task for each lock");
    release_all(guards).await;
    until_kept(server, (0, 0)).await;
    let after = Census::settled().await;
    assert_eq!(after.tasks, before.tasks, "tasks are left");
    let each = |census: Census| census.heap.saturating_sub(before.heap) / count;
    eprintln!(
        "{count} locks; heap bytes for each: {} when granted, {} with its watch, {} when released",
        each(granted),
        each(watched),
        each(after),
    );
    assert!(each(watched) <= HELD_BYTES_MAX, "{} bytes", each(watched));
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_were_held_leave_nothing_behind() {
    let server = ZooKeeperServer::builder().heap_mib(512).start().await;
    let server = server.unwrap();
    let session = ZooKeeper::builder().session_timeout(Duration::from_secs(40));
    let session = session.connect(&server.connect_string()).await.unwrap();
    let locks = env::var("MANY_LOCKS").map_or(LOCKS, |it| it.parse().unwrap());
    let mut left = Vec::new();
    let mut before = round(&server, &session, 0..locks).await;
    for again in 1..=ROUNDS {
        let after = round(&server, &session, locks * again..locks * (again + 1)).await;
        left.push(after.heap.saturating_sub(before.heap));
        before = after;
    }
    // The first round has made tables grow, and others may make some grow too. But every round
    // would leave what each lock leaves behind.
    eprintln!("bytes left by each further round: {left:?}");
    let least = left.iter().min().copied().unwrap();
    assert!(least <= LEFT_BYTES_MAX * locks, "{left:?} bytes are left");
    session.close().await;
}
