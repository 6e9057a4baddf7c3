//! Explores the shipped rules with a model checker, in every order of events: two contenders of one
//! session, other clients, and a directory that is deleted and re-created.
//!
//! The queue is taken as right, because [`acquire`](crate::acquire) has a model for it: a contender
//! that is alone neither by its listing nor by its number holds when the admission rule says so. A
//! release sends what [`release`](crate::release) sends, and may report its result as late as it
//! likes.

use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model, Property};

use super::*;

mod connection;
mod contender;
mod ensemble;
mod world;

use contender::Stage;
use world::{Bounds, OURS, Step, World};

const BOUNDS: Bounds = Bounds {
    ours: 3,
    theirs: 0,
    remakes: 0,
    breaks: 0,
    expiries: 0,
    our_readers: [false; OURS],
    they_read: false,
};

struct Session(Bounds);

impl Model for Session {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        [World::new, World::watched, World::late]
            .map(|it| it(self.0))
            .to_vec()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        world.take(step);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let sometimes = Property::<Self>::sometimes;
        let mut properties = vec![
            Property::always("who is alone by its number is alone", |_, world: &World| {
                world.broken.is_none()
            }),
            Property::always("one holds, or readers", |_, world: &World| {
                !world.is_doubly_held()
            }),
            sometimes("a number grants", |_, world| {
                world.ours.iter().any(Stage::is_granted_by_number)
            }),
            sometimes("a guess fails", |_, world| {
                world.ours.iter().any(Stage::has_guessed_wrong)
            }),
            sometimes("a node is told late", |_, world| world.is_told_late()),
            sometimes("what is known is of the directory before", |_, world| {
                world.remembers_another()
            }),
            sometimes("everybody is through", |_, world| world.is_over()),
        ];
        if self.0.remakes > 0 {
            let name = "the number that is expected comes again";
            properties.push(sometimes(name, |_, world| world.is_behind()));
        }
        if self.0.breaks > 0 {
            let name = "a watch is not set again, and misses the end of its directory";
            properties.push(sometimes(name, |_, world| world.is_deaf()));
        }
        properties
    }
}

fn explore(bounds: Bounds) {
    let checker = Session(bounds)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(2)
        .spawn_bfs()
        .join();
    eprintln!("{} states", checker.unique_state_count());
    for (name, path) in checker.discoveries() {
        if let DiscoveryClassification::Counterexample = checker.discovery_classification(name) {
            let end = path.last_state().clone();
            let steps = path.into_actions();
            panic!("{name} {:?}:\n{steps:?}\n{end:?}", end.broken);
        }
    }
    checker.assert_properties();
}

#[test]
fn others_that_come_and_go_are_noticed() {
    explore(Bounds {
        theirs: 2,
        ..BOUNDS
    });
}

#[test]
fn directory_that_is_made_anew_is_noticed() {
    explore(Bounds {
        theirs: 1,
        remakes: 1,
        ..BOUNDS
    });
}

#[test]
fn connections_that_are_lost_hide_nothing() {
    explore(Bounds {
        ours: 2,
        remakes: 1,
        breaks: 2,
        ..BOUNDS
    });
}

#[test]
fn session_that_ends_leaves_no_knowledge() {
    explore(Bounds {
        ours: 2,
        remakes: 1,
        breaks: 1,
        expiries: 1,
        ..BOUNDS
    });
}

#[test]
fn readers_that_hold_together_are_not_alone() {
    explore(Bounds {
        theirs: 2,
        our_readers: [true, false],
        they_read: true,
        ..BOUNDS
    });
}
