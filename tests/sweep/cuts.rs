//! Each frame, each harm, once.

use std::sync::Arc;

use test_rig::{Cut, Direction, Fault, Frame};
use tokio::time::Instant;

use crate::case::{Case, First, Harm, Lifetime};
use crate::points::{Kind, Point, points};
use crate::recipe::Recipe;
use crate::runner::{Tally, is_long, is_wanted, run_all};
use crate::scene::Stage;
use crate::store::Servers;

/// A busy machine may break a connection by itself, or give up the answer to a close, but not this
/// many times.
const LESSONS_MAX: usize = 20;
/// Runs with a database, of which the shortest counts. A busy server may be asked for the same more than once.
const LESSONS: usize = 3;

/// The frames of a run without a fault, in a session of this kind.
pub(crate) async fn learn(stage: &Arc<Stage>, recipe: Recipe, lifetime: Lifetime) -> Vec<Point> {
    let words = stage.words();
    let asked = match recipe {
        Recipe::Set | Recipe::Permit => words.asked_for_set,
        _ => words.asked,
    };
    // It comes by the clock.
    let comes = |name: &&str| lifetime != Lifetime::Long || *name != "Sync";
    let both = |name| [(Direction::ToServer, name), (Direction::FromServer, name)];
    let mut expected: Vec<_> = asked.iter().copied().filter(comes).flat_map(both).collect();
    expected.extend(words.news.map(|news| (Direction::FromServer, news)));
    let case = Case {
        recipe,
        lifetime,
        first: None,
        harm: None,
        dropped: None,
    };
    let frames = lesson(stage, case, words.connections, &expected).await;
    if std::env::var_os("SWEEP_SHOW").is_some() {
        println!("{}", crate::scene::transcript(&frames));
    }
    let mut points = points(&frames, 1);
    points.retain(|it| it.comes_in(lifetime, recipe));
    points
}

/// The frames of a run over so many connections, with at least these names.
async fn lesson(
    stage: &Arc<Stage>,
    case: Case,
    connections: u64,
    expected: &[(Direction, &str)],
) -> Vec<Frame> {
    let (mut missing, mut lessons) = (Vec::new(), Vec::new());
    let enough = match stage.words().connections {
        1 => 1,
        _ => LESSONS,
    };
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
            lessons.push(frames);
        }
        if lessons.len() == enough {
            break;
        }
    }
    let shortest = lessons
        .into_iter()
        .min_by_key(|frames| points(frames, 1).len());
    match shortest {
        Some(frames) => frames,
        None => {
            panic!("no run over {connections} connections with all frames: {missing:?} are missing")
        }
    }
}

async fn sweep(servers: Servers, recipe: Recipe) {
    let stage = Stage::set(servers).await;
    let (mut cases, mut frames) = (Vec::new(), 0);
    for lifetime in [Lifetime::Short(stage.words().short), Lifetime::Long] {
        let mut points = learn(&stage, recipe, lifetime).await;
        // Nothing is known of the lock yet, so one kind is enough.
        points.retain(|it| recipe == Recipe::Mutex || is_long() || !it.is_greeting());
        frames = points.len().max(frames);
        for point in &points {
            cases.extend(point.harms(lifetime).into_iter().map(|harm| Case {
                recipe,
                lifetime,
                first: None,
                harm: Some((point.clone(), harm)),
                dropped: None,
            }));
        }
    }
    let what = format!("{} sweep of {recipe:?}, {frames} frames", stage.store());
    judge(&stage, cases, &what).await;
}

/// The connection breaks while the subject waits, when it does not know whether it has a node, and
/// when it does not know whether its node is gone. Then the next one breaks at every frame.
async fn sweep_of_reconnects(servers: Servers, recipe: Recipe) {
    let stage = Stage::set(servers).await;
    let (words, mut cases) = (stage.words(), Vec::new());
    let answer = |(name, n): (&str, usize)| Point {
        direction: Direction::FromServer,
        name: name.to_owned(),
        n,
        connection: (words.connections > 1).then_some(1),
        kind: Kind::Request,
        is_apart: true,
    };
    let lost = Fault::CutBefore(Cut::Reset);
    for first in [
        First::Waiting,
        First::At(answer(words.entered), lost),
        First::At(answer(words.left), lost),
    ] {
        let case = Case {
            recipe,
            lifetime: Lifetime::Long,
            first: Some(first),
            harm: None,
            dropped: None,
        };
        let connections = words.connections;
        let all = 2 * connections + words.questions;
        let frames = lesson(&stage, case.clone(), all, &[]).await;
        for point in points(&frames, connections + 1) {
            if point.comes_in(Lifetime::Long, recipe) {
                cases.extend(point.harms(Lifetime::Long).into_iter().map(|harm| Case {
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
    let points = learn(&stage, recipe, Lifetime::Long).await;
    let cases = points.into_iter().map(|point| Case {
        recipe,
        lifetime: Lifetime::Long,
        first: None,
        harm: Some((point, Harm::Move)),
        dropped: None,
    });
    judge(&stage, cases.collect(), &format!("moves of {recipe:?}")).await;
}

async fn judge(stage: &Arc<Stage>, mut cases: Vec<Case>, what: &str) {
    let started = Instant::now();
    cases.retain(is_wanted);
    let mut tally = Tally::default();
    let mut missed = Vec::new();
    // A busy machine may end a short session before the frame comes, or break the connection of a long
    // one, but hardly each time.
    for _ in 0..3 {
        run_all(stage, cases, |case, outcome| {
            tally.add(case, &outcome);
            let is_certain = case.lifetime == Lifetime::Long
                && case.first.is_none()
                && case
                    .harm
                    .as_ref()
                    .is_some_and(|(point, _)| point.is_certain(case.recipe));
            if is_certain && outcome.is_ok_and(|shown| !shown.has_struck) {
                missed.push(case.clone());
            }
        })
        .await;
        cases = std::mem::take(&mut missed);
        if cases.is_empty() {
            break;
        }
    }
    tally.finish(what, started);
    let missed: Vec<_> = cases.iter().map(ToString::to_string).collect();
    assert!(
        missed.is_empty(),
        "the fault did not meet its frame: {missed:?}"
    );
}

/// The same on servers of each store.
macro_rules! cuts_on {
    ($servers:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn mutex_survives_every_cut() {
            sweep(Servers::$servers().await, Recipe::Mutex).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn read_lock_survives_every_cut() {
            sweep(Servers::$servers().await, Recipe::Read).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn write_lock_survives_every_cut() {
            sweep(Servers::$servers().await, Recipe::Write).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn set_survives_every_cut() {
            sweep(Servers::$servers().await, Recipe::Set).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn permit_survives_every_cut() {
            sweep(Servers::$servers().await, Recipe::Permit).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn mutex_survives_every_cut_after_a_cut() {
            sweep_of_reconnects(Servers::$servers().await, Recipe::Mutex).await;
        }
    };
}

cuts_on!(zookeeper);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lock_survives_a_move_to_another_server_at_every_frame() {
    for recipe in [Recipe::Mutex, Recipe::Read, Recipe::Write, Recipe::Set] {
        sweep_with_moves(recipe).await;
    }
}

mod on_etcd {
    use super::{Recipe, Servers, sweep, sweep_of_reconnects};

    cuts_on!(etcd);
}

mod on_redis {
    use super::{Recipe, Servers, sweep, sweep_of_reconnects};

    cuts_on!(redis);
}

mod on_postgres {
    use super::{Recipe, Servers, sweep, sweep_of_reconnects};

    cuts_on!(postgres);
}

mod on_mariadb {
    use super::{Recipe, Servers, sweep, sweep_of_reconnects};

    cuts_on!(mariadb);
}
