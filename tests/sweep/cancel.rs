//! The future is dropped at every poll, alone and with each of its frames cut.
//!
//! `tests/giving_up/cancel.rs` polls a future by hand, on every ensemble. Here it is polled when it is woken,
//! and dropped after the n-th poll, so that the count means the same while the connection breaks
//! and comes back.

use std::sync::Arc;

use recipes_testing::{Cut, Direction, Fault, Opcode};
use tokio::time::Instant;

use crate::case::{Case, Dropped, Harm, Lifetime, Point, harms};
use crate::cuts::learn;
use crate::recipe::Recipe;
use crate::runner::{Tally, is_wanted, run_all};
use crate::scene::Stage;

/// More polls than any future takes in a run without a fault.
const POLLS_MAX: usize = 200;
/// Polls that a broken connection may add: the future fails, searches, and tries again.
const POLLS_MORE: usize = 4;

/// The frames of the acquire, or those of the release.
fn frames_of(dropped: Dropped, points: &[Point]) -> Vec<Point> {
    let deletes = |it: &Point| {
        it.direction == Direction::ToServer && matches!(it.opcode, Opcode::Delete | Opcode::Multi)
    };
    let release = points.iter().rposition(deletes).expect("a release");
    let (acquire, release) = points.split_at(release);
    let frames = match dropped {
        Dropped::Acquire => acquire,
        Dropped::Release => release,
    };
    let is_part = |it: &&Point| {
        let others = [Opcode::Connect, Opcode::Ping, Opcode::CloseSession];
        !others.contains(&it.opcode)
    };
    frames.iter().filter(is_part).copied().collect()
}

/// Two, in sessions that outlive the run. With `SWEEP_LONG`, all of them, also in short sessions.
fn cuts() -> Vec<(Lifetime, Harm)> {
    let all = |lifetime| harms(lifetime).into_iter().map(move |it| (lifetime, it));
    match std::env::var_os("SWEEP_LONG") {
        Some(_) => all(Lifetime::Long).chain(all(Lifetime::Short)).collect(),
        None => [Fault::CutBefore(Cut::Fin), Fault::CutAfter(Cut::Reset)]
            .map(|fault| (Lifetime::Long, Harm::Fault(fault)))
            .to_vec(),
    }
}

/// Drops the future at every poll until it is done. Returns how many polls that took.
async fn drop_alone(
    stage: &Arc<Stage>,
    recipe: Recipe,
    dropped: Dropped,
    tally: &mut Tally,
) -> usize {
    for polls in 0..POLLS_MAX {
        let case = Case {
            recipe,
            lifetime: Lifetime::Long,
            harm: None,
            dropped: Some((dropped, polls)),
        };
        let outcome = Arc::clone(stage).run(case).await;
        tally.add(&case, &outcome);
        if outcome.is_ok_and(|shown| shown.was_done) {
            return polls;
        }
    }
    panic!("{recipe:?} is not done after {POLLS_MAX} polls");
}

async fn sweep(recipe: Recipe, dropped: Dropped) {
    let (started, stage) = (Instant::now(), Stage::set().await);
    let points = frames_of(dropped, &learn(&stage, recipe).await);
    let mut tally = Tally::default();
    let polls = drop_alone(&stage, recipe, dropped, &mut tally).await;
    assert!(polls > 0, "done before it was polled");
    let mut cases = Vec::new();
    for point in &points {
        for (lifetime, harm) in cuts() {
            if !point.comes_in(lifetime, recipe) {
                continue;
            }
            cases.extend((0..polls + POLLS_MORE).map(|polls| Case {
                recipe,
                lifetime,
                harm: Some((*point, harm)),
                dropped: Some((dropped, polls)),
            }));
        }
    }
    cases.retain(is_wanted);
    let mut dropped_runs = 0;
    run_all(&stage, cases, |case, outcome| {
        tally.add(case, &outcome);
        dropped_runs += usize::from(outcome.is_ok_and(|shown| !shown.was_done));
    })
    .await;
    let what = format!(
        "{dropped:?} of {recipe:?} dropped in {dropped_runs} runs, {} frames, done alone after \
         {polls} polls",
        points.len()
    );
    tally.finish(&what, started);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_acquire_dropped_while_its_frames_are_cut() {
    sweep(Recipe::Mutex, Dropped::Acquire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_lock_acquire_dropped_while_its_frames_are_cut() {
    sweep(Recipe::Read, Dropped::Acquire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_lock_acquire_dropped_while_its_frames_are_cut() {
    sweep(Recipe::Write, Dropped::Acquire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_acquire_dropped_while_its_frames_are_cut() {
    sweep(Recipe::Set, Dropped::Acquire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_dropped_while_its_frames_are_cut() {
    for recipe in [Recipe::Mutex, Recipe::Read, Recipe::Write, Recipe::Set] {
        sweep(recipe, Dropped::Release).await;
    }
}
