//! The future is dropped at every poll, alone and with each of its frames cut.
//!
//! `tests/giving_up/cancel.rs` polls a future by hand, on every ensemble. Here it is polled when it is woken,
//! and dropped after the n-th poll, so that the count means the same while the connection breaks
//! and comes back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::case::{Case, Dropped, Harm, Lifetime, harms};
use crate::cuts::learn;
use crate::points::{FEW, Point};
use crate::recipe::Recipe;
use crate::runner::{Tally, is_long, is_wanted, run_all};
use crate::scene::Stage;
use crate::store::Servers;

/// More polls than any future takes in a run without a fault.
const POLLS_MAX: usize = 200;
/// Polls that a broken connection may add: the future fails, searches, and tries again.
const POLLS_MORE: usize = 4;

/// The frames of the acquire, or those of the release.
fn frames_of(dropped: Dropped, points: &[Point]) -> Vec<Point> {
    let release = points.iter().rposition(Point::deletes).expect("a release");
    let (acquire, release) = points.split_at(release);
    let frames = match dropped {
        Dropped::Acquire => acquire,
        Dropped::Release => release,
    };
    let frames = frames.iter().filter(|it| !it.is_of_the_session());
    frames.cloned().collect()
}

/// Two, in sessions that outlive the run. With `SWEEP_LONG`, all of them, also in short sessions.
fn cuts(short: Duration) -> Vec<(Lifetime, Harm)> {
    let all = |lifetime| harms(lifetime).into_iter().map(move |it| (lifetime, it));
    match is_long() {
        true => all(Lifetime::Long)
            .chain(all(Lifetime::Short(short)))
            .collect(),
        false => FEW.map(|harm| (Lifetime::Long, harm)).to_vec(),
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
            first: None,
            harm: None,
            dropped: Some((dropped, polls)),
        };
        let outcome = Arc::clone(stage).run(case.clone()).await;
        tally.add(&case, &outcome);
        if outcome.is_ok_and(|shown| shown.was_done) {
            return polls;
        }
    }
    panic!("{recipe:?} is not done after {POLLS_MAX} polls");
}

async fn sweep(servers: Servers, recipe: Recipe, dropped: Dropped) {
    let (started, stage) = (Instant::now(), Stage::set(servers).await);
    let points = frames_of(dropped, &learn(&stage, recipe, Lifetime::Long).await);
    let mut tally = Tally::default();
    let polls = drop_alone(&stage, recipe, dropped, &mut tally).await;
    assert!(polls > 0, "done before it was polled");
    let mut cases = Vec::new();
    for point in &points {
        for (lifetime, harm) in cuts(stage.words().short) {
            if !point.comes_in(lifetime, recipe) {
                continue;
            }
            cases.extend((0..polls + POLLS_MORE).map(|polls| Case {
                recipe,
                lifetime,
                first: None,
                harm: Some((point.clone(), harm)),
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
        "{}, {dropped:?} of {recipe:?} dropped in {dropped_runs} runs, {} frames, done alone after \
         {polls} polls",
        stage.store(),
        points.len()
    );
    tally.finish(&what, started);
}

/// The same on servers of each store.
macro_rules! drops_on {
    ($servers:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn mutex_acquire_dropped_while_its_frames_are_cut() {
            sweep(Servers::$servers().await, Recipe::Mutex, Dropped::Acquire).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn read_lock_acquire_dropped_while_its_frames_are_cut() {
            sweep(Servers::$servers().await, Recipe::Read, Dropped::Acquire).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn write_lock_acquire_dropped_while_its_frames_are_cut() {
            sweep(Servers::$servers().await, Recipe::Write, Dropped::Acquire).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn set_acquire_dropped_while_its_frames_are_cut() {
            sweep(Servers::$servers().await, Recipe::Set, Dropped::Acquire).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn permit_acquire_dropped_while_its_frames_are_cut() {
            sweep(Servers::$servers().await, Recipe::Permit, Dropped::Acquire).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn release_dropped_while_its_frames_are_cut() {
            for recipe in [Recipe::Mutex, Recipe::Read, Recipe::Write, Recipe::Set] {
                sweep(Servers::$servers().await, recipe, Dropped::Release).await;
            }
        }
    };
}

drops_on!(zookeeper);

mod on_etcd {
    use super::{Dropped, Recipe, Servers, sweep};

    drops_on!(etcd);
}

mod on_redis {
    use super::{Dropped, Recipe, Servers, sweep};

    drops_on!(redis);
}

mod on_postgres {
    use super::{Dropped, Recipe, Servers, sweep};

    drops_on!(postgres);
}

mod on_mariadb {
    use super::{Dropped, Recipe, Servers, sweep};

    drops_on!(mariadb);
}
