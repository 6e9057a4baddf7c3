//! Who contends, for what, and what goes wrong meanwhile.

use stateright::{Checker, HasDiscoveries};

use super::*;

fn explore(programs: &[&'static [Op]], dirs: usize, trouble: Trouble, faults: u8) {
    explore_with_strikes(programs, dirs, trouble, faults, 0);
}

/// Whether there is time for what takes minutes.
fn is_long() -> bool {
    std::env::var_os("MODEL_LONG").is_some()
}

fn explore_with_strikes(
    programs: &[&'static [Op]],
    dirs: usize,
    trouble: Trouble,
    faults: u8,
    strikes: u8,
) {
    let locks = Locks {
        programs: programs.to_vec(),
        dirs,
        trouble,
        faults,
        strikes,
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a time to print, by which nothing is decided"
    )]
    let start = std::time::Instant::now();
    // A machine that is wrong may have states without end.
    let checker = locks
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(2)
        .spawn_bfs()
        .join();
    eprintln!(
        "{trouble:?} {faults}+{strikes}: {} states, {} steps deep, {:.1} s",
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f32()
    );
    for (name, path) in checker.discoveries() {
        if name != "everybody is through" {
            let broken = path.last_state().broken;
            let steps = path.clone().into_actions();
            let steps: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
            let end = path.last_state();
            panic!("{name} {broken:?}:\n{}\n{end:?}", steps.join("\n"));
        }
    }
    checker.assert_any_discovery("everybody is through");
}

const fn mutex(patience: Patience) -> Op {
    Op::Acquire(&[(0, LockKind::Mutex)], patience)
}

const ONCE: &[Op] = &[mutex(Patience::Wait), Op::ReleaseFirst];
const TWICE: &[Op] = &[
    mutex(Patience::Wait),
    Op::ReleaseFirst,
    mutex(Patience::Wait),
    Op::ReleaseFirst,
];
const TRY: &[Op] = &[mutex(Patience::Try), Op::ReleaseFirst];
const READER: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Read)], Patience::Wait),
    Op::ReleaseFirst,
];
const WRITER: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Write)], Patience::Wait),
    Op::ReleaseFirst,
];
const DOWNGRADER: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Write)], Patience::Wait),
    Op::Beside,
    Op::ReleaseFirst,
    Op::ReleaseFirst,
];
const SET: &[Op] = &[
    Op::Acquire(
        &[(0, LockKind::Mutex), (1, LockKind::Mutex)],
        Patience::Wait,
    ),
    Op::ReleaseFirst,
];
const SECOND: &[Op] = &[
    Op::Acquire(&[(1, LockKind::Mutex)], Patience::Wait),
    Op::ReleaseFirst,
];

#[test]
fn mutex_three_contenders_take_turns_twice() {
    explore(&[TWICE, TWICE, TWICE], 1, Trouble::Nothing, 0);
}

#[test]
fn mutex_with_requests_lost() {
    explore(&[ONCE, ONCE, TRY], 1, Trouble::Requests, 1);
}

#[test]
fn mutex_with_sessions_that_end() {
    explore(&[ONCE, ONCE], 1, Trouble::Sessions, 1);
}

#[test]
fn mutex_with_others_that_interfere() {
    explore(&[ONCE, ONCE, ONCE], 1, Trouble::Others, 1);
}

#[test]
fn readers_and_writers_without_faults() {
    explore(&[READER, READER, WRITER, WRITER], 1, Trouble::Nothing, 0);
    explore(&[READER, WRITER, DOWNGRADER], 1, Trouble::Nothing, 0);
}

#[test]
fn readers_and_writers_with_requests_lost() {
    explore(&[READER, WRITER], 1, Trouble::Requests, 1);
    explore(&[READER, DOWNGRADER], 1, Trouble::Requests, 1);
    explore(&[WRITER, DOWNGRADER], 1, Trouble::Requests, 1);
}

#[test]
fn readers_and_writers_with_sessions_that_end() {
    explore(&[READER, WRITER], 1, Trouble::Sessions, 1);
    explore(&[READER, DOWNGRADER], 1, Trouble::Sessions, 1);
    explore(&[WRITER, DOWNGRADER], 1, Trouble::Sessions, 1);
}

#[test]
fn readers_and_writers_with_others_that_interfere() {
    explore(&[READER, WRITER], 1, Trouble::Others, 1);
    explore(&[READER, DOWNGRADER], 1, Trouble::Others, 1);
    explore(&[WRITER, DOWNGRADER], 1, Trouble::Others, 1);
}

#[test]
fn sets_without_faults() {
    explore(&[SET, SET, SECOND], 2, Trouble::Nothing, 0);
}

#[test]
fn sets_with_requests_lost() {
    explore(&[SET, SECOND], 2, Trouble::Requests, 1);
}

#[test]
fn sets_with_sessions_that_end() {
    explore(&[SET, SECOND], 2, Trouble::Sessions, 1);
}

#[test]
fn sets_with_others_that_interfere() {
    explore(&[SET, SECOND], 2, Trouble::Others, 1);
}

/// Data that changes uses up the own watch, and then the node goes.
#[test]
fn mutex_with_others_that_interfere_twice() {
    explore(&[ONCE, ONCE], 1, Trouble::Others, 2);
}

#[test]
fn mutex_with_connections_that_are_lost() {
    explore_with_strikes(&[ONCE, ONCE], 1, Trouble::Connections, 1, 1);
    explore(&[ONCE, TRY], 1, Trouble::Connections, 2);
    if is_long() {
        explore_with_strikes(&[ONCE, ONCE, ONCE], 1, Trouble::Connections, 1, 1);
    }
}

#[test]
fn mutex_with_leaders_that_are_deposed() {
    explore(&[ONCE, ONCE], 1, Trouble::Leaders, 2);
    if is_long() {
        explore(&[ONCE, ONCE, ONCE], 1, Trouble::Leaders, 1);
    }
}

#[test]
fn readers_and_writers_with_connections_that_are_lost() {
    explore(&[READER, WRITER], 1, Trouble::Connections, 1);
    explore(&[READER, DOWNGRADER], 1, Trouble::Connections, 1);
    explore(&[WRITER, DOWNGRADER], 1, Trouble::Connections, 1);
}

#[test]
fn sets_with_connections_that_are_lost() {
    explore_with_strikes(&[SET, SECOND], 2, Trouble::Connections, 1, 1);
}

#[test]
fn sets_with_leaders_that_are_deposed() {
    explore(&[SET, SECOND], 2, Trouble::Leaders, 1);
    if is_long() {
        explore(&[SET, SECOND], 2, Trouble::Leaders, 2);
    }
}
