//! What a store says when it is asked outside the lock's code.

use std::collections::HashSet;

use etcd_client::{GetOptions, KeyValue};
use lock_recipes::Client;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};
use recipes_core::internal::REVISION_DIGITS;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, cmd};
use tokio::sync::Mutex;
use tokio_postgres::NoTls;
use tokio_postgres::types::Type;
use zookeeper_client::Error;

use crate::store::Servers;

/// Reads what the store has, and none of it through a lock's code.
pub(crate) enum Operator {
    ZooKeeper(Client),
    Etcd(Box<etcd_client::Client>),
    Redis(MultiplexedConnection),
    Postgres(tokio_postgres::Client),
    MariaDb(Mutex<Conn>),
}

/// What is known of a node.
pub(crate) struct Node {
    /// The transaction that created it.
    pub(crate) created: i64,
    /// The session that it goes with.
    pub(crate) owner: i64,
}

impl Operator {
    pub(crate) async fn of(servers: &Servers) -> Self {
        match servers {
            Servers::One(server) => Self::ZooKeeper(server.client().await.expect("a client")),
            Servers::Three(servers) => {
                let client = servers.server(0).client().await;
                Self::ZooKeeper(client.expect("a client"))
            }
            Servers::Etcd(server) => {
                let client = etcd_client::Client::connect([server.address()], None).await;
                Self::Etcd(Box::new(client.expect("a client")))
            }
            Servers::Redis(server) => {
                let client = redis::Client::open(server.url()).expect("a URL");
                // A busy machine may take longer than the half second of the defaults.
                let patient = AsyncConnectionConfig::new()
                    .set_connection_timeout(None)
                    .set_response_timeout(None);
                let connection = client.get_multiplexed_async_connection_with_config(&patient);
                Self::Redis(connection.await.expect("a connection"))
            }
            Servers::Postgres(server) => {
                let connected = tokio_postgres::connect(&server.url(), NoTls).await;
                let (client, connection) = connected.expect("a connection");
                tokio::spawn(connection);
                Self::Postgres(client)
            }
            Servers::MariaDb(server) => {
                let options = Opts::from_url(&server.url()).expect("a URL");
                Self::MariaDb(Mutex::new(Conn::new(options).await.expect("a connection")))
            }
        }
    }

    /// The names in a directory; none if it does not exist.
    pub(crate) async fn names(&self, directory: &str) -> Result<Vec<String>, String> {
        let names = match self {
            Self::ZooKeeper(client) => match client.list_children(directory).await {
                Err(Error::NoNode) => return Ok(Vec::new()),
                names => names.map_err(|error| error.to_string()),
            },
            Self::Etcd(client) => {
                let below = format!("{directory}/");
                let options = GetOptions::new().with_prefix().with_keys_only();
                let keys = client.kv_client().get(below.as_str(), Some(options)).await;
                let name = |kv: &KeyValue| Some(node_of(kv)?.strip_prefix(&below)?.to_owned());
                keys.map(|it| it.kvs().iter().filter_map(name).collect())
                    .map_err(|error| error.to_string())
            }
            Self::Redis(connection) => {
                let mut asked = cmd("ZRANGE");
                asked.arg(format!("{{locks}}:c:{directory}")).arg(0).arg(-1);
                let names = asked.query_async(&mut connection.clone()).await;
                names.map_err(|error: redis::RedisError| error.to_string())
            }
            Self::Postgres(client) => {
                let asked = "SELECT name FROM lock_recipes.nodes WHERE dir = $1";
                let rows = client.query_typed(asked, &[(&directory, Type::TEXT)]).await;
                rows.map(|rows| rows.iter().map(|row| row.get(0)).collect())
                    .map_err(|error| error.to_string())
            }
            Self::MariaDb(connection) => {
                let asked = "SELECT name FROM lock_recipes_nodes WHERE dir = ?";
                let mut connection = connection.lock().await;
                let names = connection.exec(asked, (directory,)).await;
                names.map_err(|error| error.to_string())
            }
        };
        names.map_err(|error| format!("cannot list {directory}: {error}"))
    }

    pub(crate) async fn node(&self, path: &str) -> Result<Option<Node>, String> {
        let (directory, name) = path.rsplit_once('/').unwrap_or_default();
        let fields = match self {
            Self::ZooKeeper(client) => {
                let stat = client.check_stat(path).await;
                stat.map_err(|error| error.to_string())
                    .map(|stat| stat.map(|it| (it.czxid, it.ephemeral_owner)))
            }
            Self::Etcd(client) => {
                let key = client.kv_client().get(key_of(path), None).await;
                let is_it = |kv: &&KeyValue| node_of(kv).is_some_and(|it| it == path);
                key.map(|it| {
                    it.kvs()
                        .iter()
                        .find(is_it)
                        .map(|kv| (kv.create_revision(), kv.lease()))
                })
                .map_err(|error| error.to_string())
            }
            Self::Redis(connection) => {
                let mut asked = cmd("HMGET");
                asked.arg(format!("{{locks}}:n:{path}")).arg("c").arg("o");
                let fields = asked.query_async(&mut connection.clone()).await;
                fields
                    .map_err(|error: redis::RedisError| error.to_string())
                    .map(|(created, owner): (Option<i64>, Option<i64>)| created.zip(owner))
            }
            Self::Postgres(client) => {
                let asked = "SELECT c, o FROM lock_recipes.nodes WHERE dir = $1 AND name = $2";
                let typed = [(&directory as _, Type::TEXT), (&name as _, Type::TEXT)];
                let rows = client.query_typed(asked, &typed).await;
                rows.map(|rows| rows.first().map(|row| (row.get(0), row.get(1))))
                    .map_err(|error| error.to_string())
            }
            Self::MariaDb(connection) => {
                let asked = "SELECT c, o FROM lock_recipes_nodes WHERE dir = ? AND name = ?";
                let mut connection = connection.lock().await;
                let fields = connection.exec_first(asked, (directory, name)).await;
                fields.map_err(|error| error.to_string())
            }
        };
        fields
            .map(|it| it.map(|(created, owner)| Node { created, owner }))
            .map_err(|error| format!("cannot read {path}: {error}"))
    }

    /// The paths of all nodes of sessions in a database.
    pub(crate) async fn owned(&self) -> Result<HashSet<String>, String> {
        let paths: Vec<String> = match self {
            Self::Postgres(client) => {
                let asked = "SELECT dir || '/' || name FROM lock_recipes.nodes WHERE o <> 0";
                let rows = client.query_typed(asked, &[]).await;
                let rows = rows.map_err(|error| error.to_string())?;
                rows.iter().map(|row| row.get(0)).collect()
            }
            Self::MariaDb(connection) => {
                let asked = "SELECT CONCAT(dir, '/', name) FROM lock_recipes_nodes WHERE o <> 0";
                let paths = connection.lock().await.query(asked).await;
                paths.map_err(|error| error.to_string())?
            }
            Self::ZooKeeper(_) | Self::Etcd(_) | Self::Redis(_) => {
                unreachable!("no table has them all")
            }
        };
        Ok(paths.into_iter().collect())
    }

    /// What is read after this is not older than what anybody has seen before it.
    pub(crate) async fn sync(&self, path: &str) -> Result<(), String> {
        match self {
            Self::ZooKeeper(client) => {
                let synced = client.sync(path).await;
                synced.map_err(|error| format!("cannot sync: {error}"))
            }
            // There is one server.
            Self::Etcd(_) | Self::Redis(_) | Self::Postgres(_) | Self::MariaDb(_) => Ok(()),
        }
    }
}

/// The path of the node that a key is: its name goes on with the revision that made it.
fn node_of(kv: &KeyValue) -> Option<String> {
    let key = kv.key_str().ok()?;
    Some(format!("{key}{:0REVISION_DIGITS$}", kv.create_revision()))
}

/// The key of a node.
pub(crate) fn key_of(path: &str) -> &str {
    let end = path.len().saturating_sub(REVISION_DIGITS);
    path.split_at_checked(end).map_or(path, |(key, _)| key)
}
