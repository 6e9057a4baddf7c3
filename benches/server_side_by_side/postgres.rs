//! PostgreSQL, and other locks on it.

mod least;
mod ways;

use std::collections::HashMap;
use std::sync::Mutex;

use futures::future::LocalBoxFuture;
use lock_recipes::Session;
use test_rig::{Durability, PostgresServer};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use self::least::LEAST;
use super::conditions::disk;
use super::facts::locked_version;
use super::goal::Bound::{AtLeast, AtMost};
use super::goals::{Aim, Measure};
use super::options::Options;
use super::ours::{SESSION_TIMEOUT, ours};
use super::plan::{PACED, Quantity, SATURATED, UNCONTENDED};
use super::sql::{Connection, NAIVE, ROUND_TRIP, SHEDLOCK, STAGES, side};
use super::store::{Page, Server, Stage, Store};

const ADVISORY: &str = "advisory lock";

static PAGE: Page = Page {
    name: "postgres",
    introduction: "\
# Benchmarks on PostgreSQL

This library next to other locks on PostgreSQL. All run on one server, in one run, in turns.
`scripts/bench --postgres` writes this page.

- *naive row*: a row with the owner, how often it has entered, and when it expires. An
  `INSERT .. ON CONFLICT` acquires it, a `DELETE` releases it. Waiters try again every 60 ms. It gives
  neither an order nor tokens.
- *advisory lock*: `pg_advisory_lock` and `pg_advisory_lock_shared`. They are in memory, so nothing is
  committed. They belong to a connection, are lost with it and keep it busy while it waits, and cannot
  be used through a pooler of transactions.
- *ShedLock's way*: a row that stays, with `lock_until` in server time, as ShedLock's SQL providers have
  it. ShedLock does not wait; here its waiters try again every 60 ms.
- *least by NOTIFY*: no lock. Who releases deletes its row and rings the next, with one statement and one
  commit; nobody looks whether a session lives, and the queue is in the process of the clients. No
  hand-off takes less that tells the next by `NOTIFY` once the release is on the disk.

All clients run in one process, with one connection for each session; of this library and in the last
column, two. With 32 locks in parallel the others have a connection for each lock, as of a pool.
",
    round_trip: ROUND_TRIP,
    stages: &STAGES,
    columns: &["statements", "commits", "bytes of log"],
    aims: &AIMS,
};

const STATEMENTS: usize = 0;
const COMMITS: usize = 1;

static AIMS: [Aim; 9] = [
    Aim {
        what: "acquire + release on a disk, to the naive row",
        measure: Measure::Ratio(UNCONTENDED, Quantity::Cycle, NAIVE),
        bound: AtMost(1.3),
    },
    Aim {
        what: "release to next grant with 2 ms of work, to the least by NOTIFY",
        measure: Measure::Ratio(PACED, Quantity::Gap, LEAST),
        bound: AtMost(1.35),
    },
    Aim {
        what: "grants all the time, to the least by NOTIFY",
        measure: Measure::Ratio(SATURATED, Quantity::Rate, LEAST),
        bound: AtLeast(0.7),
    },
    Aim {
        what: "least served to most served, with 2 ms of work",
        measure: Measure::Beside(PACED, Quantity::Fairness, NAIVE),
        bound: AtLeast(0.95),
    },
    Aim {
        what: "least served to most served, all the time",
        measure: Measure::Beside(SATURATED, Quantity::Fairness, NAIVE),
        bound: AtLeast(0.95),
    },
    // A heartbeat may come in between.
    Aim {
        what: "statements of acquire + release",
        measure: Measure::Count(UNCONTENDED, STATEMENTS),
        bound: AtMost(2.05),
    },
    Aim {
        what: "commits of acquire + release",
        measure: Measure::Count(UNCONTENDED, COMMITS),
        bound: AtMost(2.05),
    },
    Aim {
        what: "statements of a hand-off",
        measure: Measure::Count(PACED, STATEMENTS),
        bound: AtMost(3.1),
    },
    Aim {
        what: "commits of a hand-off",
        measure: Measure::Count(PACED, COMMITS),
        bound: AtMost(2.1),
    },
];

pub(crate) struct Postgres;

impl Store for Postgres {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn start<'a>(&'a self, stage: usize, options: &'a Options) -> LocalBoxFuture<'a, Stage> {
        Box::pin(start(stage == 0, options))
    }
}

async fn start(is_on_disk: bool, options: &Options) -> Stage {
    let mut builder = PostgresServer::builder()
        .durability(Durability::Flushed)
        .max_connections(300)
        // It counts only when it is told to.
        .setting("shared_preload_libraries", "pg_stat_statements")
        .setting("pg_stat_statements.track", "none");
    if is_on_disk {
        builder = builder.folder_in(&options.disk);
    }
    let server = builder.start().await.unwrap();
    server.sql(ways::SCHEMA).await.unwrap();
    server.sql(least::SCHEMA).await.unwrap();
    let extensions = "CREATE EXTENSION pg_stat_statements; CREATE EXTENSION pg_walinspect;";
    server.sql(extensions).await.unwrap();
    let version = server.sql("SHOW server_version").await.unwrap();
    Stage {
        sides: vec![
            ours(|url| Box::pin(open(url))),
            side::<Postgresql>(NAIVE, &ways::NAIVE),
            side::<Postgresql>(ADVISORY, &ways::ADVISORY),
            side::<Postgresql>(SHEDLOCK, &ways::SHEDLOCK),
            least::side(),
        ],
        facts: vec![
            ("server", format!("one, PostgreSQL {}", version[0][0])),
            ("disk", disk(&options.disk)),
            ("tokio-postgres, for all", locked_version("tokio-postgres")),
        ],
        server: Box::new(Counted {
            observer: Postgresql::open(&server.url()).await.client,
            server,
            from: String::new(),
        }),
    }
}

async fn open(url: String) -> Session {
    let options = lock_recipes::Postgres::builder().new_server();
    let options = options.session_timeout(SESSION_TIMEOUT);
    options.connect(&url).await.unwrap()
}

struct Counted {
    server: PostgresServer,
    observer: Client,
    /// Where the log was when counting began.
    from: String,
}

impl Server for Counted {
    fn url(&self) -> String {
        self.server.url()
    }

    fn count(&mut self, on: bool) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            let track = if on { "top" } else { "none" };
            let set = self.server.set("pg_stat_statements.track", Some(track));
            set.await.unwrap();
            let now = "SELECT pg_current_wal_flush_lsn()::text";
            self.from = self.observer.query_one(now, &[]).await.unwrap().get(0);
            // A log that has nothing in it yet cannot be read.
            let write = "SELECT pg_logical_emit_message(true, 'benchmark', '')";
            self.observer.execute(write, &[]).await.unwrap();
        })
    }

    fn counted(&self, _side: &'static str) -> LocalBoxFuture<'_, Vec<f64>> {
        Box::pin(async move {
            let from = &self.from;
            // Statements of this server that clients have sent, without those that count. The log
            // has a record of each transaction that has written something.
            let counted = format!(
                "SELECT (SELECT sum(calls) FROM pg_stat_statements
                         WHERE query NOT LIKE '%pg\\_%stat%')::float8,
                        sum(count) FILTER (WHERE type = 'Transaction/COMMIT')::float8,
                        sum(combined_size)::float8
                 FROM pg_get_wal_stats('{from}', pg_current_wal_flush_lsn(), true)
                          AS log (type, count, a, b, c, d, e, combined_size)"
            );
            let row = self.observer.query_one(&counted, &[]).await.unwrap();
            let value = |column| row.get::<_, Option<f64>>(column).unwrap_or_default();
            (0..row.len()).map(value).collect()
        })
    }
}

struct Postgresql {
    client: Client,
    prepared: Mutex<HashMap<&'static str, Statement>>,
}

impl Postgresql {
    async fn prepared(&self, statement: &'static str) -> Statement {
        let known = self.prepared.lock().unwrap().get(statement).cloned();
        if let Some(prepared) = known {
            return prepared;
        }
        let prepared = self.client.prepare(statement).await.unwrap();
        let mut known = self.prepared.lock().unwrap();
        known.insert(statement, prepared.clone());
        prepared
    }
}

impl Connection for Postgresql {
    async fn open(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        // It ends when the client is dropped.
        tokio::spawn(connection);
        Self {
            client,
            prepared: Mutex::default(),
        }
    }

    async fn agrees(&self, statement: &'static str, lock: &str, owner: &str) -> bool {
        let statement = self.prepared(statement).await;
        let words: [&(dyn ToSql + Sync); 2] = [&lock, &owner];
        let words = &words[..statement.params().len()];
        self.client.execute(&statement, words).await.unwrap() > 0
    }
}
