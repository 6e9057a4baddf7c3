//! Thousands of contenders in one queue: which tasks a release wakes, what a waiter costs, and that
//! all of them get their turn.
//!
//! Each contender lists the directory when it joins, and again when only one waiter is ahead of it,
//! unless it joined with no more than two ahead. So the names on the wire grow with the square of the queue. Only because of that, ten thousand
//! take long:
//!
//! ```sh
//! MANY_WAITERS=10000 cargo test -p tests --test many_waiters -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::env;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use lock_recipes::{FencingToken, InterProcessMutex, Session, ZooKeeper};
use peak_alloc::PeakAlloc;
use test_rig::{Operation, TestEnsemble, ZooKeeperServer};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PATH: &str = "/locks/orders";
/// The default number.
const WAITERS: usize = 2_000;
const SESSIONS_MIN: usize = 16;
/// So many waiters of a session have room to watch.
const WAITERS_EACH: usize = 150;
/// How many join together. Each requests a listing, and a server buffers what its clients have not
/// read.
const AT_ONCE: usize = 200;
/// Releases whose effects are checked one by one.
const SINGLE_RELEASES: usize = 20;
/// Reactions to a notification come within this time.
const QUIET: Duration = Duration::from_millis(100);
/// A heartbeat waits for the earlier listings of its session, tens of megabytes if all join at
/// once.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// A grant that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// A waiter that has been granted, in the order of the grants.
type Granted = (usize, FencingToken);

/// The waiters whose tasks ran.
type Polled = Arc<Mutex<BTreeSet<usize>>>;

struct Noted<F> {
    waiter: usize,
    polled: Polled,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Noted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let waiter = self.waiter;
        self.polled.lock().unwrap().insert(waiter);
        self.future.as_mut().poll(context)
    }
}

/// All waiters of the lock, and the holder.
struct Queue {
    ensemble: TestEnsemble,
    sessions: Vec<Session>,
    granted: mpsc::UnboundedReceiver<Granted>,
    polled: Polled,
    turns: JoinSet<()>,
    /// A permit lets the holder release. If it is closed, all later holders may.
    releases: Arc<Semaphore>,
    order: Vec<Granted>,
}

impl Queue {
    /// Lets that many contenders queue up, the holder among them.
    async fn form(ensemble: TestEnsemble, waiters: usize) -> Self {
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS_MIN.max(waiters.div_ceil(WAITERS_EACH)) {
            let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
            sessions.push(ensemble.session_with(options).await);
        }
        let (grants, granted) = mpsc::unbounded_channel();
        let mut queue = Self {
            ensemble,
            sessions,
            granted,
            polled: Polled::default(),
            turns: JoinSet::new(),
            releases: Arc::new(Semaphore::new(0)),
            order: Vec::new(),
        };
        // The first creates the directory. Otherwise all others would try to.
        queue.join(0, &grants);
        queue.next_granted().await;
        for waiter in 1..waiters {
            queue.join(waiter, &grants);
            if waiter % AT_ONCE == 0 {
                queue.pause().await;
            }
        }
        queue.settle(waiters).await;
        queue
    }

    /// Waits until no task has run for a moment.
    async fn pause(&self) {
        loop {
            tokio::time::sleep(QUIET / 4).await;
            if self.polled_since().is_empty() {
                return;
            }
        }
    }

    /// Starts one more contender, which holds the lock until it may release it.
    fn join(&mut self, waiter: usize, grants: &mpsc::UnboundedSender<Granted>) {
        let session = &self.sessions[waiter % self.sessions.len()];
        let lock = InterProcessMutex::new(session, PATH).unwrap();
        let (grants, releases) = (grants.clone(), Arc::clone(&self.releases));
        let turn = async move {
            let guard = lock.acquire().await.unwrap();
            grants.send((waiter, guard.fencing_token())).unwrap();
            // A closed semaphore is as good as a permit.
            releases.acquire().await.map(|it| it.forget()).ok();
            guard.release().await.unwrap();
        };
        let (polled, future) = (Arc::clone(&self.polled), Box::pin(turn));
        self.turns.spawn(Noted {
            waiter,
            polled,
            future,
        });
    }

    /// Waits until this many are in the queue and no task runs. Returns the waiters whose tasks
    /// ran.
    async fn settle(&self, waiters: usize) -> BTreeSet<usize> {
        let (mut all, mut before) = (BTreeSet::new(), None);
        loop {
            tokio::time::sleep(QUIET).await;
            let polled = self.polled_since();
            if !polled.is_empty() {
                all.extend(polled);
                continue;
            }
            // A server that has thousands of listings to send may answer late.
            let Some(length) = self.length().await else {
                continue;
            };
            let now = Some((length, self.ensemble.watch_count().await));
            if length == waiters && before == now {
                return all;
            }
            before = now;
        }
    }

    /// Number of contenders, the holder among them, if there is an answer.
    async fn length(&self) -> Option<usize> {
        match &self.ensemble {
            TestEnsemble::Memory(ensemble) => Some(ensemble.children(PATH).len()),
            _ => {
                let directory = self.sessions[0].read(PATH).await.ok()?;
                let children = directory.map_or(0, |(_, stat)| stat.children);
                usize::try_from(children).ok()
            }
        }
    }

    /// The waiters whose tasks ran since the last call.
    fn polled_since(&self) -> BTreeSet<usize> {
        mem::take(&mut *self.polled.lock().unwrap())
    }

    async fn next_granted(&mut self) -> usize {
        let granted = timeout(PATIENCE, self.granted.recv()).await;
        let granted = granted.unwrap().unwrap();
        self.order.push(granted);
        granted.0
    }

    /// Requests of all sessions so far, if the ensemble counts them.
    async fn requests(&self) -> usize {
        match &self.ensemble {
            TestEnsemble::Memory(ensemble) => ensemble.requests().len(),
            TestEnsemble::Real(server) => {
                let told = server.four_letter("srvr").await.unwrap();
                let received = told.lines().find_map(|it| it.strip_prefix("Received: "));
                received.unwrap().parse().unwrap()
            }
            _ => panic!("not counted there"),
        }
    }
}

/// The bytes of a reply that lists these children: a header, a count, and each name with its length.
fn listing_bytes(children: &[String]) -> usize {
    24 + children.iter().map(|name| 4 + name.len()).sum::<usize>()
}

#[expect(clippy::disallowed_methods, reason = "figures for people")]
async fn behaviour(ensemble: TestEnsemble, waiters: usize) {
    // The memory of one must not be counted for the other.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = ALONE.lock().await;
    // The machine's clock, because in memory the test's clock stands still.
    let (started, heap) = (SystemTime::now(), HEAP.current_usage());
    let mut queue = Queue::form(ensemble, waiters).await;
    let each = |total: usize| total as f64 / waiters as f64;
    let listing = listing_bytes(&queue.ensemble.children(PATH).await);
    eprintln!(
        "{waiters} waiters over {} sessions after {:.1?}; for each: {:.1} requests, \
         {:.1} watches, {:.1} KiB of heap; a listing is {} KiB",
        queue.sessions.len(),
        started.elapsed().unwrap(),
        each(queue.requests().await),
        each(queue.ensemble.watch_count().await),
        each(HEAP.current_usage() - heap) / 1024.0,
        listing / 1024,
    );
    release_one_by_one(&mut queue, waiters).await;

    let (started, before) = (SystemTime::now(), queue.requests().await);
    queue.releases.close();
    let left = waiters - queue.order.len();
    for _ in 0..left {
        queue.next_granted().await;
    }
    queue.settle(0).await;
    while let Some(turn) = queue.turns.join_next().await {
        turn.unwrap();
    }
    eprintln!(
        "{left} hand-offs in {:.1?}; for each: {:.2} requests, {} KiB listed on average",
        started.elapsed().unwrap(),
        (queue.requests().await - before) as f64 / left as f64,
        listing / 1024 / 2,
    );
    let order = &queue.order;
    let each_once: BTreeSet<usize> = order.iter().map(|it| it.0).collect();
    assert_eq!((order.len(), each_once.len()), (waiters, waiters));
    assert!(order.is_sorted_by(|one, next| one.1 < next.1), "first come");
    queue.ensemble.await_watches(0).await;
    for session in queue.sessions {
        session.close().await;
    }
}

/// A release wakes the next waiter, which is granted without a request, and the one after it, which
/// lists. The third contender does not: since it joined it knows both that are ahead of it.
async fn release_one_by_one(queue: &mut Queue, waiters: usize) {
    let mut looked = BTreeSet::new();
    for released in 1..=SINGLE_RELEASES {
        if let TestEnsemble::Memory(ensemble) = &queue.ensemble {
            ensemble.reset_requests();
        }
        let (holder, _) = *queue.order.last().unwrap();
        queue.releases.add_permits(1);
        let next = queue.next_granted().await;
        assert!(looked.iter().all(|it| *it == next), "{looked:?}, {next}");
        looked = queue.settle(waiters - released).await;
        assert!(looked.remove(&holder) && looked.remove(&next));
        assert!(looked.len() <= 1, "{looked:?}");
        assert!(queue.granted.try_recv().is_err(), "granted to two");
        if let TestEnsemble::Memory(ensemble) = &queue.ensemble {
            let requests: Vec<_> = ensemble.requests().iter().map(|it| it.operation).collect();
            let expected: &[_] = match released {
                1 => &[Operation::Delete],
                _ => &[Operation::Delete, Operation::List],
            };
            assert_eq!(requests, expected);
        }
    }
}

fn waiters() -> usize {
    env::var("MANY_WAITERS").map_or(WAITERS, |it| it.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_of_many_gets_its_turn_in_memory() {
    behaviour(TestEnsemble::in_memory(), waiters()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_gets_its_turn_on_a_real_server() {
    let server = ZooKeeperServer::builder().heap_mib(1024);
    let server = server.start().await.unwrap();
    behaviour(TestEnsemble::Real(server.into()), waiters()).await;
}
