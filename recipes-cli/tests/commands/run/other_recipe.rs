//! Directories with nodes of another recipe, which would not keep the command out.

use recipes_multilock::{Member, MultiLock};
use test_rig::{Direction, FaultProxy};

use super::family::Family;
use super::{LONG, PATH, server, start};
use crate::lockctl::{output, said};

/// `node` is of the other recipe.
fn refusal(node: &str, recipe: &str, modes: &str) -> String {
    format!(
        "lockctl: lock \"{PATH}\" not acquired: \"{node}\" is of {recipe}, and the two would not keep \
         each other out; use another path, or delete what is left over; or use --mode {modes}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_refused_next_to_nodes_of_another_recipe() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let session = ensemble.session().await;
    for (member, modes, recipe, instead) in [
        (
            Member::read(PATH),
            &["mutex", "leader", "leader-latch", "semaphore:2"][..],
            "a read/write lock",
            "read or write",
        ),
        (
            Member::write(PATH),
            &["mutex"],
            "a read/write lock",
            "read or write",
        ),
        (
            Member::mutex(PATH),
            &["read", "write", "leader-latch", "semaphore:1"],
            "a mutex",
            "mutex or leader",
        ),
    ] {
        let held = MultiLock::new(&session, [member]).unwrap();
        let held = held.acquire().await.unwrap();
        let node = held.members()[0].node_path.clone();
        for mode in modes {
            let family = Family::new();
            let arguments = [LONG, "--timeout", "0s", "--mode", mode, PATH];
            let ran = output(family.run(&connect, &arguments, "echo ran > ran")).await;
            assert_eq!(ran.status.code(), Some(64), "{ran:?}");
            let told = said(&ran).replace(&format!("{PATH}/leases"), PATH);
            assert_eq!(told, refusal(&node, recipe, instead));
            assert_eq!(family.read("ran"), "");
        }
        held.release().await.unwrap();
        ensemble.await_children(PATH, 0).await;
    }
}

/// Held at the proxy: its node is not made yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_another_recipe_that_comes_meanwhile_keeps_the_command_from_its_start() {
    let ensemble = start().await;
    let direct = server(&ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let creates = proxy.on(Direction::ToServer).path_contains("-lock-");
    let gate = creates.hold();
    let family = Family::new();
    let run = family.run(&proxy.connect_string(), &[LONG, PATH], "echo ran > ran");
    let running = tokio::spawn(output(run));
    gate.reached().await;
    let session = ensemble.session().await;
    let held = MultiLock::new(&session, [Member::read(PATH)]).unwrap();
    let held = held.acquire().await.unwrap();
    gate.release();
    let ran = running.await.unwrap();
    assert_eq!(ran.status.code(), Some(64), "{ran:?}");
    let node = held.members()[0].node_path.clone();
    assert_eq!(
        said(&ran),
        refusal(&node, "a read/write lock", "read or write")
    );
    assert_eq!(family.read("ran"), "");
    // It has left nothing behind.
    ensemble.await_children(PATH, 1).await;
    held.release().await.unwrap();
}
