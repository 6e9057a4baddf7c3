//! `lockctl run` as a job of an interactive shell.

use futures::future::join_all;
use recipes_core::LockGuard;
use recipes_multilock::{Member, MultiLock};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::tcgetpgrp;
use test_rig::{Direction, FaultProxy, TestEnsemble};
use tokio::time::{Instant, timeout};

use super::family::{SCRIPT, alive, gone, is_halted};
use super::process::signal;
use super::terminal::Terminal;
use super::{KEPT, KEPT_FOR, LONG, PATH, SHORT, SOON, mutex, next_in_line, server, start, token};
use crate::lockctl::PATIENCE;

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

/// Records each signal when it comes.
const HEEDFUL: &str = r#"
trap 'echo int >> got' INT
trap 'echo term >> got; exit 9' TERM
sleep 1000 &
: > ready
while :; do wait; done
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_reaches_the_command_once_and_its_code_is_passed_through() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    terminal.run(&ensemble, HEEDFUL).await;
    terminal.type_in(CTRL_C);
    terminal.written(&ensemble, "got", |it| it == "int\n").await;
    // `lockctl` passes signals on in order.
    let job = tcgetpgrp(&terminal.keys).unwrap();
    signal(job.as_raw_nonzero().get(), Signal::TERM);
    assert_eq!(terminal.code(&ensemble).await, 9);
    assert_eq!(terminal.family.read("got"), "int\nterm\n");
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_commands_that_do_not_heed_it_and_waits() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let script = ": > ready; exec sleep 1000";
    terminal.run(&ensemble, script).await;
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.code(&ensemble).await, 128 + 2);
    ensemble.await_children(PATH, 0).await;

    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    terminal.type_in(&format!("$lockctl run {PATH} -- touch ran\n"));
    ensemble.await_children(PATH, 2).await;
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.code(&ensemble).await, 128 + 2);
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    held.release().await.unwrap();
    assert!(!terminal.family.path("ran").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_reads_from_the_terminal() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let script = "test -t 0 || exit 1; : > ready; read -r line; echo \"$line\" > line; exit 5";
    terminal.run(&ensemble, script).await;
    terminal.type_in("a word\n");
    assert_eq!(terminal.code(&ensemble).await, 5);
    assert_eq!(terminal.family.read("line"), "a word\n");

    // A shell with jobs of its own. When it ends, the terminal is given back.
    terminal.type_in(&format!("$lockctl run {PATH} -- bash --norc -i\n"));
    ensemble.await_children(PATH, 1).await;
    terminal.type_in("sh -c 'exit 7'; echo $? > inner; exit 4\n");
    assert_eq!(terminal.code(&ensemble).await, 4);
    assert_eq!(terminal.family.read("inner"), "7\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_goes_on_soon_after_ctrl_z_keeps_its_lock() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let script = "echo $$ > pid; : > ready; until [ -e go ]; do sleep 0.05; done; exit 3";
    terminal.run(&ensemble, script).await;
    let held = ensemble.await_children(PATH, 1).await;
    let command = terminal.family.read("pid").trim().parse().unwrap();
    assert!(!is_halted(command));
    terminal.type_in(CTRL_Z);
    // The shell reports the first process that stops.
    assert_eq!(terminal.code(&ensemble).await, 128 + 20);
    let halted = async || is_halted(command).then_some(());
    ensemble.until("a halted command", halted).await;
    std::fs::write(terminal.family.path("go"), "").unwrap();
    assert_eq!(ensemble.children(PATH).await, held);
    terminal.type_in("fg\n");
    assert_eq!(terminal.code(&ensemble).await, 3);
    ensemble.await_children(PATH, 0).await;
}

/// Commands that Ctrl-Z halts, and such as it does not reach, with what starts them.
const STARTERS: [(&str, &str); 4] = [
    ("plain", ""),
    ("timeout", "timeout 1000"),
    ("setsid", "setsid -w"),
    ("stubborn", "env --ignore-signal=TSTP"),
];

/// Its lock is not given on, whether the command goes on or not.
async fn halted_for_long(ensemble: &TestEnsemble, name: &str, starter: &str) {
    let path = format!("/locks/{name}");
    let connect = server(ensemble).connect_string();
    let terminal = Terminal::open_for(ensemble, &connect, &path).await;
    let script =
        r#"echo "sh $$" > family; until [ -e go ]; do sleep 0.05; date > date; done; exit 3"#;
    terminal.start_by(starter, KEPT, script);
    terminal.written(ensemble, "date", |_| true).await;
    let members = terminal.family.written();
    let command = members[0].pid;
    let session = ensemble.session().await;
    let lock = MultiLock::new(&session, [Member::mutex(&path)]).unwrap();
    let mut next = tokio::spawn(async move { LockGuard::from(lock.acquire().await.unwrap()) });
    ensemble.await_children(&path, 2).await;
    terminal.type_in(CTRL_Z);
    assert_eq!(terminal.code(ensemble).await, 128 + 20, "{name}");
    let is_reached = async || (is_halted(command) == (name == "plain")).then_some(());
    ensemble.until(name, is_reached).await;
    let granted = timeout(KEPT_FOR, &mut next).await;
    assert!(
        granted.is_err(),
        "{name} is halted and another has its lock"
    );
    assert_eq!(alive(&members).len(), 1, "{name}");
    assert_eq!(is_halted(command), name == "plain");
    std::fs::write(terminal.family.path("go"), "").unwrap();
    terminal.type_in("fg\n");
    let granted = timeout(PATIENCE, next).await.expect("no grant").unwrap();
    assert!(alive(&members).is_empty(), "{name}");
    assert_eq!(terminal.code(ensemble).await, 3, "{name}");
    drop(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_ctrl_z_halts_for_long_keeps_its_lock_whatever_runs_on() {
    let ensemble = start().await;
    let trials = STARTERS.map(|(name, starter)| halted_for_long(&ensemble, name, starter));
    join_all(trials).await;
}

/// The keeper is cut off from the store. It ends what Ctrl-Z has not halted, and what it has.
async fn halted_and_cut_off(ensemble: &TestEnsemble, name: &str, starter: &str) {
    let path = format!("/locks/{name}");
    let proxy = FaultProxy::start(&server(ensemble).connect_string())
        .await
        .unwrap();
    let terminal = Terminal::open_for(ensemble, &proxy.connect_string(), &path).await;
    terminal.start_by(starter, SHORT, SCRIPT);
    let members = terminal.family.members(ensemble).await;
    let session = ensemble.session().await;
    let lock = MultiLock::new(&session, [Member::mutex(&path)]).unwrap();
    let next = tokio::spawn(async move { LockGuard::from(lock.acquire().await.unwrap()) });
    ensemble.await_children(&path, 2).await;
    terminal.type_in(CTRL_Z);
    terminal.prompt(ensemble).await;
    proxy.black_hole(Direction::ToServer);
    proxy.black_hole(Direction::FromServer);
    let granted = timeout(PATIENCE, next).await.expect("no grant").unwrap();
    let left = alive(&members);
    assert!(left.is_empty(), "{name}: granted while these run: {left:?}");
    terminal.type_in("fg\n");
    assert_eq!(terminal.code(ensemble).await, 76, "{name}");
    granted.verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_on_after_ctrl_z_is_ended_before_the_next_one_has_the_lock() {
    let ensemble = start().await;
    let trials = STARTERS.map(|(name, starter)| halted_and_cut_off(&ensemble, name, starter));
    join_all(trials).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_of_a_job_that_was_halted_while_it_waited_starts_when_it_goes_on() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    terminal.start(KEPT, "echo ran > ran; exit 3");
    ensemble.await_children(PATH, 2).await;
    terminal.type_in(CTRL_Z);
    assert_eq!(terminal.code(&ensemble).await, 128 + 20);
    held.release().await.unwrap();
    let nodes = ensemble.await_children(PATH, 1).await;
    // It has the lock, for longer than the session timeout.
    let since = Instant::now();
    let kept = async || {
        assert_eq!(ensemble.children(PATH).await, nodes);
        (since.elapsed() > KEPT_FOR).then_some(())
    };
    ensemble.until("some time", kept).await;
    assert_eq!(terminal.family.read("ran"), "");
    terminal.type_in("fg\n");
    assert_eq!(terminal.code(&ensemble).await, 3);
    assert_eq!(terminal.family.read("ran"), "ran\n");
}

/// A job whose processes are killed while Ctrl-Z has halted it. Some of it runs on.
async fn killed(
    ensemble: &TestEnsemble,
    name: &str,
    victim: impl Fn(&Terminal) -> i32,
) -> Terminal {
    let path = format!("/locks/{name}");
    let connect = server(ensemble).connect_string();
    let terminal = Terminal::open_for(ensemble, &connect, &path).await;
    terminal.start_by("setsid -w", LONG, SCRIPT);
    let members = terminal.family.members(ensemble).await;
    let victim = victim(&terminal);
    terminal.type_in(CTRL_Z);
    terminal.prompt(ensemble).await;
    assert_eq!(alive(&members).len(), members.len());
    let since = Instant::now();
    let process = Pid::from_raw(victim.abs()).unwrap();
    let sent = match victim > 0 {
        true => kill_process(process, Signal::KILL),
        false => kill_process_group(process, Signal::KILL),
    };
    sent.unwrap();
    gone(ensemble, &members).await;
    assert!(since.elapsed() < SOON, "not before the deadline");
    terminal
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_halted_job_goes_on_when_lockctl_is_killed_and_then_the_lock_is_released() {
    let ensemble = start().await;
    let job = |terminal: &Terminal| tcgetpgrp(&terminal.keys).unwrap().as_raw_nonzero().get();
    let _terminal = killed(&ensemble, "lockctl", job).await;
    ensemble.await_children("/locks/lockctl", 0).await;
    // As `kill -9 %1` does, the supervisor included.
    let group = |terminal: &Terminal| -job(terminal);
    let _terminal = killed(&ensemble, "group", group).await;
    ensemble.await_children("/locks/group", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_halted_job_goes_on_when_its_keeper_is_killed() {
    let ensemble = start().await;
    let of_job =
        |terminal: &Terminal| keeper(tcgetpgrp(&terminal.keys).unwrap().as_raw_nonzero().get());
    let terminal = killed(&ensemble, "keeper", of_job).await;
    // It is still held: the session is far from its timeout.
    assert_eq!(ensemble.children("/locks/keeper").await.len(), 1);
    terminal.type_in("fg\n");
    assert_eq!(terminal.code(&ensemble).await, 70);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halted_job_whose_shell_is_killed_ends_and_its_lock_is_released() {
    let ensemble = start().await;
    let mut terminal = Terminal::open(&ensemble).await;
    terminal.start(LONG, "exec sleep 1000");
    ensemble.await_children(PATH, 1).await;
    terminal.type_in(CTRL_Z);
    terminal.prompt(&ensemble).await;
    terminal.kill_shell();
    ensemble.await_children(PATH, 0).await;
}

/// The only child of `lockctl` in a terminal.
pub(super) fn keeper(lockctl: i32) -> i32 {
    let children = format!("/proc/{lockctl}/task/{lockctl}/children");
    let children = std::fs::read_to_string(children).unwrap();
    children.trim().parse().unwrap()
}

/// As a frozen container is. No process can act in time, so only the token protects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_is_halted_with_its_keeper_loses_its_lock_and_is_killed_when_it_goes_on() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    terminal.start(SHORT, SCRIPT);
    let members = terminal.family.members(&ensemble).await;
    let job = tcgetpgrp(&terminal.keys).unwrap().as_raw_nonzero().get();
    let keeper = keeper(job);
    let (_session, next) = next_in_line(&ensemble).await;
    terminal.type_in(CTRL_Z);
    signal(keeper, Signal::STOP);
    let granted = next.await.unwrap();
    assert_eq!(alive(&members).len(), members.len());
    assert!(token(&granted) > terminal.family.token(), "the token tells");
    terminal.prompt(&ensemble).await;
    signal(keeper, Signal::CONT);
    terminal.type_in("fg\n");
    gone(&ensemble, &members).await;
    assert_eq!(terminal.code(&ensemble).await, 76);
    granted.verify().await.unwrap();
}
