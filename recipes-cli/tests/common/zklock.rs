//! The executable under test.

use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Within this, what a test waits for has happened or never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A command line; killed when its process is dropped.
pub(crate) fn zklock(connect: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zklock"));
    for variable in [
        "ZKLOCK_AUTH",
        "ZKLOCK_SESSION_TIMEOUT",
        "ZKLOCK_CONNECT_TIMEOUT",
    ] {
        command.env_remove(variable);
    }
    command.env("ZKLOCK_CONNECT", connect).args(arguments);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs it to its end.
pub(crate) async fn output(mut command: Command) -> Output {
    let output = timeout(PATIENCE, command.output()).await;
    output.expect("zklock does not end").unwrap()
}

/// Waits for its end, and returns the exit code.
pub(crate) async fn ended(child: &mut Child) -> Option<i32> {
    let status = timeout(PATIENCE, child.wait()).await;
    status.expect("zklock does not end").unwrap().code()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(crate) fn pid(child: &Child) -> i32 {
    child.id().unwrap().try_into().unwrap()
}

/// What it said to people: one line, and nothing of its inside.
pub(crate) fn said(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("zklock: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}
