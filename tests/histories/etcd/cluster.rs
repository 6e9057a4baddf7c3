//! A cluster of three.

use fastrand::Rng;
use lock_recipes::{EtcdBuilder, Guarantee};
use recipes_core::SessionOptions;
use test_rig::{EtcdCluster, EtcdServer, TransactionLog};
use tokio::time::timeout;

use crate::members::{self, Members, members};
use crate::operator::Operator;
use crate::servers::{Done, Servers};
use crate::stage::PATIENCE;
use crate::trouble::{Trouble, Which};
use crate::worker::{SESSION_TIMEOUT, session_timeout};

fn operator(cluster: &EtcdCluster) -> Operator {
    let url = cluster.url();
    let options = SessionOptions::new().session_timeout(session_timeout(&url));
    Operator(EtcdBuilder::from(options).store(&url).unwrap())
}

/// Whether a leader that was halted for longer than a lease has its follower end leases that are alive:
/// <https://github.com/etcd-io/etcd/issues/15247>, mended in 3.4.31 and 3.5.13. No session can help against that.
async fn ends_leases_of_the_living(server: &EtcdServer) -> Done<bool> {
    let said = server
        .command(&["endpoint", "status", "--write-out=fields"])
        .await?;
    let version = said
        .lines()
        .find_map(|line| line.strip_prefix("\"Version\" : \""));
    let version = version.ok_or("no version")?.trim_end_matches('"');
    let parts: Result<Vec<u32>, _> = version.split(['.', '-']).take(3).map(str::parse).collect();
    Ok(match parts?[..] {
        [3, 4, patch] => patch < 31,
        [3, 5, patch] => patch < 13,
        _ => false,
    })
}

impl Servers for EtcdCluster {
    /// Each worker names another member first.
    fn address(&self, worker: u32) -> String {
        let mut members: Vec<_> = self.servers().iter().map(EtcdServer::address).collect();
        let first = usize::try_from(worker).unwrap() % members.len();
        members.rotate_left(first);
        format!("etcd://{}", members.join(","))
    }

    async fn create(&self, paths: &[String]) {
        let guarantee = operator(self).create(paths).await;
        assert_eq!(guarantee, Guarantee::Consensus);
    }

    async fn bring(&self, trouble: Trouble, random: &mut Rng) -> Done {
        members::bring(self, trouble, random).await
    }

    /// Nobody knows the sessions of nodes afterwards, so none is ended from outside.
    async fn somebody(&self, _locks: &[String], _random: &mut Rng) -> Option<i64> {
        None
    }

    async fn expire(&self, _session: i64) -> Done {
        Ok(())
    }

    async fn left(&self, locks: &[String]) -> Vec<String> {
        operator(self).left(locks).await
    }

    fn log(&self) -> Option<TransactionLog> {
        None
    }
}

impl Members for EtcdCluster {
    members!();

    /// They elect in half of the usual time: within the half of a session's timeout in which a holder waits for
    /// an answer, but for a split vote.
    async fn three() -> Done<Self> {
        let builder = Self::builder().links();
        let builder = builder.setting("heartbeat-interval", "50");
        let builder = builder.setting("election-timeout", "500");
        Ok(builder.start_cluster(3).await?)
    }

    async fn troubles(&self) -> Done<Vec<Trouble>> {
        let pause = SESSION_TIMEOUT;
        let mut troubles = vec![
            Trouble::KillServer(Which::Follower, pause),
            // Shorter than a lease: when it goes on, it takes none for over.
            Trouble::PauseServer(Which::Leader, pause),
            Trouble::PauseServer(Which::Follower, 2 * pause),
            Trouble::MoveLeader,
            Trouble::MoveLeader,
            Trouble::ReplaceServer(Which::Leader),
            Trouble::ReplaceServer(Which::Follower),
        ];
        if !ends_leases_of_the_living(self.server(0)).await? {
            troubles.push(Trouble::PauseServer(Which::Leader, 4 * pause));
        }
        Ok(troubles)
    }

    async fn move_leader(&self, to: usize) -> Done {
        Ok(self.move_leader(to).await?)
    }

    async fn replace(&self, index: usize) -> Done {
        Ok(self.replace(index).await?)
    }

    async fn await_service(&self, index: usize) -> Done {
        let server = self.server(index);
        // The quorum stands behind the answer.
        let served = async { while server.command(&["get", "/"]).await.is_err() {} };
        let served = timeout(2 * PATIENCE, served).await;
        Ok(served.map_err(|_| format!("port {} does not serve", server.port()))?)
    }
}
