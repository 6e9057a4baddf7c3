//! MariaDB, and other locks on it.

mod ways;

use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::LocalBoxFuture;
use lock_recipes::Session;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, Params, Result, params};
use test_rig::{Durability, MariaDbServer};
use tokio::sync::Mutex;

use super::conditions::disk;
use super::facts::locked_version;
use super::goal::Bound::{AtLeast, AtMost};
use super::goals::{Aim, Measure};
use super::options::Options;
use super::ours::{SESSION_TIMEOUT, ours};
use super::plan::{PACED, Quantity, SATURATED, UNCONTENDED};
use super::sql::{Connection, NAIVE, ROUND_TRIP, SHEDLOCK, STAGES, side};
use super::store::{Page, Server, Stage, Store};

const GET_LOCK: &str = "GET_LOCK";

/// How often this library's waiters ask when they are next, in microseconds.
const OUR_POLL: f64 = 2_000.0;

static PAGE: Page = Page {
    name: "mariadb",
    introduction: "\
# Benchmarks on MariaDB

This library next to other locks on MariaDB. All run on one server, in one run, in turns.
`scripts/bench --mariadb` writes this page.

- *naive row*: a row with the owner, how often it has entered, and when it expires. An
  `INSERT .. ON DUPLICATE KEY UPDATE` acquires it, a `DELETE` releases it. Waiters try again every 60 ms.
  It gives neither an order nor tokens.
- *GET_LOCK*: the lock of a connection. It is in memory, so nothing is committed. It is lost with its
  connection and keeps it busy while it waits, and is not shared by the nodes of a Galera cluster.
- *ShedLock's way*: a row that stays, with `lock_until` in server time, as ShedLock's SQL providers have
  it. ShedLock does not wait; here its waiters try again every 60 ms.

All clients run in one process, with one connection for each session; of this library, two. With 32
locks in parallel the others have a connection for each lock, as of a pool. MariaDB notifies nobody, so
this library's waiters ask too: who is next every 2 ms.
",
    round_trip: ROUND_TRIP,
    stages: &STAGES,
    columns: &["statements", "writes of the log", "bytes of log"],
    aims: &AIMS,
};

const STATEMENTS: usize = 0;
/// A commit is one, and several that wait for it at once share the next.
const LOG_WRITES: usize = 1;

static AIMS: [Aim; 6] = [
    Aim {
        what: "acquire + release on a disk, to the naive row",
        measure: Measure::Ratio(UNCONTENDED, Quantity::Cycle, NAIVE),
        bound: AtMost(1.4),
    },
    Aim {
        what: "release to next grant with 2 ms of work, to the 2 ms after which who is next asks",
        measure: Measure::Multiple(PACED, Quantity::Gap, OUR_POLL),
        bound: AtMost(1.2),
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
        what: "writes of the log, for acquire + release",
        measure: Measure::Count(UNCONTENDED, LOG_WRITES),
        bound: AtMost(2.05),
    },
];

pub(crate) struct MariaDb;

impl Store for MariaDb {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn start<'a>(&'a self, stage: usize, options: &'a Options) -> LocalBoxFuture<'a, Stage> {
        Box::pin(start(stage == 0, options))
    }
}

async fn start(is_on_disk: bool, options: &Options) -> Stage {
    let mut builder = MariaDbServer::builder()
        .durability(Durability::Flushed)
        .max_connections(300)
        // The server's own default, where tests have less.
        .setting("innodb_log_file_size", "96M");
    if is_on_disk {
        builder = builder.folder_in(&options.disk);
    }
    let server = builder.start().await.unwrap();
    let observer = Mariadb::open(&server.url()).await.connection;
    for table in ways::SCHEMA.split_terminator(';') {
        observer.lock().await.query_drop(table).await.unwrap();
    }
    let version: Result<Option<String>> =
        observer.lock().await.query_first("SELECT VERSION()").await;
    let version = version.unwrap().unwrap();
    Stage {
        sides: vec![
            ours(|url| Box::pin(open(url))),
            side::<Mariadb>(NAIVE, &ways::NAIVE),
            side::<Mariadb>(GET_LOCK, &ways::GET_LOCK),
            side::<Mariadb>(SHEDLOCK, &ways::SHEDLOCK),
        ],
        facts: vec![
            ("server", format!("one, MariaDB {version}")),
            ("disk", disk(&options.disk)),
            ("mysql_async, for all", locked_version("mysql_async")),
        ],
        server: Box::new(Counted {
            server,
            observer,
            asked: AtomicU32::new(0),
        }),
    }
}

async fn open(url: String) -> Session {
    let options = lock_recipes::MySql::builder().new_server();
    let options = options.session_timeout(SESSION_TIMEOUT);
    options.connect(&url).await.unwrap()
}

struct Counted {
    server: MariaDbServer,
    observer: Mutex<Conn>,
    asked: AtomicU32,
}

impl Server for Counted {
    fn url(&self) -> String {
        self.server.url()
    }

    fn counted(&self, _side: &'static str) -> LocalBoxFuture<'_, Vec<f64>> {
        Box::pin(async move {
            let mut observer = self.observer.lock().await;
            let status: Vec<(String, String)> = observer.query("SHOW GLOBAL STATUS").await.unwrap();
            let value = |name: &str| -> f64 {
                let mut status = status.iter();
                let found = status.find(|(it, _)| it.eq_ignore_ascii_case(name));
                found.unwrap().1.parse().unwrap()
            };
            // Each time this is asked is one more.
            let asked = f64::from(self.asked.fetch_add(1, Ordering::Relaxed));
            vec![
                value("Questions") - asked,
                value("Innodb_log_writes"),
                value("Innodb_os_log_written"),
            ]
        })
    }
}

struct Mariadb {
    connection: Mutex<Conn>,
}

/// What the server answers when it has undone a statement for the sake of another.
const DEADLOCK: u16 = 1213;

impl Connection for Mariadb {
    async fn open(url: &str) -> Self {
        let options = Opts::from_url(url).unwrap();
        Self {
            connection: Mutex::new(Conn::new(options).await.unwrap()),
        }
    }

    async fn agrees(&self, statement: &'static str, lock: &str, owner: &str) -> bool {
        let mut connection = self.connection.lock().await;
        loop {
            let words = match statement.contains(":name") {
                true => params! { "name" => lock, "owner" => owner },
                false => Params::Empty,
            };
            // Prepared at its first use.
            let answer: Result<Option<Option<u8>>> = connection.exec_first(statement, words).await;
            match answer {
                Ok(Some(answer)) => return answer == Some(1),
                Ok(None) => return connection.affected_rows() > 0,
                Err(mysql_async::Error::Server(error)) if error.code == DEADLOCK => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
