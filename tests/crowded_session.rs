//! One session with thousands of waiters: they keep their places over a reconnect, and all are granted as
//! promptly as one.
//!
//! It is a program of its own because it measures memory. Ten thousand waiters on one lock list
//! gigabytes of names, so the short form has fewer:
//!
//! ```sh
//! CROWD=10000 cargo test -p tests --test crowded_session -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

use std::env;
use std::fs;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use futures::{StreamExt, stream};
use lock_recipes::{
    FencingToken, InterProcessMutex, MutexGuard, Session, SessionHealth, ZooKeeper,
};
use test_rig::{Cut, FaultProxy, TestEnsemble, ZooKeeperServer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

const ONE: &str = "/locks/orders";
/// The default number of waiters.
const CROWD: usize = 1_000;
/// How many join together. Each on the one lock requests a listing of all.
const AT_ONCE: usize = 200;
/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// A grant that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(300);

fn crowd() -> usize {
    env::var("CROWD").map_or(CROWD, |it| it.parse().unwrap())
}

fn one_of_many(number: usize) -> String {
    format!("/locks/seat-{number:05}")
}

/// Which waiter, in the order of the grants, and its token.
type Granted = (usize, FencingToken);

/// Cuts the connection of the waiters' session.
enum Wire {
    Memory,
    Real(FaultProxy),
}

struct Crowd {
    size: usize,
    ensemble: TestEnsemble,
    wire: Wire,
    /// The session of all that wait.
    waiting: Session,
    others: Session,
    waiters: JoinSet<()>,
    granted: mpsc::UnboundedReceiver<Granted>,
    grants: mpsc::UnboundedSender<Granted>,
}

impl Crowd {
    async fn in_memory() -> Self {
        let ensemble = TestEnsemble::in_memory();
        let waiting = ensemble.session().await;
        Self::of(ensemble, Wire::Memory, waiting).await
    }

    async fn on_a_real_server() -> Self {
        let server = ZooKeeperServer::builder().heap_mib(1024);
        let server = server.start().await.unwrap();
        let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
        let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
        let waiting = options.connect(&proxy.connect_string()).await.unwrap();
        Self::of(
            TestEnsemble::Real(server.into()),
            Wire::Real(proxy),
            waiting,
        )
        .await
    }

    async fn on_redis() -> Self {
        let server = test_rig::RedisServer::start().await.unwrap();
        let proxy = FaultProxy::start_for_redis(&format!("127.0.0.1:{}", server.port())).await;
        let proxy = proxy.unwrap();
        let options = lock_recipes::Redis::builder().session_timeout(SESSION_TIMEOUT);
        let url = format!("redis://{}", proxy.connect_string());
        let waiting = options.new_server().connect(&url).await.unwrap();
        Self::of(
            TestEnsemble::Redis(server.into()),
            Wire::Real(proxy),
            waiting,
        )
        .await
    }

    async fn of(ensemble: TestEnsemble, wire: Wire, waiting: Session) -> Self {
        let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
        let others = ensemble.session_with(options).await;
        let (grants, granted) = mpsc::unbounded_channel();
        Self {
            size: crowd(),
            ensemble,
            wire,
            waiting,
            others,
            waiters: JoinSet::new(),
            granted,
            grants,
        }
    }

    /// Another session holds the lock.
    async fn held_by_others(&self, path: &str) -> MutexGuard {
        let lock = InterProcessMutex::new(&self.others, path).unwrap();
        lock.acquire().await.unwrap()
    }

    fn join(&mut self, waiter: usize, path: &str) {
        let lock = InterProcessMutex::new(&self.waiting, path).unwrap();
        let grants = self.grants.clone();
        self.waiters.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            assert!(guard.is_valid());
            grants.send((waiter, guard.fencing_token())).unwrap();
            guard.release().await.unwrap();
        });
    }

    async fn length(&self, path: &str) -> usize {
        match &self.ensemble {
            TestEnsemble::Memory(memory) => memory.children(path).len(),
            _ => {
                let directory = self.others.read(path).await.unwrap();
                directory.map_or(0, |(_, stat)| usize::try_from(stat.children).unwrap())
            }
        }
    }

    /// Waits until this many contenders have nodes in the directories.
    async fn queued(&self, paths: &[String], contenders: usize) {
        let all = async || {
            let lengths = stream::iter(paths).map(|path| self.length(path));
            let lengths: Vec<_> = lengths.buffered(AT_ONCE).collect().await;
            (lengths.iter().sum::<usize>() == contenders).then_some(())
        };
        self.ensemble.until("the queues", all).await;
    }

    /// Cuts the connection of the waiters, waits until it is back, and returns how long they were
    /// without.
    #[expect(clippy::disallowed_methods, reason = "figures for people")]
    async fn cut(&self) -> Duration {
        let started = SystemTime::now();
        match &self.wire {
            Wire::Memory => {
                let TestEnsemble::Memory(memory) = &self.ensemble else {
                    panic!("no memory");
                };
                let id = self.waiting.session_id().unwrap();
                assert!(memory.disconnect(id));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(memory.reconnect(id));
            }
            Wire::Real(proxy) => {
                let before = proxy.connections();
                proxy.cut_all(Cut::Fin);
                let is_back = async || (proxy.connections() > before).then_some(());
                self.ensemble.until("the client", is_back).await;
            }
        }
        let is_up = async || {
            let is_connected = self.waiting.health() == SessionHealth::Connected;
            is_connected.then_some(())
        };
        self.ensemble.until("the session", is_up).await;
        // An answer shows that it is not only connected.
        let lock = InterProcessMutex::new(&self.waiting, "/locks/free").unwrap();
        let free = timeout(PATIENCE, lock.acquire()).await.unwrap().unwrap();
        let away = started.elapsed().unwrap();
        free.release().await.unwrap();
        away
    }

    async fn all_granted(&mut self) -> Vec<Granted> {
        let mut order = Vec::new();
        while order.len() < self.size {
            let granted = timeout(PATIENCE, self.granted.recv()).await;
            order.push(granted.unwrap().unwrap());
        }
        while let Some(waiter) = self.waiters.join_next().await {
            waiter.unwrap();
        }
        order
    }
}

/// Memory of this process in KiB.
fn memory_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

/// The memory of one must not be counted for the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[expect(clippy::disallowed_methods, reason = "figures for people")]
async fn many_locks(mut crowd_of: Crowd) {
    let paths: Vec<_> = (0..crowd_of.size).map(one_of_many).collect();
    let held = stream::iter(&paths).map(|path| crowd_of.held_by_others(path));
    let held: Vec<_> = held.buffered(AT_ONCE).collect().await;
    let (before, started) = (memory_kib(), SystemTime::now());
    for (number, some) in paths.chunks(AT_ONCE).enumerate() {
        for (waiter, path) in some.iter().enumerate() {
            crowd_of.join(number * AT_ONCE + waiter, path);
        }
        crowd_of.queued(some, 2 * some.len()).await;
    }
    let joined = started.elapsed().unwrap();
    let kib = memory_kib().saturating_sub(before) as f64 / crowd_of.size as f64;
    let mut away = Vec::new();
    for _ in 0..2 {
        away.push(crowd_of.cut().await);
    }
    crowd_of.queued(&paths, 2 * crowd_of.size).await;
    assert!(crowd_of.granted.try_recv().is_err(), "granted while held");
    let started = SystemTime::now();
    for guard in &held {
        assert!(guard.is_valid());
    }
    let released = join_all(held.into_iter().map(MutexGuard::release)).await;
    assert!(released.iter().all(Result::is_ok));
    let mut order = crowd_of.all_granted().await;
    eprintln!(
        "{} waiters for as many locks after {joined:.1?}, {kib:.1} KiB each; whole {away:.1?} after \
         a cut; all granted {:.1?} after the releases",
        crowd_of.size,
        started.elapsed().unwrap(),
    );
    order.sort_unstable();
    order.dedup_by_key(|(waiter, _)| *waiter);
    assert_eq!(order.len(), crowd_of.size);
    assert_eq!(crowd_of.waiting.epoch(), 1, "a session was lost");
    crowd_of.waiting.close().await;
}

#[expect(clippy::disallowed_methods, reason = "figures for people")]
async fn one_lock(mut crowd_of: Crowd) {
    let one = [ONE.to_owned()];
    let held = crowd_of.held_by_others(ONE).await;
    let (before, started) = (memory_kib(), SystemTime::now());
    for waiter in 0..crowd_of.size {
        crowd_of.join(waiter, ONE);
        if (waiter + 1) % AT_ONCE == 0 {
            crowd_of.queued(&one, waiter + 2).await;
        }
    }
    crowd_of.queued(&one, crowd_of.size + 1).await;
    let joined = started.elapsed().unwrap();
    let kib = memory_kib().saturating_sub(before) as f64 / crowd_of.size as f64;
    let mut away = Vec::new();
    let places = crowd_of.ensemble.children(ONE).await;
    for _ in 0..2 {
        away.push(crowd_of.cut().await);
    }
    assert_eq!(crowd_of.ensemble.children(ONE).await, places);
    assert!(crowd_of.granted.try_recv().is_err(), "granted while held");
    assert!(held.is_valid());
    let started = SystemTime::now();
    held.release().await.unwrap();
    let order = crowd_of.all_granted().await;
    eprintln!(
        "{} waiters for one lock after {joined:.1?}, {kib:.1} KiB each; whole {away:.1?} after a \
         cut; all granted {:.1?} after the release",
        crowd_of.size,
        started.elapsed().unwrap(),
    );
    assert!(order.is_sorted_by(|one, next| one.1 < next.1), "first come");
    assert_eq!(crowd_of.waiting.epoch(), 1, "a session was lost");
    crowd_of.waiting.close().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_for_many_locks_keep_their_places_over_a_reconnect_in_memory() {
    let _alone = ALONE.lock().await;
    many_locks(Crowd::in_memory().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_many_locks_keep_their_places_over_a_reconnect_on_a_real_server() {
    let _alone = ALONE.lock().await;
    many_locks(Crowd::on_a_real_server().await).await;
}

#[tokio::test(start_paused = true)]
async fn waiters_for_one_lock_keep_their_places_over_a_reconnect_in_memory() {
    let _alone = ALONE.lock().await;
    one_lock(Crowd::in_memory().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_one_lock_keep_their_places_over_a_reconnect_on_a_real_server() {
    let _alone = ALONE.lock().await;
    one_lock(Crowd::on_a_real_server().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_many_locks_keep_their_places_over_a_reconnect_on_redis() {
    let _alone = ALONE.lock().await;
    many_locks(Crowd::on_redis().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_for_one_lock_keep_their_places_over_a_reconnect_on_redis() {
    let _alone = ALONE.lock().await;
    one_lock(Crowd::on_redis().await).await;
}
