//! How threads interleave: runs the shipped code on shuttle's mutexes and atomics, in random
//! orders. The orders have few preemptions, which find most races soon.
//!
//! Each operation that tokio or `DashMap` locks by itself counts as one step here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::task::{Context, Waker};

use futures::FutureExt;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::LostReason;
use crate::lock::hold::{Hold, HoldState};
use crate::lock::lease::Lease;
use crate::lock::local_queue::LocalQueue;
use crate::lock::table::{Key, Present};
use crate::lock::target::Target;
use crate::names::node_name::LockKind;
use crate::names::owner::Owner;
use crate::scripted::{Scripted, Sessions, Stage, T, contend};
use crate::session::epoch::{Epoch, Link, Origin};
use crate::session::leftovers::Leftovers;
use crate::store::{Store, Traits};

/// Orders for each race and each way to choose them.
const ORDERS: usize = 500;
/// Most preemptions in an order, plus one.
const DEPTH_MAX: usize = 3;

/// Tries every number of preemptions. If a race has hardly more steps than the highest number,
/// every step is preempted then, and no thread would ever run undisturbed.
fn explore(race: impl Fn(&Runtime) + Send + Sync + 'static) {
    let race = Arc::new(race);
    for depth in 1..=DEPTH_MAX {
        explore_by(PctScheduler::new(depth, ORDERS), Arc::clone(&race));
    }
    explore_by(RandomScheduler::new(ORDERS), race);
}

fn explore_by(
    scheduler: impl Scheduler + 'static,
    race: Arc<impl Fn(&Runtime) + Send + Sync + 'static>,
) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    Runner::new(scheduler, config).run(move || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        race(&runtime);
    });
}

fn target(stage: &Stage) -> Target {
    Target {
        lock: stage.lock("/a", 5),
        kind: LockKind::Mutex,
        beside: None,
        owner: None,
        permits: None,
        data: None,
    }
}

fn queue_of(target: &Target) -> Arc<LocalQueue> {
    Arc::clone(target.lock.local_queue(LockKind::Mutex).unwrap())
}

fn key() -> Key {
    Key {
        path: "/a".into(),
        kind: LockKind::Mutex,
        owner: Owner::new(),
    }
}

/// If both happened, a reader of the old holder would hold next to another holder's writer.
#[test]
fn node_is_handed_on_or_shared_with_a_reader_and_not_both() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let target = target(&stage);
        let queue = queue_of(&target);
        let lease = Arc::new(stage.lease_of(&target.lock, 1, None));
        lease.keep(queue.take_for_test());
        let mut waiter = contend(queue, target);
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(waiter.poll_unpin(&mut nobody).is_pending());
        let shared = Arc::clone(&lease);
        let reader = thread::spawn(move || shared.writer().tie());
        let deletion = lease.retire();
        let is_shared = reader.join().unwrap();
        assert!(!is_shared || deletion.is_some(), "shared and handed on");
    });
}

/// If neither happened, nobody would delete the node. If both did, a reader would hold without one.
#[test]
fn node_is_joined_by_a_reader_or_deleted_by_the_last_and_not_both() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let target = target(&stage);
        let lease = stage.lease_of(&target.lock, 1, None);
        let (node, lock) = (Arc::clone(lease.node()), Arc::clone(&target.lock));
        let joining = thread::spawn(move || Lease::join(&node, &lock));
        let is_deleted = lease.retire().is_some();
        let joined = joining.join().unwrap();
        assert_eq!(joined.is_none(), is_deleted);
    });
}

#[test]
fn reader_that_joins_a_node_when_it_is_lost_is_told() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let target = target(&stage);
        let lease = Arc::new(stage.lease_of(&target.lock, 1, None));
        let lost = Arc::clone(&lease);
        let losing = thread::spawn(move || drop(lost.note_loss(LostReason::NodeRemoved)));
        let joined = Lease::join(lease.node(), &target.lock).unwrap();
        losing.join().unwrap();
        assert!(joined.lost().now_or_never().is_some(), "not told");
    });
}

/// Either both have the same hold, or the last guard has given up the lease.
#[test]
fn owner_that_enters_while_the_last_leaves_has_a_lease_or_nothing() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let key = key();
        let share = Hold::begin(key.clone(), stage.lease(1));
        let table = stage.session.clone();
        let Present::Held(hold) = table.paths().present(&key) else {
            panic!("no hold");
        };
        let entering = Arc::clone(&hold);
        let enters = thread::spawn(move || match entering.join() {
            HoldState::Good(share) => Some(share),
            HoldState::Over => None,
            HoldState::Lost(lost) => panic!("{lost}"),
        });
        drop(share);
        let entered = enters.join().unwrap();
        let is_over = hold.lease().retire().is_none();
        assert_eq!(entered.is_none(), is_over, "entered what was given up");
    });
}

#[test]
fn end_of_a_hold_leaves_the_next_one_of_its_owner() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let key = key();
        let first = Hold::begin(key.clone(), stage.lease(1));
        let next = stage.lease(2);
        let same = key.clone();
        let taking = thread::spawn(move || Hold::begin(same, next));
        drop(first);
        let _next = taking.join().unwrap();
        let present = stage.session.paths().present(&key);
        assert!(matches!(present, Present::Held(_)), "forgotten");
    });
}

/// If a contender took the epoch task for awake while that saw no contender, the session would be
/// without heartbeats.
#[test]
fn contender_is_seen_by_the_task_or_wakes_it() {
    explore(|_| {
        let nodes = Scripted::new(Some(T));
        let store: Arc<dyn Store> = Sessions::of(&nodes, std::time::Duration::ZERO);
        let clock = Clock::new(&store);
        let (_link, link) = watch::channel(Link::Connected(1));
        let sent = clock.now();
        let origin = Origin {
            clock,
            highest: Arc::default(),
            traits: Traits::default(),
        };
        let epoch = Arc::new(Epoch::new(1, nodes, link, origin, sent));
        let leftovers = || Arc::new(Leftovers::new([]));
        let before = epoch.contend(&leftovers());
        assert!(epoch.attend());
        drop(before);
        while epoch.wake_task.notified().now_or_never().is_some() {}
        let contending = Arc::clone(&epoch);
        let leftovers = leftovers();
        let contender = thread::spawn(move || contending.contend(&leftovers));
        let is_seen = epoch.attend();
        let _contending = contender.join().unwrap();
        let is_woken = epoch.wake_task.notified().now_or_never().is_some();
        assert!(is_seen || is_woken, "nobody beats for it");
    });
}

#[test]
fn turn_goes_on_where_its_next_contender_gives_up() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let target = target(&stage);
        let queue = queue_of(&target);
        let turn = queue.take_for_test();
        let mut waiter = contend(Arc::clone(&queue), target);
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(waiter.poll_unpin(&mut nobody).is_pending());
        let gives_up = thread::spawn(move || drop(waiter));
        drop(turn);
        gives_up.join().unwrap();
        // The turn is free.
        drop(queue.take_for_test());
    });
}

#[test]
fn turn_of_a_lease_that_is_lost_meanwhile_goes_on() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let target = target(&stage);
        let queue = queue_of(&target);
        let lease = Arc::new(stage.lease_of(&target.lock, 1, None));
        let turn = queue.take_for_test();
        let losing = Arc::clone(&lease);
        let loses = thread::spawn(move || losing.note_loss(LostReason::NodeRemoved));
        lease.keep(turn);
        loses.join().unwrap();
        drop(queue.take_for_test());
    });
}

/// Otherwise it would be measured as held until its release, and the loss would be counted nowhere.
#[test]
fn hold_that_is_lost_as_it_begins_is_over() {
    explore(|runtime| {
        let stage = runtime.block_on(Stage::new());
        let lease = Arc::new(stage.lease(1));
        let losing = Arc::clone(&lease);
        let loses = thread::spawn(move || losing.note_loss(LostReason::NodeRemoved));
        lease.begin(LockKind::Mutex);
        loses.join().unwrap();
        assert!(!lease.is_measured());
    });
}
