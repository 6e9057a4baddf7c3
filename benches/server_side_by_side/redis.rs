//! Redis, and the locks that other clients of it have.

mod hash;

use std::time::Duration;

use futures::future::LocalBoxFuture;
use test_rig::RedisServer;
use tokio::process::Command;

use super::facts::{after, locked_version};
use super::foreign::{Kind, Program};
use super::goal::Bound::{AtLeast, AtMost};
use super::goals::{Aim, Measure};
use super::options::Options;
use super::ours::{SESSION_TIMEOUT, ours};
use super::plan::{PACED, Quantity, SATURATED, SET, TRY, UNCONTENDED};
use super::store::{Page, Server, Stage, Store};
use super::work::Work;

const POLLED: &str = "hash, polled";
const WOKEN: &str = "hash, all woken";
const REDISSON: &str = "Redisson";
const REDISSON_FAIR: &str = "Redisson, fair";
const RSLOCK: &str = "rslock";

/// After this, Java's compilers are warm.
const WARM_UP: Duration = Duration::from_secs(3);

static PAGE: Page = Page {
    name: "redis",
    introduction: "\
# Benchmarks on Redis

This library next to the locks that other clients of Redis have. All run on one server, in one run, in
turns. `scripts/bench --redis` writes this page.

- *hash, polled*: a hash with the owner and how often it has entered, in a script each for acquire and
  release. Waiters try again every 60 ms. It gives neither an order nor tokens.
- *hash, all woken*: the same, and each release wakes all waiters by a message.
- *Redisson*: its `RLock`, `RMultiLock` and `RReadWriteLock`, and in the next column its `RFairLock`. In a
  JVM of its own, with a client for each session.
- *rslock*: the crate, an implementation of Redlock, here with one server. Waiters try again after up to
  200 ms. In a process of its own.
",
    round_trip: "round trip: PING",
    stages: &[""],
    columns: &["scripts", "other requests", "messages", "µs of scripts"],
    aims: &AIMS,
};

/// The column that has goals.
const SCRIPTS: usize = 0;

static AIMS: [Aim; 11] = [
    Aim {
        what: "acquire + release, to Redisson's fair lock, the worst pair",
        measure: Measure::WorstPair(UNCONTENDED, Quantity::Cycle, REDISSON_FAIR),
        bound: AtMost(1.0),
    },
    Aim {
        what: "acquire + release, to the polled hash",
        measure: Measure::Ratio(UNCONTENDED, Quantity::Cycle, POLLED),
        bound: AtMost(1.3),
    },
    Aim {
        what: "release to next grant with 2 ms of work, to the hash that wakes all",
        measure: Measure::Ratio(PACED, Quantity::Gap, WOKEN),
        bound: AtMost(0.75),
    },
    Aim {
        what: "least served to most served, with 2 ms of work",
        measure: Measure::Median(PACED, Quantity::Fairness),
        bound: AtLeast(0.95),
    },
    Aim {
        what: "least served to most served, all the time",
        measure: Measure::Median(SATURATED, Quantity::Fairness),
        bound: AtLeast(0.95),
    },
    Aim {
        what: "grants of 8 sessions all the time, to the hash that wakes all",
        measure: Measure::Ratio(SATURATED, Quantity::Rate, WOKEN),
        bound: AtLeast(0.85),
    },
    // Opening a directory or a heartbeat may come in between.
    Aim {
        what: "scripts of acquire + release",
        measure: Measure::Count(UNCONTENDED, SCRIPTS),
        bound: AtMost(2.05),
    },
    Aim {
        what: "scripts of a multi-lock of 8, acquire + release",
        measure: Measure::Count(SET, SCRIPTS),
        bound: AtMost(2.05),
    },
    Aim {
        what: "scripts of a failed try",
        measure: Measure::Count(TRY, SCRIPTS),
        bound: AtMost(1.05),
    },
    Aim {
        what: "scripts of a hand-off with 2 ms of work",
        measure: Measure::Count(PACED, SCRIPTS),
        bound: AtMost(3.05),
    },
    Aim {
        what: "scripts of a hand-off all the time",
        measure: Measure::Count(SATURATED, SCRIPTS),
        bound: AtMost(3.05),
    },
];

pub(crate) struct Redis;

impl Store for Redis {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn start<'a>(&'a self, _stage: usize, _options: &'a Options) -> LocalBoxFuture<'a, Stage> {
        Box::pin(start())
    }
}

async fn start() -> Stage {
    // A log would cost all sides the same, and so hide what they do not have in common.
    let server = RedisServer::builder().setting("appendonly", "no");
    let server = server.start().await.unwrap();
    let java = |class_path: &str| {
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-cp", class_path, "RedissonBench"]);
        java
    };
    let redisson = Program::start("redisson", java).await;
    let rslock = Program::start("rslock", |program| Command::new(program)).await;
    let with_sets = Kind {
        name: "RLock",
        does: |work| work != Work::RoundTrip && !work.is_a_queue(),
        warm_up: WARM_UP,
    };
    let fair = Kind {
        warm_up: WARM_UP,
        ..Kind::single("RFairLock")
    };
    let info: String = server.command(&["INFO", "server"]).await.unwrap();
    let version = after(&info, "redis_version:");
    Stage {
        sides: vec![
            ours(|url| Box::pin(open(url))),
            hash::polled(POLLED),
            hash::woken(WOKEN),
            redisson.side(REDISSON, with_sets),
            redisson.side(REDISSON_FAIR, fair),
            rslock.side(RSLOCK, Kind::single("rslock")),
        ],
        facts: vec![
            (
                "server",
                format!("one, Redis {version}; its data in memory, without a log"),
            ),
            (
                "redis (the crate, for ours and the hashes)",
                locked_version("redis"),
            ),
            ("Java", super::facts::said("java", &["--version"])),
            ("Redisson", redisson.version()),
            ("rslock", rslock.version()),
        ],
        server: Box::new(server),
    }
}

async fn open(url: String) -> lock_recipes::Session {
    let options = lock_recipes::Redis::builder().new_server();
    let options = options.session_timeout(SESSION_TIMEOUT);
    options.connect(&url).await.unwrap()
}

impl Server for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn counted(&self, side: &'static str) -> LocalBoxFuture<'_, Vec<f64>> {
        Box::pin(async move {
            let stats: String = self.command(&["INFO", "commandstats"]).await.unwrap();
            let sum = |commands: &[&str], field| {
                let values = commands.iter().map(|command| value(&stats, command, field));
                values.sum()
            };
            let scripts = ["fcall", "evalsha", "eval"];
            // A command that scripts of a side call is not among its own.
            let others: &[&str] = match side {
                RSLOCK => &["set"],
                _ => &["wait", "subscribe", "unsubscribe"],
            };
            vec![
                sum(&scripts, "calls="),
                sum(others, "calls="),
                sum(&["publish", "spublish"], "calls="),
                sum(&scripts, "usec="),
            ]
        })
    }
}

/// A field of the line of a command, or 0 if it was not called:
/// `cmdstat_evalsha:calls=2,usec=73,...`.
fn value(stats: &str, command: &str, field: &str) -> f64 {
    let name = format!("cmdstat_{command}:");
    let mut lines = stats.lines();
    let fields = lines.find_map(|line| line.strip_prefix(&name));
    let mut fields = fields.unwrap_or_default().split(',');
    let value = fields.find_map(|it| it.strip_prefix(field));
    value.map_or(0.0, |value| value.parse().unwrap())
}
