//! One lock for each order, hour after hour: orders that are done cost nothing.

use std::env;
use std::time::Duration;

use lock_recipes::{InterProcessMutex, SessionOptions, connect_with};
use test_rig::{MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Between two orders.
const EACH: Duration = Duration::from_millis(10);
/// Any store removes in this time what the first orders have left.
const SETTLED: Duration = Duration::from_secs(120);
/// What is compared: as many seconds from then on, and the last ones.
const WINDOW: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(120);

/// What was seen in a window.
#[derive(Debug, Default)]
struct Window {
    acquires: Vec<Duration>,
    most_kept: usize,
}

impl Window {
    fn median(&mut self) -> Duration {
        self.acquires.sort_unstable();
        self.acquires.get(self.acquires.len() / 2).copied().unwrap()
    }
}

/// With the options that a service has by default. `kept` counts the server's keys, rows or nodes.
async fn orders_that_are_done_cost_nothing(url: String, kept: impl AsyncFn() -> usize) {
    let seconds = env::var("ORDERS_SECONDS").map(|it| it.parse().unwrap());
    let lasts = Duration::from_secs(seconds.unwrap_or(600));
    assert!(
        lasts >= SETTLED + 2 * WINDOW,
        "ORDERS_SECONDS is too little"
    );
    let options = SessionOptions::new().connect_timeout(PATIENCE);
    let session = connect_with(&url, options).await.unwrap();
    let (mut then, mut last) = (Window::default(), Window::default());
    let mut due = interval(EACH);
    due.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let begun = Instant::now();
    for order in 0.. {
        due.tick().await;
        let at = begun.elapsed();
        let window = match at {
            _ if at > lasts => break,
            _ if at > lasts - WINDOW => Some(&mut last),
            _ if at > SETTLED && at < SETTLED + WINDOW => Some(&mut then),
            _ => None,
        };
        let lock = InterProcessMutex::new(&session, &format!("/orders/{order}")).unwrap();
        let asked = Instant::now();
        let guard = lock.acquire().await.unwrap();
        let took = asked.elapsed();
        guard.release().await.unwrap();
        if let Some(window) = window {
            window.acquires.push(took);
            if order % 500 == 0 {
                window.most_kept = window.most_kept.max(kept().await);
            }
        }
    }
    let (before, after) = (then.median(), last.median());
    println!(
        "{url}: at most {} kept then, {} at the end; an acquire took {before:?} and {after:?}; {} and {} acquires",
        then.most_kept,
        last.most_kept,
        then.acquires.len(),
        last.acquires.len()
    );
    assert!(then.most_kept > 0, "nothing was counted");
    assert!(last.most_kept * 5 <= then.most_kept * 6);
    assert!(after * 5 <= before * 6, "{after:?}, and {before:?} before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn orders_that_are_done_cost_nothing_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    orders_that_are_done_cost_nothing(server.connect_string(), async || {
        let told = server.four_letter("mntr").await.unwrap();
        let nodes = told
            .lines()
            .find_map(|it| it.strip_prefix("zk_znode_count"));
        nodes.unwrap().trim().parse().unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn orders_that_are_done_cost_nothing_on_redis() {
    let server = RedisServer::start().await.unwrap();
    orders_that_are_done_cost_nothing(server.url(), async || {
        server.command(&["DBSIZE"]).await.unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn orders_that_are_done_cost_nothing_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    orders_that_are_done_cost_nothing(server.url(), async || {
        // Dead rows too, which are read until they are vacuumed.
        let all = "SELECT sum(n_live_tup + n_dead_tup) FROM pg_stat_user_tables \
                   WHERE schemaname = 'lock_recipes'";
        let rows = server.sql(all).await.unwrap();
        rows[0][0].parse().unwrap()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes"]
async fn orders_that_are_done_cost_nothing_on_mariadb() {
    let server = MariaDbServer::start().await.unwrap();
    orders_that_are_done_cost_nothing(server.url(), async || {
        let mut rows = 0;
        for table in ["nodes", "containers", "sessions", "beats", "ended"] {
            let count = format!("SELECT COUNT(*) FROM lock_recipes_{table}");
            let counted = server.sql(&count).await.unwrap();
            rows += counted[0][0].parse::<usize>().unwrap();
        }
        rows
    })
    .await;
}
