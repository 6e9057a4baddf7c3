//! Each frame, each harm, once.

use std::sync::Arc;

use recipes_testing::{Cut, Direction, Fault, Frame};
use tokio::time::Instant;

use crate::case::{Case, First, Harm, Lifetime, Point, harms, points};
use crate::recipe::Recipe;
use crate::runner::{Tally, is_long, is_wanted, run_all};
use crate::scene::Stage;
use crate::store::Servers;

/// A busy machine may break a connection by itself, or give up the answer to a close, but not this
/// many times.
const LESSONS_MAX: usize = 20;

/// The frames of a run without a fault.
pub(crate) async fn learn(stage: &Arc<Stage>, recipe: Recipe) -> Vec<Point> {
    let asked: &[&str] = match (stage.is_on_redis(), recipe) {
        (true, _) => &["open", "multi create", "look", "multi delete", "close"],
        (false, Recipe::Set) => &["Multi", "MultiRead", "GetData", "Sync"],
        (false, _) => &["Create", "GetChildren", "Delete", "GetData", "Sync"],
    };
    let news = match stage.is_on_redis() {
        true => "message",
        false => "Notification",
    };
    let both = |name| [(Direction::ToServer, name), (Direction::FromServer, name)];
    let mut expected: Vec<_> = asked.iter().copied().flat_map(both).collect();
    expected.push((Direction::FromServer, news));
    let case = Case {
        recipe,
        lifetime: Lifetime::Short,
        first: None,
        harm: None,
        dropped: None,
    };
    points(&lesson(stage, case, 1, &expected).await, 1)
}

/// The frames of a run over so many connections, with at least these names.
async fn lesson(
    stage: &Arc<Stage>,
    case: Case,
    connections: u64,
    expected: &[(Direction, &str)],
) -> Vec<Frame> {
    let mut missing = Vec::new();
    for _ in 0..LESSONS_MAX {
        let shown = Arc::clone(stage).run(case.clone()).await;
        let frames = shown.expect("a run without a fault").frames;
        let is_in = |(direction, name): &(Direction, &str)| {
            let mut of_way = frames.iter().filter(|it| it.direction == *direction);
            of_way.any(|it| it.names.iter().any(|it| it == name))
        };
        missing = expected.iter().filter(|it| !is_in(it)).collect();
        let used = frames.iter().map(|it| it.connection).max();
        if missing.is_empty() && used == Some(connections) {
            return frames;
        }
    }
    panic!("no run over {connections} connections with all frames: {missing:?} are missing")
}

async fn sweep(servers: Servers, recipe: Recipe) {
    let stage = Stage::set(servers).await;
    let mut points = learn(&stage, recipe).await;
    // Nothing is known of the lock yet, so one kind is enough.
    points.retain(|it| recipe == Recipe::Mutex || is_long() || !it.is_greeting());
    let mut cases = Vec::new();
    for lifetime in [Lifetime::Short, Lifetime::Long] {
        for point in points.iter().filter(|it| it.comes_in(lifetime, recipe)) {
            cases.extend(harms(lifetime).into_iter().map(|harm| Case {
                recipe,
                lifetime,
                first: None,
                harm: Some((point.clone(), harm)),
                dropped: None,
            }));
        }
    }
    let what = format!(
        "{} sweep of {recipe:?}, {} frames",
        stage.store(),
        points.len()
    );
    judge(&stage, cases, &what).await;
}

/// The connection breaks while the subject waits, when it does not know whether it has a node, and
/// when it does not know whether its node is gone. Then the next one breaks at every frame.
async fn sweep_of_reconnects(servers: Servers, recipe: Recipe) {
    let stage = Stage::set(servers).await;
    let (entered, left) = match stage.is_on_redis() {
        true => ("multi create", "multi delete"),
        false => ("Create", "Delete"),
    };
    let mut cases = Vec::new();
    let answer = |name: &str| Point {
        direction: Direction::FromServer,
        name: name.to_owned(),
        n: 1,
    };
    let lost = Fault::CutBefore(Cut::Reset);
    for first in [
        First::Waiting,
        First::At(answer(entered), lost),
        First::At(answer(left), lost),
    ] {
        let case = Case {
            recipe,
            lifetime: Lifetime::Long,
            first: Some(first),
            harm: None,
            dropped: None,
        };
        for point in points(&lesson(&stage, case.clone(), 2, &[]).await, 2) {
            if point.comes_in(Lifetime::Long, recipe) {
                cases.extend(harms(Lifetime::Long).into_iter().map(|harm| Case {
                    harm: Some((point.clone(), harm)),
                    ..case.clone()
                }));
            }
        }
    }
    let what = format!("{} sweep of {recipe:?} after a cut", stage.store());
    judge(&stage, cases, &what).await;
}

/// The server that the subject moves to may lag behind the previous one.
async fn sweep_with_moves(recipe: Recipe) {
    let stage = Stage::set(Servers::ensemble().await).await;
    let points = learn(&stage, recipe).await;
    let moves = points
        .iter()
        .filter(|it| it.comes_in(Lifetime::Long, recipe));
    let cases = moves.map(|point| Case {
        recipe,
        lifetime: Lifetime::Long,
        first: None,
        harm: Some((point.clone(), Harm::Move)),
        dropped: None,
    });
    judge(&stage, cases.collect(), &format!("moves of {recipe:?}")).await;
}

async fn judge(stage: &Arc<Stage>, mut cases: Vec<Case>, what: &str) {
    let started = Instant::now();
    cases.retain(is_wanted);
    let mut tally = Tally::default();
    let mut missed = Vec::new();
    run_all(stage, cases, |case, outcome| {
        tally.add(case, &outcome);
        // A busy machine may end a short session before the frame comes.
        let is_certain = case.lifetime == Lifetime::Long
            && case.first.is_none()
            && case
                .harm
                .as_ref()
                .is_some_and(|(point, _)| point.is_certain(case.recipe));
        if is_certain && outcome.is_ok_and(|shown| !shown.has_struck) {
            missed.push(case.to_string());
        }
    })
    .await;
    tally.finish(what, started);
    assert!(
        missed.is_empty(),
        "the fault did not meet its frame: {missed:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_survives_every_cut() {
    sweep(Servers::zookeeper().await, Recipe::Mutex).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_lock_survives_every_cut() {
    sweep(Servers::zookeeper().await, Recipe::Read).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_lock_survives_every_cut() {
    sweep(Servers::zookeeper().await, Recipe::Write).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_survives_every_cut() {
    sweep(Servers::zookeeper().await, Recipe::Set).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lock_survives_a_move_to_another_server_at_every_frame() {
    for recipe in [Recipe::Mutex, Recipe::Read, Recipe::Write, Recipe::Set] {
        sweep_with_moves(recipe).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_survives_every_cut_after_a_cut() {
    sweep_of_reconnects(Servers::zookeeper().await, Recipe::Mutex).await;
}

#[cfg(feature = "redis")]
mod on_redis {
    use super::{Recipe, Servers, sweep, sweep_of_reconnects};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mutex_survives_every_cut_after_a_cut() {
        sweep_of_reconnects(Servers::redis().await, Recipe::Mutex).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mutex_survives_every_cut() {
        sweep(Servers::redis().await, Recipe::Mutex).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn read_lock_survives_every_cut() {
        sweep(Servers::redis().await, Recipe::Read).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn write_lock_survives_every_cut() {
        sweep(Servers::redis().await, Recipe::Write).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn set_survives_every_cut() {
        sweep(Servers::redis().await, Recipe::Set).await;
    }
}
