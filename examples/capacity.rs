//! Measures the capacity of an ensemble: cycles of acquire and release, and heartbeats.
//!
//! ```text
//! cargo run --release -p examples --example capacity                               # a server of its own
//! cargo run --release -p examples --example capacity -- --servers 3                # an ensemble of its own
//! cargo run --release -p examples --example capacity -- --connect host:2181        # yours; it is put under load
//! ```

#![allow(clippy::print_stdout, reason = "what it measured is told on stdout")]

use std::error::Error;
use std::time::Duration;

use futures::future::try_join_all;
use lock_recipes::{LockFactory, ZooKeeper};
use test_rig::{ServerBuilder, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::time::Instant;
use zookeeper_client::Client;

type Failure = Box<dyn Error + Send + Sync>;

const ROOT: &str = "/recipes-capacity";
const SESSIONS: u32 = 8;
/// Workers of each session. None waits for another, because each has a key of its own.
const IN_FLIGHT: u32 = 32;
const DURATION: Duration = Duration::from_secs(5);
const RUNS: u32 = 5;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        [] => {
            let server = on_disk(ZooKeeperServer::builder()).start().await?;
            measure(server.connect_string()).await
        }
        ["--servers", count] => {
            let builder = on_disk(ZooKeeperEnsemble::builder());
            let ensemble = builder.start_ensemble(count.parse()?).await?;
            measure(ensemble.connect_string()).await
        }
        ["--connect", connect_string] => measure(connect_string.to_owned()).await,
        _ => Err("usage: capacity [--servers COUNT | --connect STRING]".into()),
    }
}

/// Waits for the disk as in production; tests have no need for that.
fn on_disk(builder: ServerBuilder) -> ServerBuilder {
    builder.config("forceSync", "yes")
}

async fn measure(connect_string: String) -> Result<(), Failure> {
    println!("{SESSIONS} sessions, {IN_FLIGHT} in flight in each, {RUNS} runs of {DURATION:?}");
    for _ in 0..RUNS {
        let (cycles, transactions) = cycles(&connect_string).await?;
        let heartbeats = heartbeats(&connect_string).await?;
        println!(
            "{cycles:.0} cycles/s of {transactions:.2} transactions each; {heartbeats:.0} heartbeats/s"
        );
    }
    Ok(())
}

/// Cycles of acquire and release per second, and transactions per cycle.
async fn cycles(connect_string: &str) -> Result<(f64, f64), Failure> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(ZooKeeper::connect(connect_string).await?);
    }
    let mut workers = Vec::new();
    for (index, session) in sessions.iter().enumerate() {
        let locks = LockFactory::new(session, ROOT)?;
        for worker in 0..IN_FLIGHT {
            let lock = locks.mutex(&format!("{index}-{worker}"))?;
            // This creates the directory.
            lock.acquire().await?.release().await?;
            workers.push(lock);
        }
    }
    // Tokens are numbers of transactions.
    let counter =
        LockFactory::new(sessions.first().ok_or("no session")?, ROOT)?.mutex("counter")?;
    let before = counter.acquire().await?.fencing_token().as_i64();
    let started = Instant::now();
    let cycles = workers.into_iter().map(|lock| {
        tokio::spawn(async move {
            let mut cycles = 0_u32;
            while started.elapsed() < DURATION {
                lock.acquire().await?.release().await?;
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        })
    });
    let mut all = 0;
    for cycles in try_join_all(cycles).await? {
        all += cycles?;
    }
    let took = started.elapsed();
    let after = counter.acquire().await?.fencing_token().as_i64();
    for session in sessions {
        session.close().await;
    }
    let all = f64::from(all);
    Ok((all / took.as_secs_f64(), (after - before) as f64 / all))
}

/// Requests per second like those that keep leases valid: two `sync`, then one that is committed.
async fn heartbeats(connect_string: &str) -> Result<f64, Failure> {
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        clients.push(Client::connect(connect_string).await?);
    }
    let started = Instant::now();
    let clients = clients
        .iter()
        .flat_map(|it| (0..IN_FLIGHT).map(move |_| it.clone()));
    let heartbeats = clients.map(|client| {
        tokio::spawn(async move {
            let mut heartbeats = 0_u32;
            while started.elapsed() < DURATION {
                client.sync("/").await?;
                client.sync("/").await?;
                let mut check = client.new_multi_writer();
                check.add_check_version("/", -1)?;
                check.commit().await?;
                heartbeats += 3;
            }
            Ok::<_, Failure>(heartbeats)
        })
    });
    let mut all = 0;
    for heartbeats in try_join_all(heartbeats.collect::<Vec<_>>()).await? {
        all += heartbeats?;
    }
    Ok(f64::from(all) / started.elapsed().as_secs_f64())
}
