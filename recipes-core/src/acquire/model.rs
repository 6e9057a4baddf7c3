//! Explores the shipped state machine with a model checker: several contenders, an ensemble whose
//! replicas lag, and a bounded number of faults, in every order.
//!
//! What is guaranteed at a grant: at the moment at which the latest of the answers and watch events
//! that the contender has taken was *generated* (which is a moment in the history of the ensemble,
//! between the first request and the grant), its node existed and no conflicting node was ahead of
//! it. For the members of a set that are not watched, at the moment of their own listing or of what
//! was heard last while they were, behind the last create and over the connection of the grant. An operator may delete the node in
//! the next moment.
//!
//! Time is abstract. A deadline passes for all that was sent until then, and only then may the
//! ensemble end the session: the leader of the moment behind the deadline that counts from its last
//! answer, a new one behind the deadline that counts from the last commit. What is held is valid
//! until a deadline passes, and never longer: holders must not conflict, whether their nodes exist
//! or not, except for nodes that an operator deleted.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;

mod contender;
mod ensemble;
mod server;
mod world;

use contender::{Contender, Link, Op, What};
use ensemble::conflict;
use world::{Fault, Step, World};

/// Which faults a run may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Nothing,
    /// Lost and repeated requests, and attempts that are dropped.
    Requests,
    /// Sessions that end.
    Sessions,
    /// Others that delete and change nodes, and directories that are reaped.
    Others,
    /// Connections that are lost and come back.
    Connections,
    /// Leaders that are deposed and do not notice.
    Leaders,
}

struct Locks {
    programs: Vec<&'static [Op]>,
    dirs: usize,
    trouble: Trouble,
    faults: u8,
    /// Nodes that an operator deletes, beside other faults.
    strikes: u8,
}

impl Locks {
    fn faults(&self, world: &World, steps: &mut Vec<Step>) {
        if world.strikes_left > 0 {
            for lock in &world.ensemble.locks {
                steps.push(Step::Strike(lock.id));
            }
        }
        if world.faults_left == 0 {
            return;
        }
        let contenders = world.contenders.iter().enumerate();
        let mut add = |fault| steps.push(Step::Fault(fault));
        match self.trouble {
            Trouble::Nothing => {}
            Trouble::Requests => contenders.for_each(|(index, it)| {
                let request = it.pipe.first().filter(|it| it.slot.is_some());
                match request.map(|it| &it.what) {
                    Some(What::Enter(_, known)) => {
                        add(Fault::LoseReply(index, true));
                        if known.is_none() {
                            add(Fault::LoseReply(index, false));
                        }
                    }
                    Some(_) if it.pipe.len() > 1 => add(Fault::Resend(index)),
                    _ => {}
                }
                if it.machine.is_some() {
                    add(Fault::Cancel(index));
                }
            }),
            Trouble::Sessions => contenders.for_each(|(index, it)| {
                if !it.is_done() && !it.is_expired {
                    if !it.late.is_over() {
                        add(Fault::Silence(index));
                    }
                    if it.old.is_none() && it.machine.is_some() {
                        add(Fault::GiveUp(index));
                    }
                }
            }),
            Trouble::Others => {
                for lock in &world.ensemble.locks {
                    add(Fault::Delete(lock.id));
                    add(Fault::Change(lock.id));
                }
                for dir in 0..self.dirs {
                    let mut locks = world.ensemble.locks.iter();
                    let is_empty = locks.all(|lock| usize::from(lock.dir) != dir);
                    if is_empty && world.ensemble.dirs[dir].exists {
                        add(Fault::Reap(dir));
                    }
                }
            }
            Trouble::Connections => contenders.for_each(|(index, it)| {
                disconnections(index, it).into_iter().for_each(&mut add);
            }),
            Trouble::Leaders => contenders.for_each(|(index, it)| {
                if !it.is_done() && !it.is_expired && it.link != Link::Stale {
                    add(Fault::Depose(index));
                }
                disconnections(index, it).into_iter().for_each(&mut add);
            }),
        }
    }
}

/// The ways in which a contender can lose its connection.
fn disconnections(index: usize, it: &Contender) -> Vec<Fault> {
    let mut faults = Vec::new();
    if it.machine.is_none() || it.is_expired || it.link != Link::Up {
        return faults;
    }
    let is_create = |it: &What| matches!(it, What::Enter(..));
    let is_entering = it.pipe.iter().any(|it| is_create(&it.what));
    for received in it.there()..=it.inbox.len() {
        faults.push(Fault::Disconnect(index, received, false));
        if is_entering {
            faults.push(Fault::Disconnect(index, received, true));
        }
    }
    faults
}

impl Model for Locks {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(steps);
        let is_forced = matches!(steps.as_slice(), [Step::Take(_, _)]);
        if !is_forced || self.trouble == Trouble::Connections {
            self.faults(world, steps);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        world.take_step(step);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("grants are justified", |_, world: &World| {
                world.broken.is_none()
            }),
            Property::always("holders do not conflict", |_, world: &World| {
                let is_struck = |id| world.struck.contains(&id);
                let held = world
                    .contenders
                    .iter()
                    .flat_map(|it| it.held.iter().flatten());
                let held: Vec<_> = held.filter(|it| !is_struck(it.id)).collect();
                let conflicts = |a| held.iter().any(|b| conflict(a, b));
                !held.iter().any(|lock| conflicts(lock))
            }),
            Property::always("nobody queues beyond where it waits", |_, world: &World| {
                world.contenders.iter().all(|it| !queues_beyond(world, it))
            }),
            Property::always("nobody waits for ever", |_, world: &World| {
                let mut steps = Vec::new();
                world.steps(&mut steps);
                let left = !world.ensemble.locks.is_empty();
                !steps.is_empty() || !left && world.contenders.iter().all(Contender::is_done)
            }),
            Property::sometimes("everybody is through", |_, world: &World| {
                world.contenders.iter().all(Contender::is_done)
            }),
        ]
    }
}

/// Whether a contender waits for a member and has a node of a later one that nobody is to delete.
fn queues_beyond(world: &World, it: &Contender) -> bool {
    let Some(machine) = &it.machine else {
        return false;
    };
    let is_waiting = |member: &Member| matches!(member.stage, Stage::Waiting { .. });
    let is_unanswered = !machine
        .indices(|stage| matches!(stage, Stage::Entering | Stage::Searching))
        .is_empty();
    let Some(first) = machine
        .members
        .iter()
        .position(is_waiting)
        .filter(|_| !is_unanswered)
    else {
        return false;
    };
    let later = it.entered.iter().skip(first + 1).flatten();
    later
        .filter(|lock| !it.doomed.contains(&lock.id))
        .any(|lock| world.ensemble.lock(lock.id).is_some())
}

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
