//! What happens to locks when processes are halted or killed: holders, waiters, servers.
//!
//! Similar tests are elsewhere: servers that are stopped and sessions that are closed under waiters
//! in `session_loss`, guards of a runtime that has ended in `interleavings`, and all of it at
//! random in `histories`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/again.rs"]
mod again;
mod deposed;
mod ensemble;
mod etcd_leaders;
mod etcd_members;
mod runtime;
mod server;
mod sleeper;
#[path = "../support/talk.rs"]
mod talk;

use std::time::Duration;

use lock_recipes::{InterProcessMutex, MutexGuard, Session, ZooKeeper};
use test_rig::history::monotonic_now;
use test_rig::{TestEnsemble, WritesLog as _, ZooKeeperServer};
use tokio::task::JoinHandle;

const PATH: &str = "/locks/orders";
/// For sessions that must be lost.
const SHORT: Duration = Duration::from_secs(4);
/// For sessions that must not be lost, even on a busy machine.
const LONG: Duration = Duration::from_secs(40);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

async fn start() -> TestEnsemble {
    TestEnsemble::Real(ZooKeeperServer::start().await.unwrap().into())
}

fn server(ensemble: &TestEnsemble) -> &ZooKeeperServer {
    match ensemble {
        TestEnsemble::Real(server) => server,
        _ => panic!("no ZooKeeper"),
    }
}

async fn session(ensemble: &TestEnsemble, timeout: Duration) -> Session {
    let options = ZooKeeper::builder().session_timeout(timeout);
    ensemble.session_with(options).await
}

async fn connect(connect_string: &str, timeout: Duration) -> Session {
    let options = ZooKeeper::builder().session_timeout(timeout);
    options.connect(connect_string).await.unwrap()
}

/// A contender that reports when it was granted.
fn waiter(session: &Session) -> JoinHandle<(u64, MutexGuard)> {
    let lock = mutex(session);
    tokio::spawn(async move {
        let granted = lock.acquire().await.unwrap();
        (monotonic_now(), granted)
    })
}

/// A holder and a waiter, once both are in the queue. On a machine that is too busy for a short session, the holder may
/// lose its lock before that. Then both come again.
async fn holder_and_waiter(
    short: &Session,
    long: &Session,
    queued: impl AsyncFn(),
) -> (MutexGuard, JoinHandle<(u64, MutexGuard)>) {
    for _ in 0..10 {
        let held = mutex(short).acquire().await.unwrap();
        let waiting = waiter(long);
        let is_held = tokio::select! {
            _ = held.lost() => false,
            () = queued() => held.is_valid(),
        };
        if is_held {
            return (held, waiting);
        }
        waiting.abort();
    }
    panic!("the holder loses its lock all the time");
}

/// The server's own log shows the end of every lock node.
fn assert_nothing_left(server: &ZooKeeperServer) {
    let log = server.transaction_log().unwrap();
    for (path, life) in log.lock_nodes().iter() {
        assert!(life.removed.is_some(), "{path} is left: {life:?}");
    }
}
