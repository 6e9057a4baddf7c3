//! The lock is lost between the grant and the start.

use std::process::Stdio;

use rustix::process::Signal;
use tokio::time::timeout;

use super::family::Family;
use super::process::{pid, signal};
use super::{PATH, next_in_line, server, start};
use crate::lockctl::PATIENCE;

const MISSES_MAX: usize = 10;
/// The session is lost in each round.
const BRIEF: &str = "--session-timeout=4s";

/// The result of a `lockctl` that is halted as soon as it has a supervisor, and resumed when another
/// contender has the lock: its code and output, and whether the command ran.
async fn halted_at_the_start(on_lost: &str) -> (Option<i32>, String, bool) {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let arguments = [BRIEF, "--on-lost", on_lost, PATH];
    // The command still runs then, whenever `lockctl` is halted.
    let script = "echo ran > ran; until [ -e granted ]; do sleep 0.05; done";
    let mut command = family.run(&connect, &arguments, script);
    let run = command.stderr(Stdio::piped()).spawn().unwrap();
    let lockctl = pid(&run);
    // The first child appears before it executes its program, and gets its orders only afterwards.
    let children = format!("/proc/{lockctl}/task/{lockctl}/children");
    let caught = tokio::task::spawn_blocking(move || {
        while std::fs::read_to_string(&children).unwrap().is_empty() {}
        signal(lockctl, Signal::STOP);
    });
    caught.await.unwrap();
    let (_session, next) = next_in_line(&ensemble).await;
    let granted = next.await.unwrap();
    std::fs::write(family.path("granted"), "").unwrap();
    signal(lockctl, Signal::CONT);
    let ended = timeout(PATIENCE, run.wait_with_output()).await;
    let ended = ended.expect("lockctl does not end").unwrap();
    drop(granted);
    let said = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code(), said, !family.read("ran").is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_whose_lock_was_lost_meanwhile_is_not_started_and_that_is_said() {
    for on_lost in ["term", "ignore"] {
        let mut misses = 0;
        loop {
            let (code, said, has_run) = halted_at_the_start(on_lost).await;
            assert_eq!(code, Some(76), "{on_lost}: {said}");
            if !has_run {
                assert!(said.ends_with("the command was not started\n"), "{said}");
                assert_eq!(said.lines().count(), 1, "{said}");
                break;
            }
            misses += 1;
            println!("--on-lost {on_lost}: started before lockctl was halted");
            // `supervisor.rs` tests the supervisor's half, however busy the machine is.
            if misses == MISSES_MAX {
                break;
            }
        }
    }
}
