//! The servers of a stage.

use std::io;

use lock_recipes::{Error, Session, ZooKeeperBuilder};
use recipes_core::SessionOptions;
use test_rig::{
    EtcdServer, FaultProxy, MariaDbServer, PostgresServer, RedisServer, ZooKeeperEnsemble,
    ZooKeeperServer,
};

/// Connections that the proxies have cut, but that the server still has, are among them.
const CONNECTIONS_MAX: u16 = 1000;

pub(crate) enum Servers {
    One(ZooKeeperServer),
    Three(ZooKeeperEnsemble),
    Etcd(EtcdServer),
    Redis(RedisServer),
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

impl Servers {
    pub(crate) async fn zookeeper() -> Self {
        Self::One(ZooKeeperServer::start().await.expect("a server"))
    }

    pub(crate) async fn ensemble() -> Self {
        let servers = ZooKeeperEnsemble::start(3).await;
        Self::Three(servers.expect("an ensemble"))
    }

    pub(crate) async fn etcd() -> Self {
        Self::Etcd(EtcdServer::start().await.expect("a server"))
    }

    pub(crate) async fn redis() -> Self {
        // It reports the deletion of a key at the moment at which it deletes it.
        let server = RedisServer::builder().setting("notify-keyspace-events", "Kg");
        Self::Redis(server.start().await.expect("a server"))
    }

    pub(crate) async fn postgres() -> Self {
        let server = PostgresServer::builder().max_connections(CONNECTIONS_MAX);
        Self::Postgres(server.start().await.expect("a server"))
    }

    pub(crate) async fn mariadb() -> Self {
        let server = MariaDbServer::builder().max_connections(CONNECTIONS_MAX);
        Self::MariaDb(server.start().await.expect("a server"))
    }

    /// The server of all contenders except the subject, the one to which the subject connects first,
    /// and the one to which it can move.
    pub(crate) fn addresses(&self) -> [String; 3] {
        let port = match self {
            Self::One(server) => server.port(),
            Self::Three(servers) => {
                return [0, 1, 2].map(|index| servers.server(index).connect_string());
            }
            Self::Etcd(server) => server.port(),
            Self::Redis(server) => server.port(),
            Self::Postgres(server) => server.port(),
            Self::MariaDb(server) => server.port(),
        };
        [(); 3].map(|()| format!("127.0.0.1:{port}"))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::One(_) => "ZooKeeper",
            Self::Three(_) => "ZooKeeper ensemble",
            Self::Etcd(_) => "etcd",
            Self::Redis(_) => "Redis",
            Self::Postgres(_) => "PostgreSQL",
            Self::MariaDb(_) => "MariaDB",
        }
    }

    /// A proxy in front of one of them.
    pub(crate) async fn proxy(&self, address: &str) -> io::Result<FaultProxy> {
        match self {
            Self::One(_) | Self::Three(_) => FaultProxy::start(address).await,
            Self::Etcd(_) => FaultProxy::start_for_etcd(address).await,
            Self::Redis(_) => FaultProxy::start_for_redis(address).await,
            Self::Postgres(_) => FaultProxy::start_for_postgres(address).await,
            Self::MariaDb(_) => FaultProxy::start_for_mysql(address).await,
        }
    }

    /// Opens a session at a server or a proxy.
    pub(crate) async fn connect(
        &self,
        address: &str,
        options: SessionOptions,
    ) -> Result<Session, Error> {
        match self {
            Self::One(_) | Self::Three(_) => ZooKeeperBuilder::from(options).connect(address).await,
            Self::Etcd(_) => connect_to_etcd(address, options).await,
            Self::Redis(_) => connect_to_redis(address, options).await,
            Self::Postgres(server) => connect_to_postgres(&server.url_at(address), options).await,
            Self::MariaDb(server) => connect_to_mariadb(&server.url_at(address), options).await,
        }
    }
}

async fn connect_to_etcd(address: &str, options: SessionOptions) -> Result<Session, Error> {
    let options = lock_recipes::EtcdBuilder::from(options);
    options.connect(&format!("etcd://{address}")).await
}

async fn connect_to_redis(address: &str, options: SessionOptions) -> Result<Session, Error> {
    // Nobody held a lock before the server was started.
    let options = lock_recipes::RedisBuilder::from(options).new_server();
    options.connect(&format!("redis://{address}")).await
}

async fn connect_to_postgres(url: &str, options: SessionOptions) -> Result<Session, Error> {
    let options = lock_recipes::PostgresBuilder::from(options).new_server();
    options.connect(url).await
}

async fn connect_to_mariadb(url: &str, options: SessionOptions) -> Result<Session, Error> {
    let options = lock_recipes::MySqlBuilder::from(options).new_server();
    options.connect(url).await
}
