//! A server that has lost its last writes has nodes and sessions again that were gone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_recipes::{LostReason, Session, SessionHealth};
use test_rig::RedisServer;
use tokio::time::timeout;

use super::wires::Wires;
use super::{PATH, PATIENCE, mutex, opened, options, until, verified, waiting};

const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

/// A primary, and a replica that may take its place.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let primary = RedisServer::start().await.unwrap();
        let replica = RedisServer::builder().replica_of(&primary);
        let replica = replica.start().await.unwrap();
        Self { primary, replica }
    }

    /// A session that finds the replica when it connects again.
    async fn session(&self) -> (Session, Wires) {
        self.session_after(1).await
    }

    /// A session that finds the replica after so many connections.
    async fn session_after(&self, connections: usize) -> (Session, Wires) {
        let (first, then) = (self.primary.port(), self.replica.port());
        let port = move |number| if number <= connections { first } else { then };
        let wires = Wires::to(port).await;
        let opened = options(SESSION_TIMEOUT).connect(&wires.url()).await;
        (opened.unwrap(), wires)
    }

    /// From now on the replica learns nothing more, when it knows of so many contenders.
    async fn part(&self, contenders: usize) {
        waiting(&self.replica, contenders).await;
        let promote = ["REPLICAOF", "NO", "ONE"];
        let _ok: String = self.replica.command(&promote).await.unwrap();
    }
}

async fn queue(server: &RedisServer) -> Vec<String> {
    let queue = format!("{{locks}}:c:{PATH}");
    let listed = server.command(&["ZRANGE", &queue, "0", "-1"]).await;
    listed.unwrap()
}

/// A waiter was told that an operator has removed its node, and joins again. Nobody but its session
/// could delete the node when it is back, and that session goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_an_operator_removed_blocks_nobody_when_it_is_back() {
    let pair = Pair::start().await;
    let (first, _first_wires) = pair.session().await;
    let (here, _here_wires) = pair.session().await;
    let held = mutex(&first).acquire().await.unwrap();
    let lock = mutex(&here);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    waiting(&pair.primary, 2).await;
    pair.part(2).await;
    let removed = queue(&pair.replica).await[1].clone();
    let operator = options(SESSION_TIMEOUT).store(&pair.primary.url()).unwrap();
    let operator = opened(&*operator).await;
    operator.delete(&format!("{PATH}/{removed}")).await.unwrap();
    until("another node", async || {
        let queue = queue(&pair.primary).await;
        (queue.len() == 2 && queue[1] != removed).then_some(())
    })
    .await;
    pair.primary.kill().await.unwrap();
    verified(&held).await;
    held.release().await.unwrap();
    let granted = timeout(5 * SESSION_TIMEOUT, waiter).await;
    let left = queue(&pair.replica).await;
    assert!(
        granted.is_ok(),
        "nobody holds the lock; the queue: {left:?}"
    );
    assert_eq!(here.epoch(), 1);
}

/// The primary has ended the session of a waiter, and granted the lock to the next. The replica knows
/// neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_session_had_expired_is_not_granted_beside_the_next_holder() {
    let pair = Pair::start().await;
    let (first, _first_wires) = pair.session().await;
    let (gone, gone_wires) = pair.session().await;
    let (next, _next_wires) = pair.session().await;
    let held = mutex(&first).acquire().await.unwrap();
    let contend = |session: &Session| {
        let lock = mutex(session);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let mut absent = contend(&gone);
    waiting(&pair.primary, 2).await;
    let next = contend(&next);
    waiting(&pair.primary, 3).await;
    pair.part(3).await;
    let before = queue(&pair.replica).await;
    gone_wires.down(true);
    held.release().await.unwrap();
    let next = timeout(PATIENCE, next).await.unwrap().unwrap();
    pair.primary.kill().await.unwrap();
    verified(&next).await;
    gone_wires.down(false);
    let behind = until("a place behind the holder", async || {
        let queue = queue(&pair.replica).await;
        let is_first = queue.first() == before.get(2);
        (is_first && queue.len() == 2).then_some(())
    });
    tokio::select! {
        () = behind => {}
        granted = &mut absent => {
            let (one, other) = (granted.unwrap(), &next);
            let both = one.is_valid() && other.is_valid();
            let (one, other) = (one.fencing_token(), other.fencing_token());
            panic!("granted with {one} after {other}; two valid guards: {both}");
        }
    }
    let token = next.fencing_token();
    next.release().await.unwrap();
    let granted = timeout(PATIENCE, absent).await.unwrap().unwrap();
    assert!(granted.fencing_token() > token);
}

/// The replica knows the session by its first connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_goes_on_where_its_last_connection_is_forgotten() {
    let pair = Pair::start().await;
    let (here, wires) = pair.session_after(2).await;
    let guard = mutex(&here).acquire().await.unwrap();
    pair.part(1).await;
    wires.down(true);
    until("a cut", async || {
        (here.health() != SessionHealth::Connected).then_some(())
    })
    .await;
    wires.down(false);
    let answered = || until("an answer", async || mutex(&here).participants().await.ok());
    answered().await;
    pair.primary.kill().await.unwrap();
    until("a connection to the replica", async || {
        (wires.count.load(Ordering::SeqCst) > 2).then_some(())
    })
    .await;
    answered().await;
    assert_eq!(here.epoch(), 1);
    verified(&guard).await;
}

/// An operator has removed the node of a holder, which was told, and keeps its guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_a_lost_guard_blocks_nobody_when_it_is_back() {
    let pair = Pair::start().await;
    let (here, _here_wires) = pair.session().await;
    let (there, _there_wires) = pair.session().await;
    let lost = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    waiting(&pair.primary, 2).await;
    pair.part(2).await;
    let removed = queue(&pair.replica).await[0].clone();
    let operator = options(SESSION_TIMEOUT).store(&pair.primary.url()).unwrap();
    let operator = opened(&*operator).await;
    operator.delete(&format!("{PATH}/{removed}")).await.unwrap();
    let told = timeout(PATIENCE, lost.lost()).await.unwrap();
    assert_eq!(told.reason, LostReason::NodeRemoved);
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    pair.primary.kill().await.unwrap();
    until("the replica", async || next.verify().await.ok()).await;
    next.release().await.unwrap();
    let last = options(SESSION_TIMEOUT).connect(&pair.replica.url()).await;
    let lock = mutex(&last.unwrap());
    let granted = timeout(5 * SESSION_TIMEOUT, lock.acquire()).await;
    let left = queue(&pair.replica).await;
    assert!(granted.is_ok(), "removed {removed}; the queue: {left:?}");
    assert_eq!(here.epoch(), 1);
}
