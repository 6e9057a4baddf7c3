//! etcd, and the locks that its own clients have.

mod client;

use futures::future::LocalBoxFuture;
use test_rig::EtcdServer;
use tokio::process::Command;

use super::conditions::disk;
use super::facts::locked_version;
use super::foreign::{Kind, Program};
use super::goal::Bound::{AtLeast, AtMost};
use super::goals::{Aim, Measure};
use super::options::Options;
use super::ours::{SESSION_TIMEOUT, ours};
use super::plan::{DRAIN, PACED, Quantity, SATURATED, TRY, UNCONTENDED};
use super::sql::STAGES;
use super::store::{Page, Server, Stage, Store};
use super::work::Work;

const LEAST: &str = "put, delete";
const LEAST_OF_A_QUEUE: &str = "put and list, delete";
const CALL: &str = "etcd-client, lock call";
const MUTEX: &str = "Go, Mutex";
const ELECTION: &str = "Go, Election";

static PAGE: Page = Page {
    name: "etcd",
    introduction: "\
# Benchmarks on etcd

This library next to the locks that etcd's own clients have. All run on one server, in one run, in
turns: first with its data on a disk, then in memory. `scripts/bench --etcd` writes this page.

- *put, delete*: a key with a lease, put and deleted. The least that a lock can be; it excludes nobody.
- *put and list, delete*: the same, and the key is found to be the first of its directory by the transaction that puts it. The
  least that a lock with a queue can be.
- *etcd-client, lock call*: the calls `lock` and `unlock` of the crate, for which the server waits.
- *Go, Mutex* and *Go, Election*: those of etcd's own package `concurrency`. In a process of their own, with a
  client for each session.
",
    round_trip: "round trip: put",
    stages: &STAGES,
    columns: &["requests", "messages of watches", "commits"],
    aims: &AIMS,
};

/// The column that has goals.
const REQUESTS: usize = 0;

static AIMS: [Aim; 8] = [
    Aim {
        what: "acquire, to a put",
        measure: Measure::Ratio(UNCONTENDED, Quantity::Acquire, LEAST),
        bound: AtMost(1.1),
    },
    Aim {
        what: "acquire, to the least with a queue",
        measure: Measure::Ratio(UNCONTENDED, Quantity::Acquire, LEAST_OF_A_QUEUE),
        bound: AtMost(1.5),
    },
    Aim {
        what: "release to next grant with 2 ms of work, to Go's mutex",
        measure: Measure::Ratio(PACED, Quantity::Gap, MUTEX),
        bound: AtMost(0.75),
    },
    Aim {
        what: "least served to most served, all the time",
        measure: Measure::Median(SATURATED, Quantity::Fairness),
        bound: AtLeast(0.95),
    },
    Aim {
        what: "grants a second of a queue of 1,000, to Go's mutex",
        measure: Measure::Ratio(DRAIN, Quantity::Rate, MUTEX),
        bound: AtLeast(2.0),
    },
    // A heartbeat may come in between.
    Aim {
        what: "requests of acquire + release",
        measure: Measure::Count(UNCONTENDED, REQUESTS),
        bound: AtMost(2.05),
    },
    Aim {
        what: "requests of a failed try",
        measure: Measure::Count(TRY, REQUESTS),
        bound: AtMost(1.05),
    },
    Aim {
        what: "requests of a hand-off with 2 ms of work",
        measure: Measure::Count(PACED, REQUESTS),
        bound: AtMost(3.05),
    },
];

pub(crate) struct Etcd;

impl Store for Etcd {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn start<'a>(&'a self, stage: usize, options: &'a Options) -> LocalBoxFuture<'a, Stage> {
        Box::pin(start(stage == 0, options))
    }
}

async fn start(is_on_disk: bool, options: &Options) -> Stage {
    let mut builder = EtcdServer::builder();
    if is_on_disk {
        builder = builder.folder_in(&options.disk);
    }
    let server = builder.start().await.unwrap();
    let go = Program::start("go/etcd", |program| {
        let mut program = Command::new(program);
        program.arg("bench");
        program
    });
    let go = go.await;
    let mutex = Kind {
        does: |work| work.is_a_queue() || (Kind::single("").does)(work),
        ..Kind::single("Mutex")
    };
    let election = Kind {
        does: |work| {
            !matches!(work, Work::Try | Work::Hold | Work::Free) && (Kind::single("").does)(work)
        },
        ..Kind::single("Election")
    };
    let version = server.command(&["version"]).await.unwrap();
    let version = version.lines().next().unwrap_or_default().to_owned();
    Stage {
        sides: vec![
            ours(|url| Box::pin(open(url))),
            client::least(LEAST),
            client::least_of_a_queue(LEAST_OF_A_QUEUE),
            client::call(CALL),
            go.side(MUTEX, mutex),
            go.side(ELECTION, election),
        ],
        facts: vec![
            ("server", format!("one; {version}")),
            ("disk", disk(&options.disk)),
            ("etcd-client (the crate)", locked_version("etcd-client")),
            ("Go's client", go.version()),
        ],
        server: Box::new(server),
    }
}

async fn open(url: String) -> lock_recipes::Session {
    let options = lock_recipes::Etcd::builder().session_timeout(SESSION_TIMEOUT);
    options.connect(&url).await.unwrap()
}

impl Server for EtcdServer {
    fn url(&self) -> String {
        self.url()
    }

    fn counted(&self, _side: &'static str) -> LocalBoxFuture<'_, Vec<f64>> {
        Box::pin(async move {
            let mut requests = 0.0;
            for method in ["Txn", "Range", "Put", "DeleteRange", "Lock", "Unlock"] {
                let name = format!("grpc_server_started_total{{grpc_method=\"{method}\"");
                requests += self.metric(&name).await.unwrap();
            }
            let messages = "grpc_server_msg_received_total{grpc_method=\"Watch\"";
            let commits = "etcd_server_proposals_committed_total";
            vec![
                requests,
                self.metric(messages).await.unwrap(),
                self.metric(commits).await.unwrap(),
            ]
        })
    }
}
