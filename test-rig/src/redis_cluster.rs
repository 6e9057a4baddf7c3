//! A Redis cluster on loopback.

use std::time::Duration;

use recipes_testing::{RedisServer, ServerError};
use tokio::time::{Instant, sleep};

/// Primaries, each with a replica.
const PRIMARIES: usize = 3;
/// Slots of every cluster.
const SLOTS: usize = 16384;
/// A server counts as failed after so long, so that one that is killed is replaced soon. A machine that is busy may
/// make one fail: see [`RedisCluster::have_patience`].
const NODE_TIMEOUT_MS: &str = "1500";
/// The default of the servers.
const PATIENT_TIMEOUT_MS: &str = "15000";
/// What must happen, happens in this time.
const PATIENCE: Duration = Duration::from_secs(120);
/// A replica that was told to take over, and was not elected, has given up by then: after 5 s.
const GIVEN_UP: Duration = Duration::from_secs(6);

/// Three Redis servers that share the slots, each with a replica that takes its place if it fails.
///
/// Dropping it ends all of them. A server may be killed and started again, and is then a replica of the one that took
/// its place.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts the servers, and waits until they serve all slots.
    ///
    /// # Errors
    /// As [`RedisServerBuilder::start`](recipes_testing::RedisServerBuilder::start), and what a server has said.
    ///
    /// # Panics
    /// If the servers do not find each other.
    pub async fn start() -> Result<Self, ServerError> {
        let mut servers = Vec::new();
        for number in 1..=2 * PRIMARIES {
            let server = RedisServer::builder()
                .setting("cluster-enabled", "yes")
                .setting("cluster-node-timeout", NODE_TIMEOUT_MS)
                // However long it was cut off.
                .setting("cluster-replica-validity-factor", "0")
                .setting("cluster-allow-replica-migration", "no");
            let server = server.start().await?;
            ok(
                &server,
                &["CLUSTER", "SET-CONFIG-EPOCH", &number.to_string()],
            )
            .await?;
            servers.push(server);
        }
        let cluster = Self { servers };
        let (primaries, replicas) = cluster.servers.split_at(PRIMARIES);
        for (number, primary) in primaries.iter().enumerate() {
            let first = SLOTS * number / PRIMARIES;
            let last = SLOTS * (number + 1) / PRIMARIES - 1;
            let range = [first.to_string(), last.to_string()];
            ok(primary, &["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]).await?;
            for other in &cluster.servers {
                let port = other.port().to_string();
                let bus: Vec<String> = other.command(&["CONFIG", "GET", "cluster-port"]).await?;
                let bus = bus.last().cloned().unwrap_or_default();
                ok(primary, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
            }
        }
        let known = format!("cluster_known_nodes:{}", 2 * PRIMARIES);
        cluster.all_say(&known).await;
        for (primary, replica) in primaries.iter().zip(replicas) {
            let primary = id(primary).await?;
            until("a primary that is known", async || {
                ok(replica, &["CLUSTER", "REPLICATE", &primary]).await.ok()
            })
            .await;
        }
        cluster.all_say("cluster_state:ok").await;
        for primary in primaries {
            cluster.replica_of(primary).await;
        }
        Ok(cluster)
    }

    /// From now on no primary is replaced because the machine is busy, and one that is killed is replaced late.
    ///
    /// # Errors
    /// What a server has said.
    pub async fn have_patience(&self) -> Result<(), ServerError> {
        for server in &self.servers {
            let set = ["CONFIG", "SET", "cluster-node-timeout", PATIENT_TIMEOUT_MS];
            ok(server, &set).await?;
        }
        Ok(())
    }

    async fn all_say(&self, what: &str) {
        for server in &self.servers {
            until(what, async || {
                let info: String = server.command(&["CLUSTER", "INFO"]).await.ok()?;
                info.contains(what).then_some(())
            })
            .await;
        }
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.servers.iter();
        let hosts: Vec<_> = hosts.map(|it| format!("127.0.0.1:{}", it.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// All of its servers.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The primary that has a key, once there is one.
    ///
    /// # Panics
    /// If there is none for two minutes.
    pub async fn primary(&self, key: &str) -> &RedisServer {
        until("a primary", async || {
            for server in self.servers.iter().filter(|it| it.pid().is_some()) {
                // A replica names its primary, and one that does not know the others yet says so.
                if server.command::<i64>(&["EXISTS", key]).await.is_ok() {
                    return Some(server);
                }
            }
            None
        })
        .await
    }

    /// The primary of other keys than this one: see [`move_slot`](Self::move_slot).
    ///
    /// # Panics
    /// As [`primary`](Self::primary).
    pub async fn another_primary(&self, key: &str) -> &RedisServer {
        let primary = self.primary(key).await.port();
        until("another primary", async || {
            for server in self.servers.iter().filter(|it| it.pid().is_some()) {
                let role: Option<String> = server.command(&["INFO", "replication"]).await.ok();
                let leads = role.is_some_and(|it| it.contains("role:master"));
                if leads && server.port() != primary {
                    return Some(server);
                }
            }
            None
        })
        .await
    }

    /// The replica of a primary, once it has all that the primary has now.
    ///
    /// # Panics
    /// If there is none for two minutes.
    pub async fn replica_of(&self, primary: &RedisServer) -> &RedisServer {
        let follows = format!("master_port:{}\r", primary.port());
        let offset = async |server: &RedisServer, name| {
            let info: String = server.command(&["INFO", "replication"]).await.ok()?;
            let offset = info.lines().find_map(|line| line.strip_prefix(name))?;
            Some((offset.parse::<u64>().ok()?, info))
        };
        let (written, _) = until("a primary", async || {
            offset(primary, "master_repl_offset:").await
        })
        .await;
        until("a replica in step", async || {
            for server in self.servers.iter().filter(|it| it.pid().is_some()) {
                match offset(server, "slave_repl_offset:").await {
                    Some((has, info)) if info.contains(&follows) && has >= written => {
                        return Some(server);
                    }
                    _ => {}
                }
            }
            None
        })
        .await
    }

    /// Has the replica of a primary take its place, in the given way (`FORCE`, `TAKEOVER`) or with nothing lost.
    ///
    /// # Errors
    /// What a server has said.
    ///
    /// # Panics
    /// If it does not for two minutes.
    pub async fn fail_over(&self, primary: &RedisServer, way: &str) -> Result<(), ServerError> {
        let replica = self.replica_of(primary).await;
        let words = ["CLUSTER", "FAILOVER", way];
        let words = if way.is_empty() { &words[..2] } else { &words };
        ok(replica, words).await?;
        let mut asked = Instant::now();
        until("a new primary", async || {
            let role: String = replica.command(&["INFO", "replication"]).await.ok()?;
            if role.contains("role:master") {
                return Some(());
            }
            if asked.elapsed() > GIVEN_UP {
                asked = Instant::now();
                // It may have become the primary meanwhile.
                drop(ok(replica, words).await);
            }
            None
        })
        .await;
        Ok(())
    }

    /// Begins to move the slot of a key to another primary: from now on the one that has it serves only what is
    /// still there.
    ///
    /// # Errors
    /// What a server has said.
    pub async fn open_slot(
        &self,
        slot: &str,
        from: &RedisServer,
        to: &RedisServer,
    ) -> Result<(), ServerError> {
        let (source, target) = (id(from).await?, id(to).await?);
        ok(to, &["CLUSTER", "SETSLOT", slot, "IMPORTING", &source]).await?;
        ok(from, &["CLUSTER", "SETSLOT", slot, "MIGRATING", &target]).await
    }

    /// Moves keys to another primary, while their slot is open.
    ///
    /// # Errors
    /// What a server has said.
    pub async fn move_keys(
        &self,
        keys: &[String],
        from: &RedisServer,
        to: &RedisServer,
    ) -> Result<(), ServerError> {
        let port = to.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "10000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        from.command::<String>(&words).await.map(drop)
    }

    /// Moves the slot of a key, with all that is in it, as `redis-cli --cluster reshard` does.
    ///
    /// # Errors
    /// What a server has said.
    pub async fn move_slot(
        &self,
        slot: &str,
        from: &RedisServer,
        to: &RedisServer,
    ) -> Result<(), ServerError> {
        self.open_slot(slot, from, to).await?;
        loop {
            let left = ["CLUSTER", "GETKEYSINSLOT", slot, "3"];
            let keys: Vec<String> = from.command(&left).await?;
            if keys.is_empty() {
                break;
            }
            self.move_keys(&keys, from, to).await?;
        }
        let target = id(to).await?;
        for server in [to, from] {
            ok(server, &["CLUSTER", "SETSLOT", slot, "NODE", &target]).await?;
        }
        Ok(())
    }
}

/// The slot of a key.
///
/// # Errors
/// What the server has said.
pub async fn slot_of(server: &RedisServer, key: &str) -> Result<String, ServerError> {
    let slot: i64 = server.command(&["CLUSTER", "KEYSLOT", key]).await?;
    Ok(slot.to_string())
}

async fn id(server: &RedisServer) -> Result<String, ServerError> {
    server.command(&["CLUSTER", "MYID"]).await
}

async fn ok(server: &RedisServer, words: &[&str]) -> Result<(), ServerError> {
    server.command::<String>(words).await.map(drop)
}

/// Polls until there is an answer.
async fn until<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = answer().await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        sleep(Duration::from_millis(10)).await;
    }
}
