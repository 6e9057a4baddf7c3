//! etcd: a server that keeps what it has acknowledged, or a cluster of three.

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{EtcdBuilder, Guarantee};
use recipes_core::{SessionOptions, Store};
use test_rig::EtcdServer;

use crate::primary::{Keeps, Machine, process};
use crate::servers::Done;
use crate::trouble::Trouble;

impl Machine for EtcdServer {
    process!();

    fn troubles(_keeps: Keeps, _last: Duration) -> Vec<Trouble> {
        Vec::new()
    }

    fn guarantee(_keeps: Keeps) -> Guarantee {
        Guarantee::Consensus
    }

    async fn start(_keeps: Keeps, _random: &mut Rng) -> Done<Self> {
        Ok(EtcdServer::start().await?)
    }

    fn url_at(&self, port: u16) -> String {
        format!("etcd://127.0.0.1:{port}")
    }

    fn store(url: &str, options: SessionOptions) -> Arc<dyn Store> {
        EtcdBuilder::from(options).store(url).unwrap()
    }

    /// They lead to the road, which is not the server's.
    async fn cut_connections(&self) -> Done {
        self.stop().await?;
        Ok(self.start_again().await?)
    }

    /// A lease is counted by a clock that nobody sets.
    async fn set_clock(&self, _by_us: i64) -> Done {
        Ok(())
    }

    async fn forget_last(&self, _last: Duration) -> Done {
        Err("it forgets nothing".into())
    }

    async fn replica(&self, _keeps: Keeps) -> Done<Option<Self>> {
        Ok(None)
    }

    async fn cut_off(&self) -> Done {
        Err("it has no replica".into())
    }

    async fn promote(&self) -> Done {
        Err("it is no replica".into())
    }

    async fn has_caught_up_with(&self, _primary: &Self) -> Done {
        Err("it is no replica".into())
    }
}
