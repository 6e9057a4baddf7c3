//! `lockctl` as process 1, as in a container whose image starts with it.
//!
//! The kernel drops signals to process 1 for which it has no handler, and gives it every process
//! that has lost its parent.

use std::fs;

use rustix::process::Signal;
use test_rig::{TestEnsemble, own};
use tokio::process::{Child, Command};

use super::family::Family;
use super::process::{ended, pid, signal};
use super::{LONG, PATH, SHORT, server, start};

/// The command as process 1 of a namespace of its own.
fn as_first(command: &Command) -> Command {
    let command = command.as_std();
    let mut first = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        first.arg("--map-root-user");
    }
    first.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    first.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    first.current_dir(command.get_current_dir().unwrap());
    first.kill_on_drop(true);
    first
}

/// The process that `unshare` has started, by its number outside of the namespace.
fn inner(run: &Child) -> i32 {
    let outer = pid(run);
    let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    children.trim().parse().unwrap()
}

/// A run whose command is ready, and has checked which process is the first.
async fn started(ensemble: &TestEnsemble, family: &Family, timeout: &str, script: &str) -> Child {
    let connect = server(ensemble).connect_string();
    let script = format!("cat /proc/1/comm > first; {script}");
    let run = family.run(&connect, &[timeout, PATH], &script);
    let run = as_first(&run).spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    assert_eq!(family.read("first").trim(), "lockctl");
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_process_passes_signals_on_and_releases() {
    let (ensemble, family) = (start().await, Family::new());
    let script = "trap 'exit 9' TERM; : > ready; while :; do sleep 0.05; done";
    let mut run = started(&ensemble, &family, LONG, script).await;
    signal(inner(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(9));
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_process_ends_what_the_command_leaves_and_releases() {
    let (ensemble, family) = (start().await, Family::new());
    let script = "(setsid sleep 1000 &); : > ready; exit 4";
    let mut run = started(&ensemble, &family, LONG, script).await;
    assert_eq!(ended(&mut run).await, Some(4));
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_process_ends_the_command_with_the_lock() {
    let (ensemble, family) = (own::on_a_real_server().await, Family::new());
    let script = "trap '' TERM; : > ready; while :; do sleep 0.05; done";
    let mut run = started(&ensemble, &family, SHORT, script).await;
    ensemble.stop().await;
    assert_eq!(ended(&mut run).await, Some(76));
}
