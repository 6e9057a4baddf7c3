//! Thousands of small worlds, each drawn from one number, in which everything goes wrong at once.
//!
//! The shipped recipes run on an ensemble in memory and on virtual time. A judge checks the tree
//! and the request log at every moment. Each seed has a second world, whose store behaves as that on
//! Redis: it forgets its last writes, and its clock is set. `SIMULATION_SEED=7 scripts/quick simulation` repeats
//! one world and prints its story. `SIMULATION_SEEDS` sets how many worlds there are,
//! `SIMULATION_FIRST` the first seed, and `SIMULATION_FAILURES` after how many bad ones to stop.
//!
//! | file | noun |
//! |---|---|
//! | `plan` | what a seed decides |
//! | `world` | one run from beginning to end |
//! | `worker`, `trouble` | the users of the locks; the faults |
//! | `judge` | the rules |
//! | `removed_nodes` | no world from a seed: a node is removed at each moment of a hand-off, of which there are few |
//! | `lifelines` | how long sessions certainly live, and what they must have been notified of |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod judge;
mod lifelines;
mod plan;
mod removed_nodes;
mod trouble;
mod worker;
mod world;

use std::env;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use plan::Store;
use world::Run;

/// They take about 10 s on two cores. Continuous integration runs twenty times as many.
const SEEDS: u64 = 1_000;
/// Seeds that fail are listed up to this many.
const FAILURES_MAX: u64 = 20;
/// A world that takes this much real time never comes to rest.
const WATCHDOG: Duration = Duration::from_secs(60);

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Runs one world, unless it hangs without letting time pass.
fn watched(seed: u64, store: Store, tells: bool) -> Run {
    let (done, alive) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if alive.recv_timeout(WATCHDOG) == Err(mpsc::RecvTimeoutError::Timeout) {
            // A thread that spins can only be stopped by ending the process.
            #[expect(clippy::print_stderr, reason = "the process ends here")]
            {
                eprintln!("SIMULATION_SEED={seed} spins, {store:?}");
            }
            process::exit(101);
        }
    });
    let run = world::run(seed, store, tells);
    drop(done);
    watchdog.join().unwrap();
    run
}

fn told(seed: u64, store: Store, failure: &str) -> String {
    let story = watched(seed, store, true).story;
    let from = story.len().saturating_sub(400);
    let story = story[from..].join("\n");
    format!("{story}\n{failure}\nSIMULATION_SEED={seed} scripts/quick simulation ({store:?})")
}

#[test]
fn no_seed_breaks_a_promise() {
    no_seed_breaks_a_promise_on(Store::Ensemble);
}

/// On a store that forgets its last writes, and whose clock is set.
#[test]
fn no_seed_breaks_a_promise_on_a_store_as_redis() {
    no_seed_breaks_a_promise_on(Store::OnRedis);
}

#[expect(
    clippy::print_stdout,
    reason = "the story of a world, and how many there were"
)]
fn no_seed_breaks_a_promise_on(store: Store) {
    if let Some(seed) = number("SIMULATION_SEED") {
        let run = watched(seed, store, true);
        println!("{}", run.story.join("\n"));
        if run.failure.is_some() {
            println!("SIMULATION_SEED={seed}");
        }
        assert_eq!(
            run.failure,
            None,
            "seed {seed}: {:?}",
            plan::Plan::new(seed, store)
        );
        return;
    }
    let first = number("SIMULATION_FIRST").unwrap_or(0);
    let seeds = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let failures_max = number("SIMULATION_FAILURES").unwrap_or(FAILURES_MAX);
    let (next, grants, failed) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut failures = Vec::new();
        while failed.load(Ordering::Relaxed) < failures_max {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds {
                break;
            }
            let run = watched(seed, store, false);
            grants.fetch_add(run.grants as u64, Ordering::Relaxed);
            if let Some(failure) = run.failure {
                failed.fetch_add(1, Ordering::Relaxed);
                failures.push((seed, failure));
            }
        }
        failures
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut failures: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ends = threads.into_iter();
        ends.flat_map(|thread| thread.join().unwrap()).collect()
    });
    failures.sort();
    if let Some((seed, failure)) = failures.first() {
        let others = failures.iter().skip(1);
        let others: Vec<_> = others
            .map(|(seed, failure)| format!("{seed}: {failure}"))
            .collect();
        panic!(
            "others: {}\n{}",
            others.join("\n"),
            told(*seed, store, failure)
        );
    }
    let grants = grants.into_inner();
    println!("{store:?}: {seeds} worlds, {grants} grants");
    assert!(grants > 2 * seeds, "hardly anything was granted");
}

#[test]
fn same_seed_gives_the_same_run() {
    for store in [Store::Ensemble, Store::OnRedis] {
        for seed in 0..20 {
            let (once, again) = (watched(seed, store, true), watched(seed, store, true));
            assert!(once == again, "seed {seed}, {store:?}");
        }
    }
}
