//! The double and a real server, in step: random scripts run on both, and the test compares what a
//! client sees. It does so for each store.
//!
//! A script is a list of steps of up to four sessions: create, delete, list, read, watch, sync,
//! transactions, several requests sent together, and sessions that are opened, closed, expired, cut
//! off and reconnected. After each step the replies, the refusals, the stats and the order of each
//! session's events must be the same in both worlds. In the end the nodes must be the same. Only
//! `differences` lists what may differ, and `differences_served` and `differences_etcd` what may differ there.
//!
//! | file | noun |
//! |---|---|
//! | `script`, `generator`, `guess`, `random` | what is done, from a seed |
//! | `client`, `gate`, `stage`, `world`, `served` | who does it, and where |
//! | `seen`, `renaming`, `numbers`, `differences`, `differences_served`, `differences_etcd` | what is seen, and when it is the same |
//! | `in_step`, `shrink`, `tally` | the comparison; what is left of a script that fails; what was covered |
//!
//! ```sh
//! cargo test -p test-rig --test memory_in_step                            # 250 scripts, 63 on a database
//! IN_STEP_SCRIPTS=100000 cargo test -p test-rig --test memory_in_step     # more
//! cargo test -p test-rig --test memory_in_step -- on_redis                # one store
//! IN_STEP_SEED=17 IN_STEP_SCRIPTS=1 cargo test -p test-rig --test memory_in_step
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod client;
mod differences;
mod differences_etcd;
mod differences_served;
mod gate;
mod generator;
mod guess;
mod in_step;
mod numbers;
mod random;
mod renaming;
mod script;
mod seen;
mod served;
mod shrink;
mod stage;
mod tally;
mod world;

use std::env;
use std::ops::Range;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use test_rig::{
    EtcdServer, MariaDbServer, PostgresServer, RedisServer, TestEnsemble, ZooKeeperServer,
};

use crate::in_step::{Difference, run};
use crate::script::Script;
use crate::served::Served;
use crate::tally::Tally;
use crate::world::{RealServer, SUPER_USER, World};

const SCRIPTS: u64 = 250;
/// So many cover everything that the tally lists. Continuous integration runs them.
const COVERING: u64 = 2_000;
/// Scripts that run at the same time on one server, each with a directory and sessions of its own.
const SIDE_BY_SIDE: usize = 16;
/// On a database, where each session has two connections, and some a process for each, and on etcd.
const SIDE_BY_SIDE_DATABASE: usize = 16;
/// There a script takes ten times as long, so only one of so many runs.
const ONE_OF_DATABASE: u64 = 4;
const DATABASE: (usize, u64) = (SIDE_BY_SIDE_DATABASE, ONE_OF_DATABASE);
/// Nothing is cleaned up, so a server is replaced after this many.
const SCRIPTS_A_SERVER: u64 = 5_000;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |it| it.parse().unwrap())
}

/// A store that the double is compared with.
struct Compared {
    start: fn() -> BoxFuture<'static, World>,
    /// What is left of a script for this store.
    script: fn(Script) -> Script,
    /// Outcomes that no script for this store can have.
    never: fn(&str) -> bool,
    test: &'static str,
    side_by_side: usize,
    one_of: u64,
}

async fn start() -> World {
    let server = ZooKeeperServer::builder()
        .property(
            "zookeeper.DigestAuthenticationProvider.superDigest",
            SUPER_USER.digest,
        )
        // Scripts do not know when a server reaps.
        .property("znode.container.checkIntervalMs", "1000000000")
        .start()
        .await
        .unwrap();
    World::Real(RealServer::new(server).await)
}

/// Runs the scripts of some seeds until one shows a difference.
async fn find_difference(
    seeds: Range<u64>,
    compared: &Compared,
    world: &World,
) -> Result<Tally, (u64, Script, Difference)> {
    let runs = stream::iter(seeds).map(async |seed| {
        let script = (compared.script)(generator::script(seed));
        let mut tally = Tally::default();
        match run(&script, world, &mut tally).await {
            Ok(()) => Ok(tally),
            Err(difference) => Err((seed, script, difference)),
        }
    });
    let mut runs = runs.buffer_unordered(compared.side_by_side);
    let mut all = Tally::default();
    while let Some(tally) = runs.next().await {
        all.merge(tally?);
    }
    Ok(all)
}

async fn compare(compared: Compared) {
    let first = number("IN_STEP_SEED", 0);
    let scripts = number("IN_STEP_SCRIPTS", SCRIPTS).div_ceil(compared.one_of);
    let end = first + scripts;
    let mut all = Tally::default();
    let mut next = first;
    while next < end {
        let seeds = next..end.min(next + SCRIPTS_A_SERVER);
        next = seeds.end;
        let world = (compared.start)().await;
        match find_difference(seeds, &compared, &world).await {
            Ok(tally) => all.merge(tally),
            Err((seed, script, difference)) => {
                let (steps, test) = (script.steps.len(), compared.test);
                // One that a second run does not show cannot be shrunk.
                let (script, difference) = match run(&script, &world, &mut all).await {
                    Ok(()) => panic!("seed {seed}, once and not again:\n\n{script}\n{difference}"),
                    Err(again) => shrink::shrink(script, again, &world).await,
                };
                panic!(
                    "seed {seed}, shrunk from {steps} steps; again with\n\
                     IN_STEP_SEED={seed} IN_STEP_SCRIPTS=1 \
                     cargo test -p test-rig --test memory_in_step -- {test}\n\n\
                     {script}\n{difference}"
                );
            }
        }
    }
    let test = compared.test;
    eprintln!("{test}: {scripts} scripts from seed {first}\n{all}");
    if scripts >= COVERING {
        let missing = all.missing(compared.never);
        assert!(missing.is_empty(), "seldom seen: {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_scripts_show_the_same_on_zookeeper() {
    let compared = Compared {
        start: || start().boxed(),
        script: |script| script,
        never: |_| false,
        test: "on_zookeeper",
        side_by_side: SIDE_BY_SIDE,
        one_of: 1,
    };
    compare(compared).await;
}

fn on(
    start: fn() -> BoxFuture<'static, World>,
    test: &'static str,
    (side_by_side, one_of): (usize, u64),
) -> Compared {
    Compared {
        start,
        script: differences_served::script,
        never: differences_served::never_seen,
        test,
        side_by_side,
        one_of,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_scripts_show_the_same_on_redis() {
    let start = || {
        // No script restarts the server, so nothing has to be kept.
        let server = RedisServer::builder().setting("appendonly", "no");
        let world =
            async { Served::on(TestEnsemble::Redis(server.start().await.unwrap().into())).await };
        world.map(World::Served).boxed()
    };
    compare(on(start, "on_redis", (SIDE_BY_SIDE, 1))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_scripts_show_the_same_on_etcd() {
    let start = || {
        // No script restarts the server, so nothing has to be kept. It gives a write up after 5 s and two such timeouts.
        let server = EtcdServer::builder()
            .setting("unsafe-no-fsync", "true")
            .setting("election-timeout", "20000");
        let world =
            async { Served::on(TestEnsemble::Etcd(server.start().await.unwrap().into())).await };
        world.map(World::Served).boxed()
    };
    let compared = Compared {
        script: differences_etcd::script,
        never: differences_etcd::never_seen,
        ..on(start, "on_etcd", DATABASE)
    };
    compare(compared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_scripts_show_the_same_on_postgres() {
    let start = || {
        let server = PostgresServer::builder().max_connections(1_000);
        let world = async {
            Served::on(TestEnsemble::Postgres(server.start().await.unwrap().into())).await
        };
        world.map(World::Served).boxed()
    };
    compare(on(start, "on_postgres", DATABASE)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_scripts_show_the_same_on_mariadb() {
    let start = || {
        let server = MariaDbServer::builder().max_connections(1_000);
        let world =
            async { Served::on(TestEnsemble::MariaDb(server.start().await.unwrap().into())).await };
        world.map(World::Served).boxed()
    };
    compare(on(start, "on_mariadb", DATABASE)).await;
}
