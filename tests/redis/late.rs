//! What arrives late, or is in flight when the connection or the session ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_recipes::InterProcessMutex;
use recipes_core::{NodeEvent, NodeMode};
use test_rig::RedisServer;
use tokio::time::{sleep, timeout};

use super::wires::Wires;
use super::{
    PATH, PATIENCE, SOON, mutex, name, node, opened, options, session, take_and_give_back, until,
    waiting,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_of_a_lost_connection_is_not_carried_out_after_the_search() {
    let server = RedisServer::start().await.unwrap();
    let port = server.port();
    let wires = Wires::to(move |_| port).await;
    let here = options(Duration::from_secs(8))
        .connect(&wires.url())
        .await
        .unwrap();
    take_and_give_back(&here).await;
    wires.hold(true);
    // Gives the first connection up after T/4, searches over the second, creates another node.
    let guard = timeout(PATIENCE, mutex(&here).acquire())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(here.epoch(), 1);
    guard.release().await.unwrap();
    // Now the packets of the first connection arrive.
    wires.hold(false);
    sleep(Duration::from_secs(1)).await;
    let there = session(&server, Duration::from_secs(8)).await;
    let names: Vec<String> = server
        .command(&["ZRANGE", &format!("{{locks}}:c:{PATH}"), "0", "-1"])
        .await
        .unwrap();
    let granted = timeout(SOON, mutex(&there).acquire()).await;
    assert_eq!(here.epoch(), 1);
    assert!(
        granted.is_ok(),
        "nobody holds the lock, but it is not granted: {names:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwatch_of_a_lost_connection_removes_no_later_watch() {
    let server = RedisServer::start().await.unwrap();
    let port = server.port();
    let wires = Wires::to(move |_| port).await;
    let options = || options(Duration::from_secs(20));
    let waiter = opened(&*options().store(&wires.url()).unwrap()).await;
    let holder = opened(&*options().store(&server.url()).unwrap()).await;
    holder
        .create(&node("/d", NodeMode::Persistent))
        .await
        .unwrap();
    let p = holder
        .create(&node("/d/lock-", NodeMode::EphemeralSequential))
        .await
        .unwrap()
        .path;
    let (_, _, watch) = waiter.watch(&p).await.unwrap().unwrap();
    wires.hold(true);
    drop(watch);
    // Over the next connection.
    let again = until("a watch", async || waiter.watch(&p).await.ok()).await;
    let (_, _, watch) = again.unwrap();
    wires.hold(false);
    sleep(Duration::from_secs(1)).await;
    holder.delete(&p).await.unwrap();
    assert_eq!(timeout(SOON, watch).await, Ok(NodeEvent::Deleted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_of_an_earlier_connection_leaves_no_spare_watch() {
    let server = RedisServer::start().await.unwrap();
    let port = server.port();
    let wires = Wires::to(move |_| port).await;
    let direct = options(Duration::from_secs(40))
        .store(&server.url())
        .unwrap();
    let holder = direct.connect().await.unwrap();
    let store = options(Duration::from_secs(40))
        .store(&wires.url())
        .unwrap();
    let waiter = store.connect().await.unwrap();
    holder
        .create(&node("/d", NodeMode::Persistent))
        .await
        .unwrap();
    let sequential = node("/d/lock-", NodeMode::EphemeralSequential);
    let p = holder.create(&sequential).await.unwrap().path;
    let own = waiter.create(&sequential).await.unwrap().path;
    let look = waiter.list_again("/d", name(&own));
    // It is answered; the task of the contender is busy elsewhere.
    waiter.sync("/").await.unwrap();
    wires.down(true);
    until("the cut", async || waiter.list("/d").now_or_lost().await).await;
    holder.delete(&p).await.unwrap();
    wires.down(false);
    until("an answer", async || waiter.list("/d").await.ok()).await;
    look.await.unwrap();
    // Asked over the new connection, long after the deletion.
    if let Some((_, _, watch)) = waiter.watch(&p).await.unwrap() {
        let event = timeout(SOON, watch).await;
        assert_eq!(
            event,
            Ok(NodeEvent::Deleted),
            "exists, it says, and never says otherwise"
        );
    }
}

trait NowOrLost {
    async fn now_or_lost(self) -> Option<()>;
}

impl<F: Future<Output = Result<T, E>>, T, E> NowOrLost for F {
    /// Whether it is not answered at once, because there is no connection.
    async fn now_or_lost(self) -> Option<()> {
        match timeout(Duration::from_millis(200), self).await {
            Ok(Ok(_)) => None,
            Ok(Err(_)) | Err(_) => Some(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_was_made_before_the_close_is_sent() {
    let server = RedisServer::start().await.unwrap();
    let store = options(Duration::from_secs(40))
        .store(&server.url())
        .unwrap();
    let other = store.connect().await.unwrap();
    let mut lost = 0;
    for number in 0..100 {
        let path = format!("/{number}");
        other
            .create(&node(&path, NodeMode::Persistent))
            .await
            .unwrap();
        let nodes = store.connect().await.unwrap();
        let deleted = nodes.delete(&path);
        drop(nodes);
        drop(deleted.await);
        lost += i32::from(other.stat(&path).await.unwrap().is_some());
    }
    sleep(Duration::from_millis(500)).await;
    let mut stay = 0;
    for number in 0..100 {
        stay += i32::from(other.stat(&format!("/{number}")).await.unwrap().is_some());
    }
    assert_eq!(stay, 0, "{lost} when the answer was there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_an_operator_deletes_by_hand_breaks_no_other_lock() {
    let server = RedisServer::start().await.unwrap();
    let port = server.port();
    let wires = Wires::to(move |_| port).await;
    let here = session(&server, Duration::from_secs(8)).await;
    let there = options(Duration::from_secs(8))
        .connect(&wires.url())
        .await
        .unwrap();
    let _held = mutex(&here).acquire().await.unwrap();
    let other = InterProcessMutex::new(&there, "/locks/other").unwrap();
    let kept = other.acquire().await.unwrap();
    let keys: Vec<String> = server
        .command(&["KEYS", &format!("{{locks}}:n:{PATH}/*")])
        .await
        .unwrap();
    let _: i64 = server.command(&["DEL", &keys[0]]).await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
    sleep(Duration::from_secs(10)).await;
    let connections = wires.count.load(Ordering::SeqCst);
    let (state, epoch) = (kept.state(), there.epoch());
    waiter.abort();
    assert!(
        connections < 5,
        "{connections} connections in 10 s; the other lock is {state:?}, epoch {epoch}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_whose_release_was_lost_in_a_failover_is_free() {
    let primary = RedisServer::start().await.unwrap();
    let session_timeout = Duration::from_secs(6);
    let port_of_primary = primary.port();
    let replica = RedisServer::builder()
        .replica_of(&primary)
        .start()
        .await
        .unwrap();
    let port_of_replica = replica.port();
    let wires = Wires::to(move |number| match number {
        1 => port_of_primary,
        _ => port_of_replica,
    })
    .await;
    let here = options(session_timeout)
        .connect(&wires.url())
        .await
        .unwrap();
    let guard = mutex(&here).acquire().await.unwrap();
    // The replica has the node.
    waiting(&replica, 1).await;
    let _ok: String = replica.command(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    // Acknowledged by the primary, and lost.
    guard.release().await.unwrap();
    primary.kill().await.unwrap();
    until("an answer", async || mutex(&here).participants().await.ok()).await;
    let there = session(&replica, session_timeout).await;
    let granted = timeout(5 * session_timeout, mutex(&there).acquire()).await;
    let (epoch, left) = (
        here.epoch(),
        mutex(&there).participants().await.unwrap().len(),
    );
    assert!(
        granted.is_ok(),
        "nobody holds the lock; {left} in the queue, epoch {epoch} of who released it"
    );
}
