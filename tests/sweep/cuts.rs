//! Each frame, each harm, once.

use std::sync::Arc;

use recipes_testing::{Direction, Frame, Opcode};
use tokio::time::Instant;

use crate::case::{Case, Lifetime, Point, harms, points};
use crate::recipe::Recipe;
use crate::runner::{Tally, is_wanted, run_all};
use crate::scene::Stage;

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
        lifetime: Lifetime::Short,
        harm: None,
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
    let mut cases = Vec::new();
    for lifetime in [Lifetime::Short, Lifetime::Long] {
        for point in points.iter().filter(|it| it.comes_in(lifetime)) {
            cases.extend(harms(lifetime).into_iter().map(|harm| Case {
                recipe,
                lifetime,
                harm: Some((*point, harm)),
                dropped: None,
            }));
        }
    }
    cases.retain(is_wanted);
    let mut tally = Tally::default();
    let mut missed = Vec::new();
    run_all(&stage, cases, |case, outcome| {
        tally.add(case, &outcome);
        // A busy machine may end a short session before its frame comes.
        let is_certain = case.lifetime == Lifetime::Long
            && case.harm.is_some_and(|(point, _)| point.is_certain());
        if is_certain && outcome.is_ok_and(|shown| !shown.has_struck) {
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
