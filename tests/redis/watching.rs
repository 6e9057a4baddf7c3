//! Watches that come with a listing: none is lost.

use std::time::Duration;

use futures::{FutureExt as _, poll};
use recipes_core::{NodeEvent, NodeMode, NodeOp};
use test_rig::{Cut, Direction, FaultProxy, RedisServer};
use tokio::time::{sleep, timeout};

use super::wires::Wires;
use super::{SOON, mutex, name, node, options, session, until, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unwatch_behind_a_look_leaves_its_watches() {
    let server = RedisServer::start().await.unwrap();
    let store = options(Duration::from_secs(40))
        .store(&server.url())
        .unwrap();
    let holder = store.connect().await.unwrap();
    let waiter = store.connect().await.unwrap();
    holder
        .create(&node("/d", NodeMode::Persistent))
        .await
        .unwrap();
    let sequential = node("/d/lock-", NodeMode::EphemeralSequential);
    let p = holder.create(&sequential).await.unwrap().path;
    let (_, _, earlier) = waiter.watch(&p).await.unwrap().unwrap();
    let own = waiter.create(&sequential).await.unwrap().path;
    let look = waiter.list_again("/d", name(&own));
    // Another contender of the same session gives up.
    drop(earlier);
    assert_eq!(look.await.unwrap().len(), 2);
    let (_, _, watch) = waiter.watch(&p).await.unwrap().unwrap();
    holder.delete(&p).await.unwrap();
    assert_eq!(
        timeout(SOON, watch).await,
        Ok(NodeEvent::Deleted),
        "a missed wake-up"
    );
}

/// The same by locks: one contender of a session gives up while another queues up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_woken_although_another_of_its_session_has_given_up() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(40)).await;
    let there = session(&server, Duration::from_secs(40)).await;
    let mut hung = 0;
    for _ in 0..5 {
        let guard = mutex(&here).acquire().await.unwrap();
        let mut gives_up = Box::pin(mutex(&there).acquire());
        assert!(
            timeout(Duration::from_millis(300), &mut gives_up)
                .await
                .is_err()
        );
        let mut waits = Box::pin(mutex(&there).acquire());
        assert!(poll!(&mut waits).is_pending());
        drop(gives_up);
        let waiter = tokio::spawn(waits);
        waiting(&server, 2).await;
        sleep(Duration::from_millis(300)).await;
        guard.release().await.unwrap();
        match timeout(SOON, waiter).await {
            Ok(next) => drop(next.unwrap().unwrap().release().await.unwrap()),
            Err(_) => {
                hung += 1;
                break;
            }
        }
    }
    assert_eq!(
        hung, 0,
        "nobody holds the lock, and its only waiter is not woken"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_was_not_polled_over_a_reconnect_is_woken() {
    let server = RedisServer::start().await.unwrap();
    let port = server.port();
    let wires = Wires::to(move |_| port).await;
    let here = session(&server, Duration::from_secs(40)).await;
    let there = options(Duration::from_secs(40))
        .connect(&wires.url())
        .await
        .unwrap();
    let guard = mutex(&here).acquire().await.unwrap();
    let mut waits = Box::pin(mutex(&there).acquire());
    assert!(poll!(&mut waits).is_pending());
    waiting(&server, 2).await;
    sleep(Duration::from_millis(300)).await;
    wires.down(true);
    sleep(Duration::from_millis(300)).await;
    guard.release().await.unwrap();
    wires.down(false);
    until("an answer", async || {
        mutex(&there).participants().await.ok()
    })
    .await;
    sleep(Duration::from_millis(300)).await;
    let granted = timeout(SOON, waits).await;
    assert!(
        granted.is_ok(),
        "nobody holds the lock, and its only waiter is not woken"
    );
}

/// The lock looks again after a reconnect, so no lock shows whether the store keeps its watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_tells_of_a_deletion_before_and_after_the_session_is_resumed() {
    let server = RedisServer::start().await.unwrap();
    let proxy = FaultProxy::start_for_redis(&format!("127.0.0.1:{}", server.port())).await;
    let proxy = proxy.unwrap();
    let options = || options(Duration::from_secs(40));
    let url = format!("redis://{}", proxy.connect_string());
    let waiter = options().store(&url).unwrap().connect().await.unwrap();
    let holder = options().store(&server.url()).unwrap();
    let holder = holder.connect().await.unwrap();
    for path in ["/before", "/after"] {
        let node = node(path, NodeMode::Persistent);
        holder.create(&node).await.unwrap();
    }
    let (_, _, before) = waiter.watch("/before").await.unwrap().unwrap();
    let (_, _, after) = waiter.watch("/after").await.unwrap().unwrap();

    // Before it nobody would hear the news.
    let gate = proxy.on(Direction::ToServer).named("SUBSCRIBE").hold();
    proxy.cut_all(Cut::Reset);
    timeout(SOON, gate.reached()).await.unwrap();
    holder.delete("/before").await.unwrap();
    gate.release();
    assert_eq!(timeout(SOON, before).await, Ok(NodeEvent::Deleted));
    // Its answer says that `/after` was there.
    let resumed = proxy.on(Direction::FromServer).named("resume").seen();
    timeout(SOON, resumed).await.unwrap();
    holder.delete("/after").await.unwrap();
    assert_eq!(timeout(SOON, after).await, Ok(NodeEvent::Deleted));
}

/// What has happened to watched nodes while the session had no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_goes_on_hears_what_it_has_missed() {
    let server = RedisServer::start().await.unwrap();
    let proxy = FaultProxy::start_for_redis(&format!("127.0.0.1:{}", server.port())).await;
    let proxy = proxy.unwrap();
    let long = Duration::from_secs(600);
    let here = options(long).store(&server.url()).unwrap();
    let there = format!("redis://{}", proxy.connect_string());
    let there = options(long).store(&there).unwrap();
    let (here, there) = (
        here.connect().await.unwrap(),
        there.connect().await.unwrap(),
    );
    let mut watches = Vec::new();
    for path in ["/same", "/changed", "/gone", "/anew"] {
        here.create(&node(path, NodeMode::Persistent))
            .await
            .unwrap();
        watches.push(there.watch(path).await.unwrap().unwrap().2);
    }
    proxy.refuse_connections().await;
    proxy.cut_all(Cut::Reset);
    let changed = NodeOp::Set {
        path: "/changed".to_owned(),
        data: b"new".to_vec(),
        version: None,
    };
    here.multi(vec![changed]).await.unwrap();
    for path in ["/gone", "/anew"] {
        here.delete(path).await.unwrap();
    }
    here.create(&node("/anew", NodeMode::Persistent))
        .await
        .unwrap();
    proxy.accept_connections().await.unwrap();
    let [same, changed, gone, anew] = watches.try_into().ok().unwrap();
    assert_eq!(timeout(SOON, changed).await, Ok(NodeEvent::Changed));
    assert_eq!(timeout(SOON, gone).await, Ok(NodeEvent::Deleted));
    assert_eq!(timeout(SOON, anew).await, Ok(NodeEvent::Deleted));
    assert!(same.now_or_never().is_none());
}
