//! The servers of a stage, and what they say when they are asked outside the lock's code.

use std::io;

use lock_recipes::{Client, ConnectError, Session, ZooKeeperBuilder};
use recipes_core::SessionOptions;
use recipes_testing::{FaultProxy, RedisServer, ZooKeeperEnsemble, ZooKeeperServer};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, cmd};
use zookeeper_client::Error;

pub(crate) enum Servers {
    One(ZooKeeperServer),
    Three(ZooKeeperEnsemble),
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "no stage on Redis is set without the feature")
    )]
    Redis(RedisServer),
}

impl Servers {
    pub(crate) async fn zookeeper() -> Self {
        Self::One(ZooKeeperServer::start().await.expect("a server"))
    }

    pub(crate) async fn ensemble() -> Self {
        let servers = ZooKeeperEnsemble::start(3).await;
        Self::Three(servers.expect("an ensemble"))
    }

    #[cfg(feature = "redis")]
    pub(crate) async fn redis() -> Self {
        // It reports the deletion of a key at the moment at which it deletes it.
        let server = RedisServer::builder().setting("notify-keyspace-events", "Kg");
        Self::Redis(server.start().await.expect("a server"))
    }

    /// The server of all contenders except the subject, the one to which the subject connects first,
    /// and the one to which it can move.
    pub(crate) fn addresses(&self) -> [String; 3] {
        match self {
            Self::One(server) => [(); 3].map(|()| server.connect_string()),
            Self::Three(servers) => [0, 1, 2].map(|index| servers.server(index).connect_string()),
            Self::Redis(server) => [(); 3].map(|()| format!("127.0.0.1:{}", server.port())),
        }
    }

    pub(crate) fn are_redis(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::One(_) => "ZooKeeper",
            Self::Three(_) => "ZooKeeper ensemble",
            Self::Redis(_) => "Redis",
        }
    }

    /// A proxy in front of one of them.
    pub(crate) async fn proxy(&self, address: &str) -> io::Result<FaultProxy> {
        match self {
            Self::One(_) | Self::Three(_) => FaultProxy::start(address).await,
            Self::Redis(_) => FaultProxy::start_for_redis(address).await,
        }
    }

    /// Opens a session at a server or a proxy.
    pub(crate) async fn connect(
        &self,
        address: &str,
        options: SessionOptions,
    ) -> Result<Session, ConnectError> {
        match self {
            Self::One(_) | Self::Three(_) => ZooKeeperBuilder::from(options).connect(address).await,
            Self::Redis(_) => connect_to_redis(address, options).await,
        }
    }

    pub(crate) async fn operator(&self) -> Operator {
        match self {
            Self::One(server) => Operator::ZooKeeper(server.client().await.expect("a client")),
            Self::Three(servers) => {
                let client = servers.server(0).client().await;
                Operator::ZooKeeper(client.expect("a client"))
            }
            Self::Redis(server) => {
                let client = redis::Client::open(server.url()).expect("a URL");
                // A busy machine may take longer than the half second of the defaults.
                let patient = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None);
                let connection = client.get_multiplexed_async_connection_with_config(&patient);
                Operator::Redis(connection.await.expect("a connection"))
            }
        }
    }
}

#[cfg(feature = "redis")]
async fn connect_to_redis(address: &str, options: SessionOptions) -> Result<Session, ConnectError> {
    // Nobody held a lock before the server was started.
    let options = lock_recipes::RedisBuilder::from(options).new_server();
    options.connect(&format!("redis://{address}")).await
}

#[cfg(not(feature = "redis"))]
async fn connect_to_redis(_: &str, _: SessionOptions) -> Result<Session, ConnectError> {
    unreachable!("no stage on Redis is set without the feature")
}

/// Reads what the store has, and none of it through a lock's code.
pub(crate) enum Operator {
    ZooKeeper(Client),
    Redis(MultiplexedConnection),
}

/// What is known of a node.
pub(crate) struct Node {
    /// The transaction that created it.
    pub(crate) created: i64,
    /// The session that it goes with.
    pub(crate) owner: i64,
}

impl Operator {
    /// The names in a directory; none if it does not exist.
    pub(crate) async fn names(&self, directory: &str) -> Result<Vec<String>, String> {
        let names = match self {
            Self::ZooKeeper(client) => match client.list_children(directory).await {
                Err(Error::NoNode) => return Ok(Vec::new()),
                names => names.map_err(|error| error.to_string()),
            },
            Self::Redis(connection) => {
                let mut asked = cmd("ZRANGE");
                asked.arg(format!("{{locks}}:c:{directory}")).arg(0).arg(-1);
                let names = asked.query_async(&mut connection.clone()).await;
                names.map_err(|error: redis::RedisError| error.to_string())
            }
        };
        names.map_err(|error| format!("cannot list {directory}: {error}"))
    }

    pub(crate) async fn node(&self, path: &str) -> Result<Option<Node>, String> {
        let node = match self {
            Self::ZooKeeper(client) => {
                let stat = client.check_stat(path).await;
                stat.map_err(|error| error.to_string()).map(|stat| {
                    stat.map(|it| Node {
                        created: it.czxid,
                        owner: it.ephemeral_owner,
                    })
                })
            }
            Self::Redis(connection) => {
                let mut asked = cmd("HMGET");
                asked.arg(format!("{{locks}}:n:{path}")).arg("c").arg("o");
                let fields = asked.query_async(&mut connection.clone()).await;
                fields
                    .map_err(|error: redis::RedisError| error.to_string())
                    .map(|(created, owner): (Option<i64>, Option<i64>)| {
                        let (created, owner) = created.zip(owner)?;
                        Some(Node { created, owner })
                    })
            }
        };
        node.map_err(|error| format!("cannot read {path}: {error}"))
    }

    /// What is read after this is not older than what anybody has seen before it.
    pub(crate) async fn sync(&self, path: &str) -> Result<(), String> {
        match self {
            Self::ZooKeeper(client) => {
                let synced = client.sync(path).await;
                synced.map_err(|error| format!("cannot sync: {error}"))
            }
            // There is one server.
            Self::Redis(_) => Ok(()),
        }
    }
}
