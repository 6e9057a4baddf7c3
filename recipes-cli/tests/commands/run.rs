//! `lockctl run` on a real server.

mod acl;
mod codes;
mod contention;
mod delegated;
mod diagnosis;
mod escape;
mod family;
mod first_process;
mod halted;
mod inherited;
mod job;
mod killed;
mod leader;
mod lost;
mod nested;
mod other_recipe;
mod process;
mod refused;
mod resumed;
mod revoked;
mod signals;
mod spared;
mod supervisor;
mod terminal;
mod together;
mod unread;
mod unstarted;
mod whom;
use std::time::Duration;

use recipes_core::{LockGuard, Session};
use recipes_multilock::{Member, MultiLock};
use test_rig::{Place, TestEnsemble, ZooKeeperServer, shared};
use tokio::task::JoinHandle;
use zookeeper_client::Client;

const PATH: &str = "/locks/nightly";

/// The server that the other tests use, too.
async fn start() -> TestEnsemble {
    shared::on_a_real_server().await
}

fn server(ensemble: &TestEnsemble) -> &Place<ZooKeeperServer, Client> {
    match ensemble {
        TestEnsemble::Real(server) => server,
        _ => panic!("no ZooKeeper"),
    }
}

fn mutex(session: &Session) -> MultiLock {
    MultiLock::new(session, [Member::mutex(PATH)]).unwrap()
}

/// Queues up after the holder. Granted when the server allows it.
async fn next_in_line(ensemble: &TestEnsemble) -> (Session, JoinHandle<LockGuard>) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap().into() });
    // A slow machine may have lost the holder's session already.
    let queued = async || {
        let is_queued = ensemble.children(PATH).await.len() == 2;
        (is_queued || waiting.is_finished()).then_some(())
    };
    ensemble.until("a second contender", queued).await;
    (session, waiting)
}

fn token(guard: &LockGuard) -> i64 {
    guard.members()[0].fencing_token.as_i64()
}

/// So long that no deadline passes within a test.
const LONG: &str = "--session-timeout=40s";
/// For sessions whose deadline must pass. A third of it is the patience with a slow machine until then.
const SHORT: &str = "--session-timeout=12s";

/// For locks that heartbeats keep for longer than the session timeout, on a machine that keeps each
/// process waiting for a second and more.
const KEPT: &str = "--session-timeout=16s";
/// Longer than the session timeout of [`KEPT`].
const KEPT_FOR: Duration = Duration::from_secs(20);

/// Immediate actions happen within this time on any machine, and the deadline of a [`LONG`] session
/// is much later.
const SOON: Duration = Duration::from_secs(10);
