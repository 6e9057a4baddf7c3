//! Runs the executable under test.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// An awaited event that takes longer never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A command line; killed when its process is dropped.
pub(crate) fn lockctl(connect: &str, arguments: &[&str]) -> Command {
    // Without the terminal that these tests may have. `setsid` becomes the next program, because a
    // process that was just started leads no group.
    let mut command = Command::new("setsid");
    // A process that ignores signals, as under `nohup`, passes that on to its children.
    command.args(["env", "--default-signal", env!("CARGO_BIN_EXE_lockctl")]);
    set_environment(&mut command, connect);
    command.args(arguments);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Sets the environment of `lockctl`: the ensemble, and no variable of this machine.
pub(crate) fn set_environment(command: &mut Command, connect: &str) {
    for variable in [
        "LOCKCTL_AUTH",
        "LOCKCTL_SESSION_TIMEOUT",
        "LOCKCTL_CONNECT_TIMEOUT",
        "LOCKCTL_LOG",
        "LOCKCTL_ACL",
        "LOCKCTL_OWNER",
        "LOCKCTL_TLS",
        "LOCKCTL_TLS_CA",
        "LOCKCTL_TLS_CERT",
        "LOCKCTL_TLS_KEY",
    ] {
        command.env_remove(variable);
    }
    command.env("LOCKCTL_CONNECT", connect);
}

/// Runs it to its end.
pub(crate) async fn output(mut command: Command) -> Output {
    let output = timeout(PATIENCE, command.output()).await;
    output.expect("lockctl does not end").unwrap()
}

/// What it printed for people, but for the line that a slow machine has it print before it is connected.
pub(crate) fn lines(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let lines = said.split_inclusive('\n');
    lines
        .filter(|it| !it.ends_with(" has answered yet\n"))
        .collect()
}

/// As [`lines`]: one, without internal details.
pub(crate) fn said(output: &Output) -> String {
    let said = lines(output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("lockctl: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}
