//! Signals to `lockctl`.

use rustix::process::Signal;
use test_rig::{Direction, FaultProxy, Opcode};
use tokio::process::Command;

use super::family::Family;
use super::process::{ended, pid, signal};
use super::{LONG, PATH, mutex, server, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_are_passed_on_and_the_command_decides() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (passed_on, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
    ] {
        let family = Family::new();
        let script = format!("trap 'exit 9' {name}; : > ready; while :; do sleep 0.05; done");
        let mut run = family
            .run(&connect, &[LONG, PATH], &script)
            .spawn()
            .unwrap();
        let ready = async || family.path("ready").exists().then_some(());
        ensemble.until("the command", ready).await;
        signal(pid(&run), passed_on);
        assert_eq!(ended(&mut run).await, Some(9), "{name}");
        ensemble.await_children(PATH, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_that_does_not_heed_a_signal_is_ended_by_it_as_usual() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let mut run = family
        .run(&connect, &[LONG, PATH], ": > ready; exec sleep 1000")
        .spawn()
        .unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(128 + 15));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_ends_the_wait_for_the_lock_and_leaves_no_node() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let family = Family::new();
    let mut run = family
        .run(&connect, &[LONG, PATH], "echo ran > ran")
        .spawn()
        .unwrap();
    ensemble.await_children(PATH, 2).await;
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(128 + 15));
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    held.release().await.unwrap();
    assert_eq!(family.read("ran"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_ends_the_wait_for_the_end_of_the_session() {
    let ensemble = start().await;
    let direct = server(&ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let close = proxy.on(Direction::ToServer).opcode(Opcode::CloseSession);
    let gate = close.hold();
    let family = Family::new();
    let arguments = [LONG, "--connect-timeout=5m", PATH];
    let mut run = family
        .run(&proxy.connect_string(), &arguments, "exit 4")
        .spawn()
        .unwrap();
    gate.reached().await;
    signal(pid(&run), Signal::INT);
    assert_eq!(ended(&mut run).await, Some(4));
    assert!(ensemble.children(PATH).await.is_empty());
    gate.release();
}

/// As `docker kill -s INT` does to a container with a terminal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_that_are_not_typed_reach_a_job_in_the_foreground() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (sent, name) in [(Signal::INT, "INT"), (Signal::QUIT, "QUIT")] {
        let family = Family::new();
        let script = format!("trap 'exit 9' {name}; : > ready; while :; do sleep 0.05; done");
        let run = family.run(&connect, &[LONG, PATH], &script);
        // Without the program before them, which would leave the terminal.
        let words = run.as_std().get_args().map(|it| it.to_str().unwrap());
        let words: Vec<_> = words.map(|it| format!("\"{it}\"")).collect();
        let job = format!("echo $$ > pid; exec {}", words.join(" "));
        // It gives the command a terminal of its own.
        let mut terminal = Command::new("script");
        terminal.args(["--quiet", "--return", "--command", &job, "/dev/null"]);
        terminal.env("LOCKCTL_CONNECT", &connect);
        terminal.current_dir(family.path(".")).kill_on_drop(true);
        terminal.stdin(std::process::Stdio::null());
        let mut terminal = terminal.spawn().unwrap();
        let ready = async || family.path("ready").exists().then_some(());
        ensemble.until("the command", ready).await;
        signal(family.read("pid").trim().parse().unwrap(), sent);
        assert_eq!(ended(&mut terminal).await, Some(9), "{name}");
        ensemble.await_children(PATH, 0).await;
    }
}
