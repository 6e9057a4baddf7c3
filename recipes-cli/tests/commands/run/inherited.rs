//! What `lockctl` inherits from its caller.

use std::process::Stdio;

use tokio::process::Command;

use super::family::Family;
use super::process::ended;
use super::terminal::Terminal;
use super::{KEPT, KEPT_FOR, LONG, PATH, server, start};
use crate::lockctl::{lines, output, said, set_environment};

const LOCKCTL: &str = env!("CARGO_BIN_EXE_lockctl");

/// `lockctl run` of a script, started by another program.
fn started_by(program: &[&str], family: &Family, connect: &str, script: &str) -> Command {
    let mut command = Command::new("setsid");
    command.args(["env", "--default-signal"]).args(program);
    command.args([LOCKCTL, "run", KEPT, PATH, "--", "sh", "-c", script]);
    set_environment(&mut command, connect);
    command.current_dir(family.path("."));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The kernel keeps no exit codes for such a process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_that_ignores_the_ends_of_its_children_gets_the_code_of_the_command() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = "grep SigIgn /proc/$$/status > ignored; exit 3";
    let run = started_by(&["--ignore-signal=CHLD"], &family, &connect, script);
    let ran = output(run).await;
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    assert_eq!(lines(&ran), "");
    let ignored = family.read("ignored");
    let ignored = ignored.trim_start_matches("SigIgn:").trim();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(
        ignored & (1 << (17 - 1)),
        0,
        "the command waits for its own"
    );

    let terminal = Terminal::open(&ensemble).await;
    terminal.type_in(&format!(
        "(trap '' CHLD; exec $lockctl run {PATH} -- sh -c 'exit 4')\n"
    ));
    assert_eq!(terminal.code(&ensemble).await, 4);
}

/// Nothing may be written to files. The session is over before the command ends, unless its
/// deadlines are moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_on_the_size_of_files_ends_the_command_and_not_lockctl() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let limited = [
        "env",
        "--default-signal",
        "sh",
        "-c",
        "ulimit -f 0; exec \"$@\" 2> said",
        "-",
    ];
    let kept_for = KEPT_FOR.as_secs();
    let script = format!("sleep {kept_for}; sh -c 'echo word > file'; exit $?");
    let mut run = started_by(&limited, &family, &connect, &script);
    run.env("LOCKCTL_LOG", "debug");
    let mut run = run.spawn().unwrap();
    assert_eq!(ended(&mut run).await, Some(128 + 25));
    for file in ["said", "file"] {
        assert_eq!(family.read(file), "", "{file}");
    }
    ensemble.await_children(PATH, 0).await;

    let mut run = Command::new("setsid");
    run.args(limited)
        .args([LOCKCTL, "run", PATH, "--", "/no/such/command"]);
    set_environment(&mut run, &connect);
    let run = run.current_dir(family.path(".")).stdin(Stdio::null());
    assert_eq!(ended(&mut run.spawn().unwrap()).await, Some(127));
}

/// It is shorter than some fifty runs inside each other make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_around_a_run_are_accepted_up_to_a_length_and_refused_by_it() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = format!("{LOCKCTL} run /locks/inner -- true");
    let around = |length: usize| {
        let mut run = family.run(&connect, &[LONG, PATH], &script);
        run.env("LOCKCTL_OWNER", "a".repeat(length));
        output(run)
    };
    for (length, named) in [
        (1024, "LOCKCTL_OWNER has 1043 bytes, and 1024 at most"),
        (1025, "has 1025 bytes"),
    ] {
        let ran = around(length).await;
        assert_eq!(ran.status.code(), Some(64), "{ran:?}");
        assert!(said(&ran).contains(named), "{ran:?}");
        assert!(!said(&ran).contains("aaa"), "{ran:?}");
    }
    let ran = around(1000).await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}
