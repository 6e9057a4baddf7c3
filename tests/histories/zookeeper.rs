//! ZooKeeper: one server, or three.

use std::time::Duration;

use fastrand::Rng;
use test_rig::history::Happening;
use test_rig::{ServerError, TransactionLog, WritesLog as _, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::members::{self, Members, members};
use crate::servers::{Done, LEFT_MAX, Servers};
use crate::stage::{PATIENCE, Stage};
use crate::trouble::{Trouble, Which};
use crate::worker::SESSION_TIMEOUT;

/// A server may not answer at all while it is down or starts.
const ANSWER_MAX: Duration = Duration::from_secs(2);

impl Servers for ZooKeeperEnsemble {
    /// Each worker has another server first in its list. It connects to that one as long as it can.
    fn address(&self, worker: u32) -> String {
        let servers = self.servers().iter();
        let mut servers: Vec<_> = servers.map(ZooKeeperServer::connect_string).collect();
        let first = usize::try_from(worker).unwrap() % servers.len();
        servers.rotate_left(first);
        servers.join(",")
    }

    async fn create(&self, paths: &[String]) {
        let client = self.client().await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for path in paths {
            client.create(path, b"", &options).await.unwrap();
        }
    }

    async fn bring(&self, trouble: Trouble, random: &mut Rng) -> Done {
        members::bring(self, trouble, random).await
    }

    async fn somebody(&self, locks: &[String], random: &mut Rng) -> Option<i64> {
        let session = timeout(ANSWER_MAX, somebody(self, locks, random)).await;
        session.ok()?.ok()?
    }

    async fn expire(&self, session: i64) -> Done {
        match ZooKeeperEnsemble::expire(self, session).await {
            Err(ServerError::NoSession { .. }) => Ok(()),
            done => Ok(done?),
        }
    }

    async fn left(&self, locks: &[String]) -> Vec<String> {
        let mut left = Vec::new();
        let client = self.client().await.unwrap();
        let until = Instant::now() + LEFT_MAX;
        for lock in locks {
            loop {
                // A follower may not have learned yet what the leader has deleted.
                client.sync(lock).await.unwrap();
                let nodes = client.list_children(lock).await.unwrap_or_default();
                if nodes.is_empty() || Instant::now() > until {
                    left.extend(nodes.iter().map(|node| format!("{lock}/{node}")));
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        left
    }

    fn log(&self) -> Option<TransactionLog> {
        Some(self.transaction_log_after(i64::MIN).unwrap())
    }
}

impl Members for ZooKeeperEnsemble {
    members!();

    async fn three() -> Done<Self> {
        // A server that is elected but finds no follower tries again after 3 s, instead of 10.
        let builder = Self::builder().links().config("initLimit", "30");
        Ok(builder.start_ensemble(3).await?)
    }

    async fn troubles(&self) -> Done<Vec<Trouble>> {
        Ok(vec![Trouble::PauseServer(
            Which::Leader,
            4 * SESSION_TIMEOUT,
        )])
    }

    async fn await_service(&self, index: usize) -> Done {
        await_service(self.server(index)).await
    }
}

/// The session of a random node that exists now.
async fn somebody(
    ensemble: &ZooKeeperEnsemble,
    locks: &[String],
    random: &mut Rng,
) -> Result<Option<i64>, zookeeper_client::Error> {
    let client = Client::connect(&ensemble.connect_string()).await?;
    let mut locks: Vec<_> = locks.iter().collect();
    random.shuffle(&mut locks);
    for lock in locks {
        let Ok(nodes) = client.list_children(lock).await else {
            continue;
        };
        if let Some(node) = random.choice(nodes) {
            let stat = client.check_stat(&format!("{lock}/{node}")).await?;
            return Ok(stat.map(|stat| stat.ephemeral_owner));
        }
    }
    Ok(None)
}

impl Stage<ZooKeeperEnsemble> {
    /// Starts all servers again after a fault that was not completed.
    pub(crate) async fn mend(&self, trouble: Trouble) {
        if matches!(trouble, Trouble::Evict) {
            return;
        }
        let servers = self.servers.servers();
        (0..servers.len()).for_each(|index| self.servers.join_again(index));
        for server in servers {
            server.kill().await.unwrap();
        }
        for index in 0..servers.len() {
            self.servers.start_again(index).await.unwrap();
        }
        for server in servers {
            await_service(server).await.unwrap();
        }
        self.note(Happening::Up);
    }
}

/// Waits until the server accepts clients. Without a leader it closes their connections.
async fn await_service(server: &ZooKeeperServer) -> Done {
    let served = async {
        // The client itself waits a while for a server that does not answer.
        while !matches!(timeout(ANSWER_MAX, server.client()).await, Ok(Ok(_))) {}
    };
    let served = timeout(2 * PATIENCE, served).await;
    Ok(served.map_err(|_| format!("port {} does not serve", server.port()))?)
}
