//! Faults of other lock implementations. The peer itself shows each fault, and the same script runs
//! on this library, afterwards or at the same time.
//!
//! The peers are zookeeper-client, whose `Client::lock` this library does not use, Apache Curator,
//! go-zookeeper and kazoo, on etcd Go's `concurrency`, and on Redis Redisson. Their versions are those in `Cargo.lock`, in Debian's
//! package, in tests/newest/curator.xml and in tests/peers. If a fault is fixed in another version, the peer's
//! half of its test fails, and docs/compared.md has to follow. Where a newer release of Curator has
//! fixed it, the test shows that too, and its comment names the release.

mod curator;
mod etcd;
mod go;
mod kazoo;
mod latch;
mod redisson;
mod semaphore;
mod sets;
mod zookeeper_client;

use std::time::Duration;

use ::zookeeper_client::Client;
use lock_recipes::{InterProcessMutex, Session, ZooKeeper};
use test_rig::{FaultProxy, TestEnsemble, ZooKeeperServer};

pub(crate) const THEIRS: &str = "/locks/theirs";
pub(crate) const OURS: &str = "/locks/ours";
/// After this long, something that has not happened is not going to.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// How long the peers try.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Anything that takes longer has gone wrong.
const SOON: Duration = Duration::from_secs(120);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap()
}

/// Repeats what has come too late: false if the machine was so slow that the server had ended a dead session before its
/// client was back.
async fn before_the_dead_session_ends(shown: impl AsyncFn() -> bool) {
    const ATTEMPTS: usize = 5;
    for _ in 0..ATTEMPTS {
        if shown().await {
            return;
        }
    }
    panic!("each time the server had ended the dead session before its client was back");
}

pub(crate) fn server(ensemble: &TestEnsemble) -> &ZooKeeperServer {
    match ensemble {
        TestEnsemble::Real(server) => server,
        _ => panic!("not a server"),
    }
}

pub(crate) async fn client(ensemble: &TestEnsemble) -> Client {
    server(ensemble).client().await.unwrap()
}

/// A proxy of its own for each client, so that faults stay apart.
pub(crate) async fn proxy(ensemble: &TestEnsemble) -> FaultProxy {
    let server = server(ensemble).connect_string();
    FaultProxy::start(&server).await.unwrap()
}

pub(crate) async fn client_through(proxy: &FaultProxy, session_timeout: Duration) -> Client {
    let connector = Client::connector().with_session_timeout(session_timeout);
    connector.connect(&proxy.connect_string()).await.unwrap()
}

pub(crate) async fn session_through(proxy: &FaultProxy, session_timeout: Duration) -> Session {
    let builder = ZooKeeper::builder().session_timeout(session_timeout);
    builder.connect(&proxy.connect_string()).await.unwrap()
}

pub(crate) fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}
