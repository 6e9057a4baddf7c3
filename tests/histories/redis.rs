//! Redis.

mod log;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{Guarantee, RedisBuilder};
use recipes_core::{SessionOptions, Store};
use test_rig::{RedisServer, StoreClock};
use tokio::time::{Instant, sleep};

use crate::primary::{Keeps, Machine, process};
use crate::servers::Done;
use crate::stage::PATIENCE;
use crate::trouble::Trouble;

use log::Log;

const POLL: Duration = Duration::from_millis(5);

async fn start(keeps: Keeps) -> Done<RedisServer> {
    let flush = match keeps {
        Keeps::All => "always",
        Keeps::Most => "everysec",
    };
    let builder = RedisServer::builder().setting("appendfsync", flush);
    Ok(builder.start().await?)
}

/// Has a server follow the one at a port.
async fn follow(server: &RedisServer, port: u16) -> Done {
    let port = port.to_string();
    let _ok: String = server.command(&["REPLICAOF", "127.0.0.1", &port]).await?;
    Ok(())
}

impl Machine for RedisServer {
    process!();

    fn troubles(keeps: Keeps, last: Duration) -> Vec<Trouble> {
        let forgets = [
            Trouble::ForgetLast(last),
            Trouble::Promote(last),
            Trouble::Swap(last),
        ];
        match keeps {
            Keeps::All => Vec::new(),
            Keeps::Most => [forgets; 3].concat(),
        }
    }

    fn guarantee(keeps: Keeps) -> Guarantee {
        match keeps {
            Keeps::All => Guarantee::OneCopy,
            Keeps::Most => Guarantee::BestEffort,
        }
    }

    async fn start(keeps: Keeps, _random: &mut Rng) -> Done<Self> {
        start(keeps).await
    }

    fn url_at(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}")
    }

    fn store(url: &str, options: SessionOptions) -> Arc<dyn Store> {
        RedisBuilder::from(options).new_server().store(url).unwrap()
    }

    async fn cut_connections(&self) -> Done {
        let cut = ["CLIENT", "KILL", "TYPE", "pubsub"];
        let _cut: i64 = self.command(&cut).await?;
        Ok(())
    }

    async fn set_clock(&self, by_us: i64) -> Done {
        // The scripts remember the clock at the last of them. To change that is to set it.
        let by = StoreClock {
            last: -by_us,
            ..StoreClock::default()
        };
        self.change_store_clock("locks", by).await?;
        Ok(())
    }

    async fn forget_last(&self, last: Duration) -> Done {
        let log = Log::now(self)?;
        sleep(last).await;
        self.kill().await?;
        log.cut()?;
        Ok(self.start_again().await?)
    }

    async fn replica(&self, keeps: Keeps) -> Done<Option<Self>> {
        if keeps == Keeps::All {
            return Ok(None);
        }
        // Not by its configuration, or it would follow again after its first restart.
        let replica = start(keeps).await?;
        follow(&replica, self.port()).await?;
        Ok(Some(replica))
    }

    async fn cut_off(&self) -> Done {
        // Nobody listens there.
        follow(self, 1).await
    }

    async fn promote(&self) -> Done {
        let _ok: String = self.command(&["REPLICAOF", "NO", "ONE"]).await?;
        Ok(())
    }

    async fn has_caught_up_with(&self, _primary: &Self) -> Done {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let info: String = self.command(&["INFO", "replication"]).await?;
            if info.contains("master_link_status:up") {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the replica is not in step: {info}").into());
            }
            sleep(POLL).await;
        }
    }
}
