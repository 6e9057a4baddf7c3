//! Servers and networks that are not down but odd: slow, forgetful, outdated, read-only or full,
//! and waiters that miss a notification.
//!
//! All tests run on real servers, through a proxy if the network is at fault. Connections that
//! break at a chosen frame are in `sweep`. Servers that are killed or halted are in
//! `process_faults`.

mod asked;
mod deposed;
mod elsewhere;
mod refusing;
mod slow;
mod unheard;

use std::time::Duration;

use lock_recipes::{GuardState, InterProcessMutex, MutexGuard, Session, SessionHealth, ZooKeeper};
use test_rig::{FaultProxy, ZooKeeperServer};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error};

const PATH: &str = "/locks/orders";
/// For sessions that must survive on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// Longer than any awaited event takes.
const PATIENCE: Duration = Duration::from_secs(120);
const ASK_AGAIN: Duration = Duration::from_millis(5);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

async fn proxy(server: &ZooKeeperServer) -> FaultProxy {
    FaultProxy::start(&server.connect_string()).await.unwrap()
}

async fn connect(connect_string: &str, timeout: Duration) -> Session {
    let options = ZooKeeper::builder().session_timeout(timeout);
    options.connect(connect_string).await.unwrap()
}

fn waiter(session: &Session) -> JoinHandle<MutexGuard> {
    let lock = mutex(session);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

async fn granted(waiter: JoinHandle<MutexGuard>) -> MutexGuard {
    timeout(PATIENCE, waiter).await.unwrap().unwrap()
}

async fn children(client: &Client, path: &str) -> Vec<String> {
    match client.list_children(path).await {
        Err(Error::NoNode) => Vec::new(),
        names => names.unwrap(),
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let until = async {
        while !is_so().await {
            sleep(ASK_AGAIN).await;
        }
    };
    let done = timeout(PATIENCE, until).await;
    assert!(done.is_ok(), "{what}");
}

async fn await_queue(client: &Client, count: usize) -> Vec<String> {
    let has_so_many = async || children(client, PATH).await.len() == count;
    until(&format!("a queue of {count}"), has_so_many).await;
    children(client, PATH).await
}

async fn await_held(held: &MutexGuard) {
    until("held", async || held.state() == GuardState::Held).await;
}

async fn await_health(session: &Session, health: SessionHealth) {
    until("health", async || session.health() == health).await;
}
