//! Explores the shipped state machine with a model checker, in every order of events: several
//! contenders, an ensemble whose replicas lag, and a bounded number of faults.
//!
//! What is guaranteed at a grant: consider the moment at which the latest of the answers and watch
//! events that the contender has taken was *generated*. It is a moment in the history of the
//! ensemble, between the first request and the grant. At that moment the contender's node existed
//! and no conflicting node was ahead of it. For members of a set that are not watched, the moment
//! is that of their own listing, or of the last event taken while they were watched. It is after
//! the last create, on the connection of the grant. An operator may delete the node in the next
//! moment.
//!
//! A node that is no lock's may get ahead of it, and so may a node made after the end of the
//! counter. Neither holds here. But a contender waits for everything that a listing shows ahead.
//!
//! No contender waits for ever. Consider a state in which nothing happens any more until a holder
//! releases or another client deletes its node. A waiting contender then waits for a node that
//! exists, that is not its own and that its maker knows to delete. Something is ahead of its node.
//!
//! Time is abstract. A deadline passes for all requests sent until then, and only then may the
//! ensemble end the session: the present leader after the deadline that counts from its last
//! answer, a new leader after the deadline that counts from the last commit. What is held is valid
//! until a deadline passes, and never longer. Holders must not conflict, whether their nodes exist
//! or not, except for nodes that an operator deleted.

use stateright::{Model, Property};

use super::*;

mod connection;
mod contender;
mod ensemble;
mod faults;
mod grants;
mod inbox;
mod liveness;
mod names;
mod requests;
mod runs;
mod server;
mod world;

use contender::{Contender, Op};
use ensemble::{Stranger, conflict};
use faults::Trouble;
use world::{Step, World};

/// How many permits a semaphore has.
const PERMITS: usize = 2;

struct Locks {
    programs: Vec<&'static [Op]>,
    dirs: usize,
    trouble: Trouble,
    faults: u8,
    /// How many nodes an operator deletes, in addition to other faults.
    strikes: u8,
    /// How many nodes of other clients come, and which kinds. They are deleted at any time.
    strangers: (u8, &'static [Stranger]),
    /// No directory exists at first.
    is_bare: bool,
    /// How many times an empty directory is reaped, in addition to other faults.
    reaps: u8,
    /// What the counters start with, and whether they go on below zero.
    first: i32,
    wraps: bool,
    /// Whether watches report that a node was the first.
    tells_first: bool,
}

impl Locks {
    fn new(programs: &[&'static [Op]], dirs: usize) -> Self {
        Self {
            programs: programs.to_vec(),
            dirs,
            trouble: Trouble::Nothing,
            faults: 0,
            strikes: 0,
            strangers: (0, &[]),
            is_bare: false,
            reaps: 0,
            first: 0,
            wraps: false,
            tells_first: false,
        }
    }
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
            self.meddle(world, steps);
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
                let permits = held.iter().filter(|it| it.kind == LockKind::Permit);
                permits.count() <= PERMITS && !held.iter().any(|lock| conflicts(lock))
            }),
            Property::always("nobody queues beyond where it waits", |_, world: &World| {
                world.contenders.iter().all(|it| !queues_beyond(world, it))
            }),
            Property::always("nobody waits for ever", |_, world: &World| {
                !world.has_stuck()
            }),
            Property::sometimes("everybody is through", |_, world: &World| {
                world.contenders.iter().all(Contender::is_done)
            }),
        ]
    }
}

/// Whether a contender waits for a member and has a node of a later one that is not to be deleted.
fn queues_beyond(world: &World, it: &Contender) -> bool {
    let Some(machine) = &it.machine else {
        return false;
    };
    let is_waiting = |member: &Member| matches!(member.stage, Stage::Waiting { .. });
    // Nothing is decided before every answer has arrived.
    let is_unanswered = |stage: &Stage| {
        matches!(
            stage,
            Stage::Entering | Stage::Searching | Stage::Listing { .. }
        )
    };
    let is_unanswered = !machine.indices(is_unanswered).is_empty();
    let Some(first) = machine
        .members
        .iter()
        .position(is_waiting)
        .filter(|_| !is_unanswered)
    else {
        return false;
    };
    // The leases of a semaphore wait together, behind its mutex.
    let group = machine.group(first);
    let later = it.entered.iter().skip(group.end).flatten();
    later
        .filter(|lock| !it.doomed.contains(&lock.id))
        .any(|lock| world.ensemble.lock(lock.id).is_some())
}
