//! A waiter that is not notified when it gets its turn, or is notified late.
//!
//! It sends no request while it waits. So what it misses, it learns when its connection is made
//! again: the client then sends its watches to the server, which answers at once for nodes that are
//! gone. TCP loses no frame on a live connection, however late the frame may be.

use std::time::Duration;

use lock_recipes::{MutexGuard, Session, SessionHealth};
use test_rig::{Cut, Direction, Fault, FaultProxy, Opcode, ZooKeeperServer};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zookeeper_client::Client;

use super::{LONG, PATH, await_health, await_queue, connect, granted, mutex, proxy, waiter};

/// A holder, and a waiter behind a proxy.
struct Scene {
    proxy: FaultProxy,
    operator: Client,
    waiting: Session,
    held: MutexGuard,
    waiter: JoinHandle<MutexGuard>,
    _holding: Session,
    _server: ZooKeeperServer,
}

impl Scene {
    /// Returns when the waiter watches its own node and the holder's.
    async fn set(session_timeout: Duration) -> Self {
        let server = ZooKeeperServer::start().await.unwrap();
        let proxy = proxy(&server).await;
        let operator = server.client().await.unwrap();
        let holding = connect(&server.connect_string(), LONG).await;
        let waiting = connect(&proxy.connect_string(), session_timeout).await;
        let held = mutex(&holding).acquire().await.unwrap();
        let waiter = waiter(&waiting);
        let watches = proxy.on(Direction::FromServer).opcode(Opcode::GetData);
        watches.nth(2).seen().await;
        Self {
            proxy,
            operator,
            waiting,
            held,
            waiter,
            _holding: holding,
            _server: server,
        }
    }

    async fn cut_off(&self) {
        self.proxy.refuse_connections().await;
        self.proxy.cut_all(Cut::Fin);
        await_health(&self.waiting, SessionHealth::Disconnected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_released_while_the_waiter_is_cut_off_is_granted_when_it_is_back() {
    let scene = Scene::set(LONG).await;
    scene.cut_off().await;
    scene.held.release().await.unwrap();
    let queue = await_queue(&scene.operator, 1).await;
    assert!(!scene.waiter.is_finished());
    scene.proxy.accept_connections().await.unwrap();
    let granted = granted(scene.waiter).await;
    let own = format!("{PATH}/{}", queue[0]);
    assert_eq!(granted.members()[0].node_path, own, "lost its place");
    assert_eq!(scene.waiting.epoch(), 1);
    granted.verify().await.unwrap();
    granted.release().await.unwrap();
    await_queue(&scene.operator, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_node_is_removed_while_it_is_cut_off_joins_again_when_it_is_back() {
    let scene = Scene::set(LONG).await;
    let first = scene.held.members()[0].node_path.clone();
    scene.cut_off().await;
    let queue = await_queue(&scene.operator, 2).await;
    let paths = queue.iter().map(|name| format!("{PATH}/{name}"));
    let removed = paths.filter(|path| *path != first).collect::<Vec<_>>();
    scene.operator.delete(&removed[0], None).await.unwrap();
    scene.proxy.accept_connections().await.unwrap();
    await_queue(&scene.operator, 2).await;
    assert!(!scene.waiter.is_finished());
    scene.held.release().await.unwrap();
    let granted = granted(scene.waiter).await;
    assert_ne!(granted.members()[0].node_path, removed[0]);
    assert_eq!(scene.waiting.epoch(), 1);
    granted.release().await.unwrap();
    await_queue(&scene.operator, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_that_is_late_grants_when_it_comes() {
    const LATE: Duration = Duration::from_secs(2);
    let scene = Scene::set(LONG).await;
    let notification = scene.proxy.on(Direction::FromServer);
    let late = notification.opcode(Opcode::Notification);
    let late = late.then(Fault::Delay(LATE));
    let released = Instant::now();
    scene.held.release().await.unwrap();
    let granted = granted(scene.waiter).await;
    assert_eq!(late.count(), 1);
    assert!(released.elapsed() >= LATE, "{:?}", released.elapsed());
    assert!(granted.is_valid());
    granted.release().await.unwrap();
    await_queue(&scene.operator, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notification_that_is_lost_is_made_up_for_by_the_next_connection() {
    // A heartbeat is sent every two seconds.
    let scene = Scene::set(Duration::from_secs(12)).await;
    let notification = scene.proxy.on(Direction::FromServer);
    let lost = notification.opcode(Opcode::Notification).then(Fault::Drop);
    scene.held.release().await.unwrap();
    lost.struck().await;
    let heartbeat = || scene.proxy.on(Direction::FromServer).opcode(Opcode::Sync);
    let before = heartbeat().count();
    heartbeat().nth(before + 1).seen().await;
    assert!(!scene.waiter.is_finished(), "granted by nobody");
    scene.proxy.cut_all(Cut::Reset);
    let granted = granted(scene.waiter).await;
    assert_eq!(scene.waiting.epoch(), 1);
    granted.release().await.unwrap();
    await_queue(&scene.operator, 0).await;
}
