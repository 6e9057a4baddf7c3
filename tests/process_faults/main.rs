//! What becomes of locks when processes are halted or killed: holders, waiters, servers.
//!
//! Of the same kind, elsewhere: a server that is stopped, sessions that are closed under waiters
//! (`session_loss`), guards of a runtime that is gone (`interleavings`), all of it by chance
//! (`histories`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

#[path = "../common/again.rs"]
mod again;
mod deposed;
mod ensemble;
mod runtime;
mod server;
mod sleeper;
#[path = "../common/talk.rs"]
mod talk;

use std::time::Duration;

use recipes_testing::history::monotonic_now;
use recipes_testing::{TestEnsemble, ZooKeeperServer};
use tokio::task::JoinHandle;
use zookeeper_recipes::{InterProcessMutex, MutexGuard, Session};

const PATH: &str = "/locks/orders";
/// Of those that shall lose it.
const SHORT: Duration = Duration::from_secs(1);
/// Of those that shall not, whatever a busy machine does.
const LONG: Duration = Duration::from_secs(40);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

async fn start() -> TestEnsemble {
    TestEnsemble::Real(ZooKeeperServer::start().await.unwrap())
}

fn server(ensemble: &TestEnsemble) -> &ZooKeeperServer {
    match ensemble {
        TestEnsemble::Real(server) => server,
        TestEnsemble::Memory(_) => panic!("a double has no process"),
    }
}

async fn session(ensemble: &TestEnsemble, timeout: Duration) -> Session {
    let options = Session::builder().session_timeout(timeout);
    ensemble.session_with(options).await
}

async fn connect(connect_string: &str, timeout: Duration) -> Session {
    let options = Session::builder().session_timeout(timeout);
    options.connect(connect_string).await.unwrap()
}

/// A contender that says when it was granted.
fn waiter(session: &Session) -> JoinHandle<(u64, MutexGuard)> {
    let lock = mutex(session);
    tokio::spawn(async move {
        let granted = lock.acquire().await.unwrap();
        (monotonic_now(), granted)
    })
}

/// The server's own log has the end of every lock node.
fn assert_nothing_left(server: &ZooKeeperServer) {
    let log = server.transaction_log().unwrap();
    for (path, life) in log.lock_nodes().iter() {
        assert!(life.removed.is_some(), "{path} is left: {life:?}");
    }
}
