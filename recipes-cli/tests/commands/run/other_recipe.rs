//! Directories with nodes of another recipe, which would not keep the command out.

use recipes_multilock::{Member, MultiLock};
use test_rig::{Direction, FaultProxy};

use super::family::Family;
use super::{LONG, PATH, server, start};
use crate::lockctl::{output, said};

fn refusal(recipe: &str, modes: &str) -> String {
    format!(
        "lockctl: \"{PATH}\" has nodes of a {recipe} lock, which this run and its --mode would not \
         keep out, so the command is not started: use --mode {modes}, or another path; \
         --allow-other-recipe goes on all the same\n"
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
            &["mutex"][..],
            "read/write",
            "read or write",
        ),
        (
            Member::write(PATH),
            &["mutex"],
            "read/write",
            "read or write",
        ),
        (Member::mutex(PATH), &["read", "write"], "mutex", "mutex"),
    ] {
        let held = MultiLock::new(&session, [member]).unwrap();
        let held = held.acquire().await.unwrap();
        for mode in modes {
            let family = Family::new();
            let arguments = [LONG, "--timeout", "0s", "--mode", mode, PATH];
            let ran = output(family.run(&connect, &arguments, "echo ran > ran")).await;
            assert_eq!(ran.status.code(), Some(64), "{ran:?}");
            assert_eq!(said(&ran), refusal(recipe, instead));
            assert_eq!(family.read("ran"), "");
            let asked = [&arguments[..], &["--allow-other-recipe"]].concat();
            let ran = output(family.run(&connect, &asked, "echo ran > ran")).await;
            assert_eq!(ran.status.code(), Some(0), "{ran:?}");
            assert_eq!(family.read("ran"), "ran\n");
        }
        held.release().await.unwrap();
        ensemble.await_children(PATH, 0).await;
    }
}

/// Held at the proxy: it has looked, but its node is not made yet.
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
    assert_eq!(said(&ran), refusal("read/write", "read or write"));
    assert_eq!(family.read("ran"), "");
    // It has left nothing behind.
    ensemble.await_children(PATH, 1).await;
    held.release().await.unwrap();
}
