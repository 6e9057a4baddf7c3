//! Redis: a server that keeps what it has acknowledged, or a server and its replica, which may forget
//! the last of it.
//!
//! All rules are checked on both. On the second, no rule is weaker either: tokens follow the clock,
//! and after each restart or promotion nobody is granted a lock before all holders must have noticed.

mod log;
mod road;

use std::cell::Cell;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{Guarantee, Redis};
use recipes_core::{NewNode, NodeMode, Nodes};
use recipes_testing::{RedisServer, StoreClock, TransactionLog};
use tokio::time::{Instant, sleep};

use crate::orders::Scenes;
use crate::run::{Outcome, Run};
use crate::servers::{LEFT_MAX, Servers};
use crate::stage::{PATIENCE, WORKERS};
use crate::trouble::{Keeps, Schedule, Trouble};
use crate::worker::SESSION_TIMEOUT;

use log::Log;
use road::Road;

const POLL: Duration = Duration::from_millis(5);

/// Runs to the end, and judges.
pub(crate) async fn judged(seed: u64, scenes: Scenes, keeps: Keeps) -> Outcome {
    let mut random = Rng::with_seed(seed);
    let schedule = Schedule::on_redis(&mut random, WORKERS, scenes.length(), keeps);
    let servers = RedisServers::start(keeps).await.unwrap();
    Run::on(servers, seed, scenes, schedule).await
}

/// One or two servers. Clients reach one of them, by a road whose start stays the same.
struct RedisServers {
    servers: Vec<RedisServer>,
    primary: Cell<usize>,
    road: Road,
    guarantee: Guarantee,
}

impl RedisServers {
    async fn start(keeps: Keeps) -> Result<Self, Box<dyn Error>> {
        let (flush, guarantee) = match keeps {
            Keeps::All => ("always", Guarantee::OneCopy),
            Keeps::Most => ("everysec", Guarantee::BestEffort),
        };
        let builder = || RedisServer::builder().setting("appendfsync", flush);
        let primary = builder().start().await?;
        let road = Road::to(primary.port()).await?;
        let mut servers = vec![primary];
        if keeps == Keeps::Most {
            // Not by its configuration, or it would follow again after its first restart.
            let replica = builder().start().await?;
            Self::follow(&replica, servers[0].port()).await?;
            servers.push(replica);
        }
        Ok(Self {
            servers,
            primary: Cell::new(0),
            road,
            guarantee,
        })
    }

    fn primary(&self) -> &RedisServer {
        &self.servers[self.primary.get()]
    }

    fn replica(&self) -> &RedisServer {
        &self.servers[1 - self.primary.get()]
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.road.port())
    }

    /// A session of the operator's own. It takes no locks, so it need not wait for holders.
    async fn operator(&self) -> Arc<dyn Nodes> {
        let options = Redis::builder().session_timeout(SESSION_TIMEOUT);
        let store = options.new_server().store(&self.url()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match store.connect().await {
                Ok(nodes) => return nodes,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    async fn follow(server: &RedisServer, port: u16) -> Result<(), Box<dyn Error>> {
        let port = port.to_string();
        let _ok: String = server.command(&["REPLICAOF", "127.0.0.1", &port]).await?;
        Ok(())
    }

    /// Waits until the replica has all that was written before.
    async fn in_step(&self) -> Result<(), Box<dyn Error>> {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let info: String = self.replica().command(&["INFO", "replication"]).await?;
            if info.contains("master_link_status:up") {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the replica is not in step: {info}").into());
            }
            sleep(POLL).await;
        }
    }

    /// The replica takes the place of its primary, without what was written in the last time.
    async fn replace(&self, last: Duration, is_killed: bool) -> Result<(), Box<dyn Error>> {
        self.in_step().await?;
        // Nobody listens there.
        Self::follow(self.replica(), 1).await?;
        sleep(last).await;
        // Sentinel would close the connections, too.
        self.road.close();
        if is_killed {
            self.primary().kill().await?;
        }
        let _ok: String = self.replica().command(&["REPLICAOF", "NO", "ONE"]).await?;
        self.primary.set(1 - self.primary.get());
        self.road.open(self.primary().port());
        if is_killed {
            self.replica().start_again().await?;
        }
        Self::follow(self.replica(), self.primary().port()).await
    }
}

impl Servers for RedisServers {
    fn address(&self, _worker: u32) -> String {
        self.url()
    }

    async fn create(&self, paths: &[String]) {
        let operator = self.operator().await;
        assert_eq!(operator.guarantee(), self.guarantee);
        for path in paths {
            let node = NewNode {
                path: path.clone(),
                data: [].into(),
                mode: NodeMode::Persistent,
            };
            operator.create(&node).await.unwrap();
        }
    }

    async fn bring(&self, trouble: Trouble, _random: &mut Rng) -> Result<(), Box<dyn Error>> {
        let server = self.primary();
        match trouble {
            Trouble::RestartServer => {
                server.stop().await?;
                server.start_again().await?;
            }
            Trouble::KillServer(_, pause) => {
                server.kill().await?;
                sleep(pause).await;
                server.start_again().await?;
            }
            Trouble::PauseServer(_, pause) => {
                server.pause()?;
                sleep(pause).await;
                server.resume()?;
            }
            Trouble::CutConnections => {
                let cut = ["CLIENT", "KILL", "TYPE", "pubsub"];
                let _cut: i64 = server.command(&cut).await?;
            }
            Trouble::SetClock(by_us) => {
                // The scripts remember the clock at the last of them. To change that is to set it.
                let by = StoreClock {
                    last: -by_us,
                    ..StoreClock::default()
                };
                server.change_store_clock("locks", by).await?;
            }
            Trouble::ForgetLast(last) => {
                let log = Log::now(server)?;
                sleep(last).await;
                server.kill().await?;
                log.cut()?;
                server.start_again().await?;
            }
            Trouble::Promote(last) => self.replace(last, true).await?,
            Trouble::Swap(last) => self.replace(last, false).await?,
            _ => unreachable!("{trouble:?} is for other servers"),
        }
        Ok(())
    }

    async fn somebody(&self, _locks: &[String], _random: &mut Rng) -> Option<i64> {
        None
    }

    async fn expire(&self, _session: i64) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    async fn left(&self, locks: &[String]) -> Vec<String> {
        // Its requests let the sessions of dead processes expire.
        let operator = self.operator().await;
        let until = Instant::now() + LEFT_MAX;
        let mut left = Vec::new();
        for lock in locks {
            loop {
                let nodes = operator.list(lock).await.unwrap_or_default();
                if nodes.is_empty() || Instant::now() > until {
                    left.extend(nodes.iter().map(|node| format!("{lock}/{node}")));
                    break;
                }
                sleep(POLL).await;
            }
        }
        left
    }

    /// It has a log, but not one that keeps what was forgotten.
    fn log(&self) -> Option<TransactionLog> {
        None
    }
}
