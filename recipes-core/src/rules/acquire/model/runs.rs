//! Which contenders compete, for what, and what goes wrong meanwhile.

use stateright::{Checker, HasDiscoveries};

use super::ensemble::Stranger;
use super::names::Foreign;
use super::*;

mod first;
mod forgets;

fn explore(programs: &[&'static [Op]], dirs: usize, trouble: Trouble, faults: u8) {
    explore_with_strikes(programs, dirs, trouble, faults, 0);
}

fn explore_with_strikes(
    programs: &[&'static [Op]],
    dirs: usize,
    trouble: Trouble,
    faults: u8,
    strikes: u8,
) {
    explore_all(Locks {
        trouble,
        faults,
        strikes,
        ..Locks::new(programs, dirs)
    });
}

/// Whether there is time for runs of minutes.
fn is_long() -> bool {
    std::env::var_os("MODEL_LONG").is_some()
}

fn explore_all(locks: Locks) {
    let Locks {
        trouble,
        faults,
        strikes,
        ..
    } = locks;
    #[expect(
        clippy::disallowed_methods,
        reason = "a time to print, by which nothing is decided"
    )]
    let start = std::time::Instant::now();
    // A machine with a bug may have endless states, so the first failure ends the run.
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

/// Contenders that read one lock and write the other, each way round.
const READ_WRITE: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Read), (1, LockKind::Write)], Patience::Wait),
    Op::ReleaseFirst,
];
const WRITE_READ: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Write), (1, LockKind::Read)], Patience::Wait),
    Op::ReleaseFirst,
];
const TRY_SET: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Mutex), (1, LockKind::Mutex)], Patience::Try),
    Op::ReleaseFirst,
];
const TRY_READ_WRITE: &[Op] = &[
    Op::Acquire(&[(0, LockKind::Read), (1, LockKind::Write)], Patience::Try),
    Op::ReleaseFirst,
];
/// As a semaphore is acquired: its mutex, and leases.
const PERMIT: &[Op] = &[
    Op::Acquire(
        &[(0, LockKind::Mutex), (1, LockKind::Permit)],
        Patience::Wait,
    ),
    Op::ReleaseFirst,
];
const BOTH_PERMITS: &[Op] = &[
    Op::Acquire(
        &[
            (0, LockKind::Mutex),
            (1, LockKind::Permit),
            (1, LockKind::Permit),
        ],
        Patience::Wait,
    ),
    Op::ReleaseFirst,
];
const TRY_PERMIT: &[Op] = &[
    Op::Acquire(
        &[(0, LockKind::Mutex), (1, LockKind::Permit)],
        Patience::Try,
    ),
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

/// A change of data uses up the own watch, and then the node is deleted.
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

#[test]
fn mutex_with_requests_that_are_refused() {
    explore(&[ONCE, ONCE], 1, Trouble::Refusals, 2);
    explore(&[TWICE, TRY], 1, Trouble::Refusals, 1);
}

#[test]
fn readers_and_writers_with_requests_that_are_refused() {
    explore(&[READER, DOWNGRADER], 1, Trouble::Refusals, 1);
    explore(&[WRITER, DOWNGRADER], 1, Trouble::Refusals, 1);
}

#[test]
fn sets_with_requests_that_are_refused() {
    explore(&[SET, SECOND], 2, Trouble::Refusals, 2);
    explore(&[SET, ONCE], 2, Trouble::Refusals, 1);
    if is_long() {
        explore_with_strikes(&[SET, ONCE], 2, Trouble::Refusals, 1, 1);
    }
}

/// A set is refused as a whole if one directory is missing.
#[test]
fn sets_without_directories() {
    for (trouble, faults) in [(Trouble::Requests, 1), (Trouble::Refusals, 1)] {
        explore_all(Locks {
            trouble,
            faults,
            is_bare: true,
            reaps: 2,
            ..Locks::new(&[SET, SECOND], 2)
        });
    }
    // The set waits for its first lock while the directory of the second is reaped.
    explore_all(Locks {
        is_bare: true,
        reaps: 1,
        ..Locks::new(&[SET, ONCE], 2)
    });
}

#[test]
fn sets_of_readers_and_writers() {
    explore(&[READ_WRITE, WRITE_READ], 2, Trouble::Nothing, 0);
    explore(&[READ_WRITE, WRITE_READ], 2, Trouble::Requests, 1);
    explore(&[READ_WRITE, WRITER], 2, Trouble::Others, 1);
    if is_long() {
        explore(&[READ_WRITE, WRITE_READ], 2, Trouble::Others, 1);
        explore(&[READ_WRITE, READ_WRITE, WRITER], 2, Trouble::Nothing, 0);
    }
}

#[test]
fn sets_that_are_tried() {
    explore(&[TRY_SET, SET], 2, Trouble::Nothing, 0);
    explore(&[TRY_SET, SECOND], 2, Trouble::Requests, 1);
    explore(&[TRY_READ_WRITE, WRITE_READ], 2, Trouble::Others, 1);
}

fn explore_with_strangers(programs: &[&'static [Op]], count: u8, which: &'static [Stranger]) {
    explore_all(Locks {
        strangers: (count, which),
        reaps: 1,
        ..Locks::new(programs, 1)
    });
}

#[test]
fn mutex_with_strangers() {
    const LOCK: Stranger = Stranger::Lock(LockKind::Mutex);
    const FRONT: Stranger = Stranger::Foreign(Foreign::Front);
    const BACK: Stranger = Stranger::Foreign(Foreign::Back);
    explore_with_strangers(&[ONCE, ONCE], 1, &[LOCK, BACK]);
    explore_with_strangers(&[ONCE, TRY], 1, &[LOCK, FRONT, BACK]);
    // The stranger comes back.
    explore_with_strangers(&[ONCE], 2, &[LOCK, FRONT]);
    explore_with_strangers(&[ONCE, ONCE], 2, &[FRONT]);
}

#[test]
fn readers_and_writers_with_strangers() {
    const LOCKS: &[Stranger] = &[
        Stranger::Lock(LockKind::Read),
        Stranger::Lock(LockKind::Write),
    ];
    const FOREIGN: &[Stranger] = &[
        Stranger::Foreign(Foreign::Front),
        Stranger::Foreign(Foreign::Writer),
    ];
    explore_with_strangers(&[READER, WRITER], 1, LOCKS);
    explore_with_strangers(&[READER, WRITER], 1, FOREIGN);
    explore_with_strangers(&[DOWNGRADER], 1, LOCKS);
    explore_with_strangers(&[DOWNGRADER], 1, FOREIGN);
}

/// A contender that comes after the end of the counter fails, and the others go on. A client that
/// ignores the end may get ahead of them.
#[test]
fn mutex_at_the_end_of_the_counter() {
    let last = i32::MAX - 1;
    for (programs, first) in [
        (&[ONCE, ONCE, ONCE][..], last),
        (&[ONCE, ONCE, ONCE, ONCE], last - 1),
        (&[ONCE, TRY], i32::MIN),
    ] {
        for wraps in [true, false] {
            explore_all(Locks {
                first,
                wraps,
                ..Locks::new(programs, 1)
            });
        }
    }
    explore_all(Locks {
        first: last - 1,
        wraps: true,
        strangers: (2, &[Stranger::Lock(LockKind::Mutex)]),
        ..Locks::new(&[ONCE, ONCE], 1)
    });
    explore_all(Locks {
        trouble: Trouble::Requests,
        faults: 1,
        first: i32::MAX,
        ..Locks::new(&[ONCE, ONCE], 1)
    });
}

#[test]
fn sets_at_the_end_of_the_counter() {
    explore_all(Locks {
        first: i32::MAX - 1,
        ..Locks::new(&[SET, SECOND, ONCE], 2)
    });
}

#[test]
fn permits_without_faults() {
    explore(&[BOTH_PERMITS, PERMIT], 2, Trouble::Nothing, 0);
    explore(&[BOTH_PERMITS, BOTH_PERMITS], 2, Trouble::Nothing, 0);
    explore(&[BOTH_PERMITS, TRY_PERMIT], 2, Trouble::Nothing, 0);
    if is_long() {
        explore(&[PERMIT, PERMIT, PERMIT], 2, Trouble::Nothing, 0);
    }
}

#[test]
fn permits_with_requests_lost() {
    explore(&[BOTH_PERMITS, PERMIT], 2, Trouble::Requests, 1);
}

#[test]
fn permits_with_connections_that_are_lost() {
    explore(&[BOTH_PERMITS, PERMIT], 2, Trouble::Connections, 1);
}

/// Each has one to three million states.
#[test]
fn permits_with_more_trouble() {
    if is_long() {
        explore(&[BOTH_PERMITS, PERMIT], 2, Trouble::Sessions, 1);
        explore(&[BOTH_PERMITS, PERMIT], 2, Trouble::Others, 1);
        explore(&[BOTH_PERMITS, TRY_PERMIT], 2, Trouble::Others, 1);
        explore(&[BOTH_PERMITS, PERMIT], 2, Trouble::Leaders, 1);
    }
}
