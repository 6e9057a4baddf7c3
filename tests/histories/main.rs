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

use test_rig::history::monotonic_now;

use orders::{Orders, Scenes};
use run::{Outcome, Run};
use soak::{Plan, Soak};

/// Histories of a second each, six at a time. Two or three faults happen in each.
const SCENES: Scenes = Scenes {
    count: 5,
    side_by_side: 6,
    length_ms: 1000,
};
/// Histories to judge. Continuous integration judges six times as many. One with few grants does
/// not count, as when the server was down for most of it.
const HISTORIES: u64 = 50;
const GRANTS_MIN: usize = 10;

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|it| it.parse().unwrap())
}

/// Runs one after the other, until `wanted` histories are judged.
async fn runs(wanted: u64, first_seed: u64) -> Outcome {
    let wanted = usize::try_from(wanted).unwrap();
    let mut all = Outcome::default();
    // One history from each run is very little. A machine that cannot do that is not fit for this
    // test.
    for seed in (first_seed..).take(wanted) {
        all.add(Run::judged(seed, SCENES).await);
        if all.histories >= wanted {
            break;
        }
    }
    assert!(all.histories >= wanted, "{all:?}");
    all
}

#[tokio::test]
async fn contenders_of_four_processes_keep_every_promise_while_everything_goes_wrong() {
    let wanted = number("HISTORIES").unwrap_or(HISTORIES).div_ceil(2);
    let seed = number("HISTORIES_SEED").unwrap_or_else(|| monotonic_now() % 1_000_000_000);
    // Two servers at a time, because half of the time is spent waiting for one to come back.
    let (mut all, others) = tokio::join!(runs(wanted, seed), runs(wanted, seed + 1_000_000));
    all.add(others);
    println!("{all:?}");
    assert!(all.has_all_kinds(), "{all:?}");
    // Half of the grants are to writers. A write that does not check its node does not count.
    assert!(all.writes * 4 > all.grants, "{all:?}");
}

/// Two seconds each, or more if a leader is elected meanwhile.
const SCENES_OF_THREE: Scenes = Scenes {
    count: 20,
    side_by_side: 4,
    length_ms: 2000,
};

#[tokio::test]
async fn contenders_on_three_servers_keep_every_promise_while_leaders_and_quorums_are_lost() {
    let seed = number("HISTORIES_SEED").unwrap_or_else(|| monotonic_now() % 1_000_000_000);
    let outcome = Run::judged_on_three(seed, SCENES_OF_THREE).await;
    println!("{outcome:?}");
    assert!(outcome.histories >= 10, "{outcome:?}");
    assert!(outcome.has_all_kinds(), "{outcome:?}");
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

    /// Half of [`HISTORIES`], for each of two kinds of servers.
    pub(crate) async fn judged<M: Machine>(keeps: Keeps) {
        let wanted = number("HISTORIES").unwrap_or(HISTORIES).div_ceil(2);
        let wanted = usize::try_from(wanted).unwrap();
        let seed = number("HISTORIES_SEED").unwrap_or_else(|| monotonic_now() % 1_000_000_000);
        let mut all = Outcome::default();
        for seed in (seed..).take(wanted) {
            all.add(primary::judged::<M>(seed, SCENES, keeps).await);
            if all.histories >= wanted {
                break;
            }
        }
        println!("{keeps:?} {all:?}");
        assert!(all.histories >= wanted, "{all:?}");
        assert!(all.has_all_kinds(), "{all:?}");
    }
}

mod on_etcd {
    use test_rig::EtcdServer;

    use crate::on_one_at_a_time::judged;
    use crate::primary::Keeps;

    #[tokio::test]
    async fn contenders_keep_every_promise_on_a_server_that_keeps_what_it_has_acknowledged() {
        judged::<EtcdServer>(Keeps::All).await;
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
