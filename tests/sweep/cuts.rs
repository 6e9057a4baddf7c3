//! Each frame, each fault, once.

use std::sync::Arc;

use recipes_testing::{Direction, Frame, Opcode};
use tokio::time::Instant;

use crate::case::{Case, Point, faults, points};
use crate::recipe::Recipe;
use crate::runner::{Tally, is_wanted, run_all};
use crate::scene::{SESSION_TIMEOUT, Shown, Stage};

/// A busy machine may break a connection of its own accord: not so often.
const LESSONS_MAX: usize = 20;

/// The frames of a run without a fault.
pub(crate) async fn learn(stage: &Arc<Stage>, recipe: Recipe) -> Vec<Point> {
    let points = points(&undisturbed(stage, recipe).await);
    let (entered, left) = match recipe {
        Recipe::Set => (Opcode::Multi, Opcode::Multi),
        _ => (Opcode::Create, Opcode::Delete),
    };
    for opcode in [
        entered,
        left,
        Opcode::GetChildren,
        Opcode::GetData,
        Opcode::Sync,
    ] {
        for direction in [Direction::ToServer, Direction::FromServer] {
            let is_it = |it: &Point| it.direction == direction && it.opcode == opcode;
            assert!(
                points.iter().any(is_it),
                "no {opcode:?} {direction:?} in {points:?}"
            );
        }
    }
    assert!(
        points.iter().any(|it| it.opcode == Opcode::Notification),
        "{points:?}"
    );
    points
}

async fn undisturbed(stage: &Arc<Stage>, recipe: Recipe) -> Vec<Frame> {
    let case = Case {
        recipe,
        fault: None,
        dropped: None,
    };
    for _ in 0..LESSONS_MAX {
        let shown = Arc::clone(stage).run(case).await;
        let frames = shown.expect("a run without a fault").frames;
        if frames.iter().all(|frame| frame.connection == 1) {
            return frames;
        }
    }
    panic!("no connection lasts for a run: the machine is too busy");
}

async fn sweep(recipe: Recipe) {
    let (started, stage) = (Instant::now(), Stage::set().await);
    let points = learn(&stage, recipe).await;
    let with = |point: &Point| {
        let point = *point;
        faults(SESSION_TIMEOUT).into_iter().map(move |fault| Case {
            recipe,
            fault: Some((point, fault)),
            dropped: None,
        })
    };
    let cases: Vec<_> = points.iter().flat_map(with).filter(is_wanted).collect();
    let mut tally = Tally::default();
    let mut missed = Vec::new();
    run_all(&stage, cases, |case, outcome| {
        tally.add(case, &outcome);
        let is_certain = case
            .fault
            .is_some_and(|(point, _)| point.n == 1 && point.is_certain());
        // A machine that is too busy for a short session may end it before its frame comes.
        let has_missed = |shown: Shown| !shown.has_struck && !shown.was_lost;
        if is_certain && outcome.is_ok_and(has_missed) {
            missed.push(case.to_string());
        }
    })
    .await;
    let what = format!("cut sweep of {recipe:?}, {} frames", points.len());
    tally.finish(&what, started);
    assert!(
        missed.is_empty(),
        "the fault did not meet its frame: {missed:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_survives_every_cut() {
    sweep(Recipe::Mutex).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_lock_survives_every_cut() {
    sweep(Recipe::Read).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_lock_survives_every_cut() {
    sweep(Recipe::Write).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_survives_every_cut() {
    sweep(Recipe::Set).await;
}
