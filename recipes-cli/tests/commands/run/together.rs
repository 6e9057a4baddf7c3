//! `lockctl` and its keeper are killed almost at the same moment, as by `killall -9` or an
//! out-of-memory killer.

use std::time::Duration;

use futures::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcgetpgrp;
use test_rig::TestEnsemble;
use tokio::time::{Instant, timeout};

use super::family::{SCRIPT, alive, gone, is_there, named};
use super::job::keeper;
use super::terminal::Terminal;
use super::{LONG, SOON, server, start};

/// What passes between the two kills.
#[derive(Clone, Copy, Debug)]
enum Pause {
    Us(u64),
    /// Whoever is to kill the rest after that has only begun.
    EndOfSupervisor,
}

/// At the last one, the keeper is killed first.
const PAUSES: [Pause; 8] = [
    Pause::EndOfSupervisor,
    Pause::Us(0),
    Pause::EndOfSupervisor,
    Pause::Us(200),
    Pause::EndOfSupervisor,
    Pause::Us(500),
    Pause::Us(1000),
    Pause::Us(0),
];
/// Runs, unless the variable `KILLS` says otherwise.
const RUNS: usize = 8;
/// Runs at the same time.
const AT_ONCE: usize = 2;

fn runs() -> usize {
    let asked = std::env::var("KILLS").ok();
    asked.map_or(RUNS, |it| it.parse().unwrap())
}

/// Names of processes that the command has started and that go on.
async fn left_after_kills(ensemble: &TestEnsemble, number: usize) -> Vec<String> {
    let path = format!("/locks/{number}");
    let connect = server(ensemble).connect_string();
    let terminal = Terminal::open_for(ensemble, &connect, &path).await;
    terminal.start(LONG, SCRIPT);
    let members = terminal.family.members(ensemble).await;
    let lockctl = tcgetpgrp(&terminal.keys).unwrap();
    let keeper = Pid::from_raw(keeper(lockctl.as_raw_nonzero().get())).unwrap();
    let supervisor = named(&members, "shell").parent();
    let place = number % PAUSES.len();
    let victims = match place + 1 < PAUSES.len() {
        true => [lockctl, keeper],
        false => [keeper, lockctl],
    };
    kill_process(victims[0], Signal::KILL).unwrap();
    let since = Instant::now();
    let is_over = || match PAUSES[place] {
        Pause::Us(pause) => since.elapsed() >= Duration::from_micros(pause),
        Pause::EndOfSupervisor => !is_there(supervisor) || since.elapsed() > SOON,
    };
    // A timer is not as exact.
    while !is_over() {
        std::hint::spin_loop();
    }
    // It may have ended because of the first kill.
    kill_process(victims[1], Signal::KILL).ok();
    // What goes on does so far longer than that.
    drop(timeout(2 * SOON, gone(ensemble, &members)).await);
    alive(&members).iter().map(|it| it.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_on_when_lockctl_and_its_keeper_are_killed_within_a_millisecond() {
    let ensemble = start().await;
    let mut left = Vec::new();
    for first in (0..runs()).step_by(AT_ONCE) {
        let numbers = first..runs().min(first + AT_ONCE);
        let trials = numbers.map(|it| left_after_kills(&ensemble, it));
        left.extend(join_all(trials).await);
    }
    let total = left.len();
    left.retain(|it| !it.is_empty());
    println!("{} of {total} runs left something: {left:?}", left.len());
    assert!(left.is_empty());
}
