//! Metrics of contended locks, as a Prometheus server gets them.
//!
//! ```text
//! cargo run -p examples --example metrics                           # an ensemble in memory
//! cargo run -p examples --example metrics -- --connect host:2181    # yours
//! cargo run -p examples --example metrics -- --listen 127.0.0.1:9464 --serve
//! ```
//!
//! It prints the metrics, and continues to serve them with `--serve`.

#![allow(clippy::print_stdout, reason = "what it measured is told on stdout")]

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::try_join_all;
use lock_recipes::{
    AcquireError, Error, InterProcessMutex, InterProcessReadWriteLock, LockOptions, Session,
    ZooKeeper,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use test_rig::MemoryEnsemble;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SESSIONS: usize = 4;
const WORKERS: usize = 3;
const ROUNDS: usize = 5;
const WORK: Duration = Duration::from_millis(2);
/// Longer than one critical section, shorter than a queue of them.
const PATIENCE: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let options = Options::parse(std::env::args().skip(1))?;
    // Before the first session, which describes the metrics to the recorder.
    listen(options.listen)?;

    let memory = MemoryEnsemble::new();
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(match &options.connect {
            Some(connect_string) => ZooKeeper::connect(connect_string).await?,
            None => memory.session(),
        });
    }
    contend(&sessions).await?;
    for session in &sessions {
        session.close().await;
    }

    println!("{}", scrape(options.listen).await?);
    if options.serve {
        println!(
            "serving http://{}/metrics until it is stopped",
            options.listen
        );
        tokio::signal::ctrl_c().await?;
    }
    Ok(())
}

/// Installs the recorder and serves its metrics.
fn listen(address: SocketAddr) -> Result<(), Failure> {
    let times = Matcher::Suffix("_seconds".to_owned());
    let lengths = Matcher::Full("lock_recipes_queue_length".to_owned());
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(times, &[0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0])?
        .set_buckets_for_metric(lengths, &[0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0])?
        .install()?;
    Ok(())
}

/// Workers that want the same locks. Some give up soon.
async fn contend(sessions: &[Session]) -> Result<(), Failure> {
    let workers = sessions
        .iter()
        .flat_map(|session| (0..WORKERS).map(|worker| tokio::spawn(work(session.clone(), worker))));
    for worked in try_join_all(workers).await? {
        worked?;
    }
    Ok(())
}

async fn work(session: Session, worker: usize) -> Result<(), Failure> {
    let orders = InterProcessMutex::new(&session, "/recipes-metrics/orders")?;
    let prices = InterProcessReadWriteLock::new(&session, "/recipes-metrics/prices")?;
    let handed_on = LockOptions::new().local_handoffs(2);
    let stock = InterProcessMutex::with_options(&session, "/recipes-metrics/stock", &handed_on)?;
    for _ in 0..ROUNDS {
        match orders.acquire().timeout(PATIENCE).await {
            Ok(_guard) => tokio::time::sleep(WORK).await,
            Err(Error::Acquire(AcquireError::TimedOut { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        if worker == 0 {
            let _guard = prices.write().await?;
            tokio::time::sleep(WORK).await;
        } else {
            let _guard = prices.read().await?;
            tokio::time::sleep(WORK).await;
        }
        let guard = stock.acquire().await?;
        tokio::time::sleep(WORK).await;
        guard.release().await?;
    }
    Ok(())
}

/// Fetches the metrics as a Prometheus server does.
async fn scrape(address: SocketAddr) -> Result<String, Failure> {
    let mut connection = TcpStream::connect(address).await?;
    connection
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (_, series) = answer
        .split_once("\r\n\r\n")
        .ok_or("no answer to a scrape")?;
    Ok(series.to_owned())
}

struct Options {
    connect: Option<String>,
    listen: SocketAddr,
    serve: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self {
            connect: std::env::var("LOCKS_URL").ok(),
            listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            serve: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--connect" => options.connect = Some(value()?),
                "--listen" => options.listen = value()?.parse()?,
                "--serve" => options.serve = true,
                _ => {
                    return Err(
                        "usage: metrics [--connect STRING] [--listen ADDRESS] [--serve]".into(),
                    );
                }
            }
        }
        Ok(options)
    }
}
