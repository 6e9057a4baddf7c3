//! Nodes and servers that go away, do not exist or do not answer during a command. Each is reported
//! in one line.

use std::process::Output;

use futures::future::join_all;
use recipes_multilock::Member;
use serde_json::json;
use test_rig::{Direction, Fault, FaultProxy, Opcode, TestEnsemble};
use tokio::process::Command;
use tokio::time::timeout;

use super::{held, json, node_of, printed, server, start};
use crate::lockctl::{PATIENCE, lockctl, output, said};

/// Commands that look below a root. Finding nothing is not an error for them.
const OVERVIEWS: [&str; 2] = ["ls", "deadlocks"];

fn command(connect: &str, task: &str, path: &str) -> Command {
    let arguments = match task {
        "break" => vec![task, "--yes", path],
        "run" => vec![task, path, "--", "true"],
        _ => vec![task, path],
    };
    lockctl(connect, &arguments)
}

async fn proxy(ensemble: &TestEnsemble) -> FaultProxy {
    let proxy = FaultProxy::start(&server(ensemble).connect_string()).await;
    proxy.unwrap()
}

/// It succeeded, without a message.
fn assert_done(ran: &Output) {
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(ran.stderr.is_empty(), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chroot_that_does_not_exist_is_told_by_all() {
    let ensemble = start().await;
    let chroot = format!("{}/missing/chroot", server(&ensemble).connect_string());
    for task in ["ls", "inspect", "revoke", "break", "deadlocks", "run"] {
        let ran = output(command(&chroot, task, "/locks")).await;
        assert_eq!(ran.status.code(), Some(66), "{ran:?}");
        let said = said(&ran);
        assert!(said.contains("/missing/chroot does not exist"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_below_a_root_is_no_mistake() {
    let ensemble = start().await;
    ensemble.create("/config/limits", b"data").await;
    assert_eq!(
        json(&ensemble, &["ls", "/config"]).await["locks"],
        json!([])
    );
    let told = printed(&ensemble, &["deadlocks", "/config"]).await;
    assert_eq!(told, "no deadlock; 0 waits seen\n");
}

/// The session is opened, and then no request is answered any more. `run` waits, as it does for the
/// lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensemble_that_falls_silent() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let held = held(&session, Member::mutex("/locks/a")).await;
    let told = ["ls", "inspect", "revoke", "break", "deadlocks"].map(async |task| {
        let proxy = proxy(&ensemble).await;
        let requests = proxy.on(Direction::ToServer);
        // Over each connection: the session goes on over another soon.
        let never = requests.opcode(Opcode::GetChildren).each();
        let _never = never.then(Fault::BlackHole);
        let mut command = command(&proxy.connect_string(), task, "/locks/a");
        command.env("LOCKCTL_CONNECT_TIMEOUT", "20s");
        let ran = output(command).await;
        assert_eq!(ran.status.code(), Some(69), "{ran:?}");
        assert!(said(&ran).contains("/locks/a"), "{ran:?}");
    });
    join_all(told).await;
    assert!(held.is_valid());
}

/// Releases a holder's node before the proxy lets through a task's request for it.
async fn vanishing(task: &str, opcode: Opcode) -> (Output, String) {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex("/locks/a")).await;
    let node = node_of(&guard);
    let proxy = proxy(&ensemble).await;
    let requests = proxy.on(Direction::ToServer).opcode(opcode);
    let gate = requests.path_contains("lock-").hold();
    let root = match OVERVIEWS.contains(&task) {
        true => "/locks",
        false => "/locks/a",
    };
    let running = tokio::spawn(output(command(&proxy.connect_string(), task, root)));
    let reached = timeout(PATIENCE, gate.reached()).await;
    assert!(reached.is_ok(), "{task} sends no {opcode:?}");
    guard.release().await.unwrap();
    gate.release();
    (running.await.unwrap(), node)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_vanishes_while_it_is_read() {
    // A contender that waits for the node has the lock then.
    for task in ["ls", "deadlocks", "inspect", "run"] {
        let (ran, _) = vanishing(task, Opcode::GetData).await;
        assert_done(&ran);
    }
    for task in ["revoke", "break"] {
        let (ran, _) = vanishing(task, Opcode::GetData).await;
        assert_eq!(ran.status.code(), Some(66), "{task}: {ran:?}");
        assert!(said(&ran).contains("/locks/a"), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_vanishes_between_the_look_and_the_change() {
    for (task, opcode) in [("revoke", Opcode::Multi), ("break", Opcode::Delete)] {
        let (ran, node) = vanishing(task, opcode).await;
        assert_done(&ran);
        let told = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(told, format!("gone already: {node}\n"), "{task}");
    }
}
