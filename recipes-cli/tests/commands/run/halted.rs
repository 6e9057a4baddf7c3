//! Requests to end while the command, or the supervisor, is halted.

use rustix::process::Signal;
use rustix::termios::tcgetpgrp;
use test_rig::{Direction, FaultProxy, Opcode, TestEnsemble};
use tokio::time::{Instant, sleep};

use super::family::{Family, SCRIPT, alive, is_halted, named};
use super::job::keeper;
use super::process::{ended, pid, signal};
use super::terminal::Terminal;
use super::{LONG, PATH, SHORT, SOON, next_in_line, server, start, token};
use crate::lockctl::{lockctl, output};

const CTRL_Z: &str = "\u{1a}";

/// As `kill` of a shell, and systemd, do for a halted job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_to_end_reaches_processes_that_are_halted() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (sent, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        for (of_supervisor, of_command) in [(false, true), (true, false), (true, true)] {
            let family = Family::new();
            let script = format!(
                "trap 'exit 9' {name}; echo \"shell $$\" > family; : > ready
                while :; do sleep 0.05; done"
            );
            let mut run = family.run(&connect, &[LONG, PATH], &script);
            let mut run = run.spawn().unwrap();
            let ready = async || family.path("ready").exists().then_some(());
            ensemble.until("the command", ready).await;
            let members = family.written();
            let shell = named(&members, "shell");
            let victims = [(shell.parent(), of_supervisor), (shell.pid, of_command)];
            for (victim, is_one) in victims {
                if is_one {
                    signal(victim, Signal::STOP);
                    let halted = async || is_halted(victim).then_some(());
                    ensemble.until("a halted process", halted).await;
                }
            }
            signal(pid(&run), sent);
            assert_eq!(ended(&mut run).await, Some(9), "{name} {victims:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_ctrl_z_has_halted_gives_its_lock_up_on_request() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let terminal = Terminal::open(&ensemble).await;
    let script = "trap 'exit 9' TERM; echo $$ > pid; : > ready; while :; do sleep 0.05; done";
    terminal
        .run_with(&ensemble, "--on-revoke=term", script)
        .await;
    let command = terminal.family.read("pid").trim().parse().unwrap();
    terminal.type_in(CTRL_Z);
    terminal.prompt(&ensemble).await;
    let halted = async || is_halted(command).then_some(());
    ensemble.until("a halted command", halted).await;
    let asked = output(lockctl(&connect, &["revoke", PATH])).await;
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    ensemble.await_children(PATH, 0).await;
    terminal.type_in("fg\n");
    assert_eq!(terminal.code(&ensemble).await, 9);
}

/// The part of `lockctl` in the job still runs, and lets the supervisor go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_any_more_at_the_next_grant_though_keeper_and_supervisor_were_halted() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    terminal.start(SHORT, SCRIPT);
    let members = terminal.family.members(&ensemble).await;
    let (_session, next) = next_in_line(&ensemble).await;
    let lockctl = tcgetpgrp(&terminal.keys).unwrap();
    let keeper = keeper(lockctl.as_raw_nonzero().get());
    let supervisor = named(&members, "shell").parent();
    for process in [supervisor, keeper] {
        signal(process, Signal::STOP);
    }
    let granted = next.await.unwrap();
    let left = alive(&members);
    assert!(left.is_empty(), "granted while these run: {left:?}");
    assert!(token(&granted) > terminal.family.token());
    assert!(is_halted(keeper), "that one is left alone");
    signal(keeper, Signal::CONT);
    assert_eq!(terminal.code(&ensemble).await, 76);
}

/// How often the kernel has let the first thread of a process wait.
fn waits(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|it| it.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

async fn waits_each_second(ensemble: &TestEnsemble, pid: i32) -> f64 {
    let (since, before) = (Instant::now(), waits(pid));
    let later = async || (since.elapsed() > SOON).then_some(());
    ensemble.until("some time", later).await;
    f64::from(waits(pid) - before) / since.elapsed().as_secs_f64()
}

/// Each heartbeat moves the deadline, and nobody reads that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_with_the_session_sleeps_while_its_orders_are_not_read() {
    let ensemble = start().await;
    let direct = server(&ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let family = Family::new();
    let script = "trap '' INT; echo \"shell $$\" > family; : > ready; exec sleep 1000";
    let mut run = family.run(&proxy.connect_string(), &[LONG, PATH], script);
    let mut run = run.spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let members = family.written();
    let usual = waits_each_second(&ensemble, pid(&run)).await;
    signal(named(&members, "shell").parent(), Signal::STOP);
    // Some three hundred fill the socket. Signals that come too fast become one.
    for _ in 0..1000 {
        signal(pid(&run), Signal::INT);
        sleep(std::time::Duration::from_millis(1)).await;
    }
    proxy.clear_log();
    let beats = || proxy.on(Direction::FromServer).opcode(Opcode::Ping).count();
    let moved = async || (beats() > 0).then_some(());
    ensemble.until("a heartbeat", moved).await;
    let unread = waits_each_second(&ensemble, pid(&run)).await;
    println!("{unread:.1} waits each second, and {usual:.1} with a reader");
    assert!(unread < 1.5 * usual + 5.0, "{unread} {usual}");
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(128 + 15));
}
