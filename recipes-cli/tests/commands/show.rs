//! `ls`, `inspect`, `deadlocks`, `revoke`, `break` and `completions` on a real server.

mod access;
mod bad_input;
mod change;
mod credentials;
mod deadlock;
mod gone;
mod list;
mod strangers;
mod text_of_others;
use recipes_core::{LockGuard, Session};
use recipes_multilock::{Member, MultiLock};
use serde_json::Value;
use test_rig::{Place, TestEnsemble, ZooKeeperServer, shared};
use tokio::task::JoinHandle;
use zookeeper_client::Client;

use crate::lockctl::{lockctl, output};

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

fn lock(session: &Session, member: Member) -> MultiLock {
    MultiLock::new(session, [member]).unwrap()
}

async fn held(session: &Session, member: Member) -> LockGuard {
    lock(session, member).acquire().await.unwrap().into()
}

/// Queues up, and waits until there are this many nodes.
async fn queued(
    ensemble: &TestEnsemble,
    session: &Session,
    member: Member,
    (path, count): (&str, usize),
) -> JoinHandle<LockGuard> {
    let lock = lock(session, member);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap().into() });
    ensemble.await_children(path, count).await;
    waiting
}

/// What `deadlocks` exits with if there is one, and if there may be one.
const DEADLOCK: i32 = 80;
const POSSIBLE_DEADLOCK: i32 = 81;

/// The output of a command that must succeed.
async fn printed(ensemble: &TestEnsemble, arguments: &[&str]) -> String {
    ended(ensemble, arguments, 0).await
}

/// The output of a command that ends with this code.
async fn ended(ensemble: &TestEnsemble, arguments: &[&str], code: i32) -> String {
    let connect = server(ensemble).connect_string();
    let ran = output(lockctl(&connect, arguments)).await;
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {said}");
    String::from_utf8(ran.stdout).unwrap()
}

async fn json(ensemble: &TestEnsemble, arguments: &[&str]) -> Value {
    json_ended(ensemble, arguments, 0).await
}

async fn json_ended(ensemble: &TestEnsemble, arguments: &[&str], code: i32) -> Value {
    let all = [&["--json"], arguments].concat();
    serde_json::from_str(&ended(ensemble, &all, code).await).unwrap()
}

fn node_of(guard: &LockGuard) -> String {
    guard.members()[0].node_path.clone()
}
