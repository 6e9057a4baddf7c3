//! Processes contend for locks of all kinds, permits and terms on real servers while everything goes wrong. Their
//! histories are checked by the rules, and confirmed by the log of the servers if they are
//! ZooKeeper's. `soak` does it for hours.
//!
//! A failure prints its seed. `HISTORIES_SEED` repeats the faults of a run, but not its timing.
//! `HISTORIES` sets how many histories to judge.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/again.rs"]
mod again;
mod etcd;
mod mariadb;
mod members;
mod operator;
mod orders;
#[path = "../support/plot.rs"]
mod plot;
mod postgres;
mod primary;
mod redis;
mod run;
mod servers;
mod soak;
mod stage;
#[path = "../support/talk.rs"]
mod talk;
mod trouble;
mod worker;
mod zookeeper;

use std::env;

use test_rig::ZooKeeperEnsemble;
use test_rig::history::monotonic_now;

use members::Members;
use orders::{Orders, Scenes};
use run::{Outcome, Run};
use soak::{Plan, Soak};

/// Histories of a second each, six at a time. Two or three faults happen in each.
const SCENES: Scenes = Scenes {
    count: 5,
    side_by_side: 6,
    length_ms: 1000,
};
/// Histories to judge, half of them for each of two kinds of servers, or on three. One with few grants does not
/// count, as when the server was down for most of it.
const HISTORIES: u64 = 50;
const GRANTS_MIN: usize = 10;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|it| it.parse().unwrap())
}

fn first_seed() -> u64 {
    number("HISTORIES_SEED").unwrap_or_else(|| monotonic_now() % 1_000_000_000)
}

/// Makes runs one after the other, until half of [`HISTORIES`] are judged.
async fn runs(first_seed: u64, judged: impl AsyncFn(u64) -> Outcome) -> Outcome {
    let wanted = number("HISTORIES").unwrap_or(HISTORIES).div_ceil(2);
    let wanted = usize::try_from(wanted).unwrap();
    let mut all = Outcome::default();
    // One history from each run is very little. A machine that cannot do that is not fit for this
    // test.
    for seed in (first_seed..).take(wanted) {
        all.add(judged(seed).await);
        if all.histories >= wanted {
            break;
        }
    }
    assert!(all.histories >= wanted, "{all:?}");
    all
}

#[tokio::test]
async fn contenders_of_four_processes_keep_every_promise_while_everything_goes_wrong() {
    let seed = first_seed();
    let run = async |seed| Run::judged(seed, SCENES).await;
    // Two servers at a time, because half of the time is spent waiting for one to come back.
    let (mut all, others) = tokio::join!(runs(seed, run), runs(seed + 1_000_000, run));
    all.add(others);
    println!("{all:?}");
    assert!(all.has_all_kinds(), "{all:?}");
    // Half of the grants are to writers. A write that does not check its node does not count.
    assert!(all.writes * 4 > all.grants, "{all:?}");
}

/// Two seconds each, or more if a leader is elected meanwhile.
const SCENES_OF_THREE: Scenes = Scenes {
    count: 25,
    side_by_side: 4,
    length_ms: 2000,
};

async fn judged_on_three<M: Members>(scenes: Scenes) {
    let run = async |seed| Run::<M>::judged_on_three(seed, scenes).await;
    let all = runs(first_seed(), run).await;
    println!("{all:?}");
    assert!(all.has_all_kinds(), "{all:?}");
}

#[tokio::test]
async fn contenders_on_three_servers_keep_every_promise_while_leaders_and_quorums_are_lost() {
    judged_on_three::<ZooKeeperEnsemble>(SCENES_OF_THREE).await;
}

/// Servers of which one serves at a time: etcd, Redis, PostgreSQL, MariaDB.
mod on_one_at_a_time {
    use super::*;
    use crate::primary::{self, Keeps, Machine};

    /// Grants stop for most of a second after each restart, so scenes are longer.
    const SCENES: Scenes = Scenes {
        count: 5,
        side_by_side: 4,
        length_ms: 2000,
    };

    pub(crate) async fn judged<M: Machine>(keeps: Keeps) {
        let run = async |seed| primary::judged::<M>(seed, SCENES, keeps).await;
        let all = runs(first_seed(), run).await;
        println!("{keeps:?} {all:?}");
        assert!(all.has_all_kinds(), "{all:?}");
    }
}

mod on_etcd {
    use test_rig::{EtcdCluster, EtcdServer};

    use super::*;
    use crate::on_one_at_a_time::judged;
    use crate::primary::Keeps;

    #[tokio::test]
    async fn contenders_keep_every_promise_on_a_server_that_keeps_what_it_has_acknowledged() {
        judged::<EtcdServer>(Keeps::All).await;
    }

    /// More happens to them, and it takes longer.
    const SCENES_OF_THREE: Scenes = Scenes {
        count: 24,
        side_by_side: 4,
        length_ms: 4000,
    };

    #[tokio::test]
    async fn contenders_keep_every_promise_while_leaders_and_quorums_are_lost_and_members_replaced()
    {
        judged_on_three::<EtcdCluster>(SCENES_OF_THREE).await;
    }
}

mod on_redis {
    use test_rig::RedisServer;

    use crate::on_one_at_a_time::judged;
    use crate::primary::Keeps;

    #[tokio::test]
    async fn contenders_keep_every_promise_on_a_server_that_keeps_what_it_has_acknowledged() {
        judged::<RedisServer>(Keeps::All).await;
    }

    #[tokio::test]
    async fn contenders_keep_every_promise_on_servers_that_forget_what_was_written_last() {
        judged::<RedisServer>(Keeps::Most).await;
    }
}

mod on_postgres {
    use test_rig::PostgresServer;

    use crate::on_one_at_a_time::judged;
    use crate::primary::Keeps;

    #[tokio::test]
    async fn contenders_keep_every_promise_on_a_server_that_keeps_what_it_has_acknowledged() {
        judged::<PostgresServer>(Keeps::All).await;
    }

    #[tokio::test]
    async fn contenders_keep_every_promise_while_replicas_take_the_place_of_their_primaries() {
        judged::<PostgresServer>(Keeps::Most).await;
    }
}

mod on_mariadb {
    use test_rig::MariaDbServer;

    use crate::on_one_at_a_time::judged;
    use crate::primary::Keeps;

    #[tokio::test]
    async fn contenders_keep_every_promise_on_a_server_that_keeps_what_it_has_acknowledged() {
        judged::<MariaDbServer>(Keeps::All).await;
    }

    #[tokio::test]
    async fn contenders_keep_every_promise_on_a_server_that_forgets_all_when_it_is_killed() {
        judged::<MariaDbServer>(Keeps::Most).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes as long as it is told to: scripts/soak"]
async fn soak() {
    let tally = Soak::run(Plan::from_environment()).await;
    assert_eq!(tally.violations, 0);
    assert!(tally.grants() > 0, "{tally}");
}

#[tokio::test]
#[ignore = "a process that the other tests start"]
async fn worker_process() {
    if let Some(orders) = again::orders() {
        let orders: Orders = orders.parse().unwrap();
        worker::work(orders).await;
    }
}
