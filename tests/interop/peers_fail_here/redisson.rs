//! Faults of the locks of Redisson 4.7.0, and what ours do on the same servers.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lock_recipes::{FencingToken, Redis, RedisBuilder, Session, SessionHealth};
use recipes_core::{NewNode, NodeMode};
use test_rig::{RedisServer, RedissonPeer};
use tokio::time::{Instant, sleep, timeout};

use super::{OURS, mutex, soon};
use crate::wires::Wires;

/// The key of Redisson's lock.
const KEY: &str = "orders";
/// A lock that is not renewed goes after this long. More than anything takes here.
const WATCHDOG: Duration = Duration::from_secs(45);
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

async fn redisson() -> RedissonPeer {
    let peer = RedissonPeer::start().await.unwrap();
    assert_eq!(peer.version(), "4.7.0");
    peer
}

fn options(session_timeout: Duration) -> RedisBuilder {
    Redis::builder().session_timeout(session_timeout)
}

async fn session(url: &str, session_timeout: Duration) -> Session {
    // Nobody held a lock before.
    let new = options(session_timeout).new_server();
    new.connect(url).await.unwrap()
}

async fn ask<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    server.command(words).await.unwrap()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let answered = timeout(2 * WATCHDOG, asked).await;
    answered.unwrap_or_else(|_| panic!("{what}: not in time"));
}

/// The primary fails, and a replica takes its place that has lost it just before the lock was
/// acquired. Redisson's clients find the new primary, and check by default that replicas have a lock;
/// but here the primary has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_lets_a_second_holder_in_with_the_same_token_where_ours_waits() {
    let primary = RedisServer::start().await.unwrap();
    let replica = RedisServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    until("a replica in step", async || {
        let info: String = ask(&replica, &["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    })
    .await;
    let redisson = redisson().await;
    let urls = [primary.url(), replica.url()];
    for (client, lock) in [("c", "m"), ("d", "n")] {
        redisson.open(client, &urls, WATCHDOG).await.unwrap();
        redisson.lock(lock, client, KEY, true).await.unwrap();
    }
    let here = session(&primary.url(), SESSION_TIMEOUT).await;

    let _ok: String = ask(&replica, &["REPLICAOF", "127.0.0.1", "1"]).await;
    assert!(redisson.acquire("t", "m", None).await.unwrap());
    let acquired = Instant::now();
    let ours = mutex(&here, OURS).acquire().await.unwrap();
    primary.kill().await.unwrap();
    let _ok: String = ask(&replica, &["REPLICAOF", "NO", "ONE"]).await;

    assert!(redisson.acquire("u", "n", Some(WATCHDOG)).await.unwrap());
    assert!(acquired.elapsed() < WATCHDOG, "too late to tell");
    // Two holders. Nobody tells the first: it goes on, and writes.
    let first = redisson.token("t", "m").await.unwrap();
    assert_eq!(first, redisson.token("u", "n").await.unwrap());
    redisson
        .set("t", "c", "data", "of the first")
        .await
        .unwrap();
    let data: String = ask(&replica, &["GET", "data"]).await;
    assert_eq!(data, "of the first");
    // If it asks, it learns.
    assert!(!redisson.held("t", "m").await.unwrap());

    // It does not know what was before.
    let there = options(SESSION_TIMEOUT);
    let there = there.connect(&replica.url()).await.unwrap();
    let next = soon(mutex(&there, OURS).acquire()).await.unwrap();
    assert!(!ours.is_valid(), "two holders");
    soon(ours.lost()).await;
    assert!(next.fencing_token() > ours.fencing_token());
    next.release().await.unwrap();
}

/// A waiter is cut off while the lock is released. Redisson's subscribes again, and does not look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_missed_the_message_sleeps_for_the_lease_where_ours_is_granted_when_it_is_back()
{
    let server = RedisServer::start().await.unwrap();
    let (holder, waiter) = (redisson().await, redisson().await);
    for (peer, client, lock) in [(&holder, "c", "m"), (&waiter, "d", "n")] {
        peer.open(client, &[server.url()], WATCHDOG).await.unwrap();
        peer.lock(lock, client, KEY, false).await.unwrap();
    }
    let channel = format!("redisson_lock__channel:{{{KEY}}}");
    let is_subscribed = async || {
        let count: (String, i64) = ask(&server, &["PUBSUB", "NUMSUB", &channel]).await;
        count.1 == 1
    };
    assert!(holder.acquire("t", "m", None).await.unwrap());
    let before = scripts(&server).await;
    let theirs = waiter.acquire("u", "n", None);
    tokio::pin!(theirs);
    // It tries, subscribes, and tries again. The holder renews its lease much later.
    until("a waiter that sleeps", async || {
        is_subscribed().await && scripts(&server).await >= before + 2
    })
    .await;
    waiter.pause().unwrap();
    let _cut: i64 = ask(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    holder.release("t", "m").await.unwrap();
    waiter.resume().unwrap();
    until("a waiter that is back", is_subscribed).await;
    let early = timeout(Duration::from_secs(5), &mut theirs).await;
    assert!(early.is_err(), "it was granted soon: {early:?}");
    let exists: bool = ask(&server, &["EXISTS", KEY]).await;
    assert!(!exists, "the lock is free");
    let granted = timeout(2 * WATCHDOG, theirs).await.unwrap();
    assert!(granted.unwrap(), "after what was left of the lease");

    // A session that is not heard of would end after this long.
    let long = 2 * super::PATIENCE;
    let (primary, here) = (server.port(), session(&server.url(), long).await);
    let wires = Wires::to(move |_| primary).await;
    let there = session(&wires.url(), long).await;
    let held = mutex(&here, OURS).acquire().await.unwrap();
    let ours = tokio::spawn(mutex(&there, OURS).acquire());
    let queue = format!("{{locks}}:c:{OURS}");
    until("a waiter", async || {
        let length: i64 = ask(&server, &["ZCARD", &queue]).await;
        length == 2
    })
    .await;
    wires.down(true);
    until("a waiter that is cut off", async || {
        there.health() != SessionHealth::Connected
    })
    .await;
    held.release().await.unwrap();
    wires.down(false);
    soon(ours).await.unwrap().unwrap().release().await.unwrap();
}

/// How many scripts the server has run.
async fn scripts(server: &RedisServer) -> u64 {
    let stats: String = ask(server, &["INFO", "commandstats"]).await;
    let calls = stats.lines().filter_map(|line| {
        let stat = line.strip_prefix("cmdstat_eval")?;
        let calls = stat.split_once(":calls=")?.1.split_once(',')?.0;
        calls.parse::<u64>().ok()
    });
    calls.sum()
}

/// A holder of ours, on a thread that stands still.
struct Sleeper {
    token: FencingToken,
    wake: mpsc::Sender<()>,
    thread: thread::JoinHandle<(bool, bool)>,
}

impl Sleeper {
    fn holding(url: String) -> Self {
        let (said, told) = mpsc::channel();
        let (wake, may_wake) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let session = session(&url, SESSION_TIMEOUT).await;
                let guard = mutex(&session, OURS).acquire().await.unwrap();
                said.send(guard.fencing_token()).unwrap();
                may_wake.recv().unwrap();
                let is_valid = guard.is_valid();
                let written = guard.transaction().set("/data", "late").commit().await;
                (is_valid, written.is_ok())
            })
        });
        let token = told.recv().unwrap();
        Self {
            token,
            wake,
            thread,
        }
    }

    /// Whether it believes in its lock, and whether its late write is accepted.
    fn wakes(self) -> (bool, bool) {
        self.wake.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

/// A holder is halted for longer than its lease, then goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_slept_past_its_lease_writes_where_ours_is_invalid_and_refused() {
    let server = RedisServer::start().await.unwrap();
    let (sleeper, next) = (redisson().await, redisson().await);
    for (peer, client, lock) in [(&sleeper, "c", "m"), (&next, "d", "n")] {
        let watchdog = Duration::from_secs(4);
        peer.open(client, &[server.url()], watchdog).await.unwrap();
        peer.lock(lock, client, KEY, true).await.unwrap();
    }
    assert!(sleeper.acquire("t", "m", None).await.unwrap());
    sleeper.pause().unwrap();
    assert!(next.acquire("u", "n", Some(WATCHDOG)).await.unwrap());
    next.set("u", "d", "data", "of the next").await.unwrap();
    sleeper.resume().unwrap();
    // Its thread goes on in the middle of its work.
    sleeper.set("t", "c", "data", "late").await.unwrap();
    let data: String = ask(&server, &["GET", "data"]).await;
    assert_eq!(
        data, "late",
        "the server accepts what the next has overtaken"
    );
    // The tokens would tell, if whoever keeps the data compared them.
    let token = sleeper.token("t", "m").await.unwrap();
    assert!(token < next.token("u", "n").await.unwrap());
    // If it asks, it learns.
    assert!(!sleeper.held("t", "m").await.unwrap());

    let operator = options(SESSION_TIMEOUT).new_server().store(&server.url());
    let operator = operator.unwrap().connect().await.unwrap();
    let data = NewNode {
        path: "/data".to_owned(),
        data: (*b"").into(),
        mode: NodeMode::Persistent,
    };
    operator.create(&data).await.unwrap();
    let ours = Sleeper::holding(server.url());
    // It is granted after the sleeper's session, and must keep the lock until that one has woken.
    let there = session(&server.url(), 10 * SESSION_TIMEOUT).await;
    let granted = soon(mutex(&there, OURS).acquire()).await.unwrap();
    assert!(granted.fencing_token() > ours.token);
    let written = granted.transaction().set("/data", "of the next");
    written.commit().await.unwrap();
    assert_eq!(ours.wakes(), (false, false));
    let (data, _) = operator.read("/data").await.unwrap().unwrap();
    assert_eq!(data, b"of the next");
    granted.release().await.unwrap();
}
