//! Places on servers that all tests of a program share. Each test has a path, a prefix or a schema that
//! no other sees.
//!
//! All functions panic if a server cannot be started.
#![allow(clippy::missing_panics_doc, reason = "said above, once")]

use recipes_testing::{EtcdServer, MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};
use zookeeper_client::{Acls, Client, CreateMode};

use super::place::{Place, Shared};
use super::{TestEnsemble, must, own};

/// Sessions of tests that run at the same time; some open a hundred.
const CONNECTIONS_MAX: u16 = 1_000;

/// A path on a ZooKeeper server, which reaps empty containers after half a second.
pub async fn on_a_real_server() -> TestEnsemble {
    static SERVER: Shared<ZooKeeperServer> = Shared::new();
    let place = Place::on(&SERVER, own::zookeeper).await;
    let operator: Client = must("connect", place.client().await);
    let path = format!("/{}", place.name().unwrap_or_default());
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    must(
        "make a place",
        operator.create(&path, b"", &persistent).await,
    );
    TestEnsemble::Real(place)
}

/// A prefix on an etcd server.
pub async fn on_etcd() -> TestEnsemble {
    static SERVER: Shared<EtcdServer> = Shared::new();
    let start = async || must("start a server", EtcdServer::start().await);
    TestEnsemble::Etcd(Place::on(&SERVER, start).await)
}

/// A prefix on a Redis server, on which containers are removed when they have been empty for half a second.
pub async fn on_redis() -> TestEnsemble {
    static SERVER: Shared<RedisServer> = Shared::new();
    let start = async || must("start a server", RedisServer::start().await);
    TestEnsemble::Redis(Place::on(&SERVER, start).await)
}

/// A schema on a PostgreSQL server, which is as [`on_redis`] in all else.
pub async fn on_postgres() -> TestEnsemble {
    static SERVER: Shared<PostgresServer> = Shared::new();
    let builder = PostgresServer::builder().max_connections(CONNECTIONS_MAX);
    let start = async || must("start a server", builder.start().await);
    TestEnsemble::Postgres(Place::on(&SERVER, start).await)
}

/// A prefix of tables on a MariaDB server, which is as [`on_redis`] in all else.
pub async fn on_mariadb() -> TestEnsemble {
    static SERVER: Shared<MariaDbServer> = Shared::new();
    let builder = MariaDbServer::builder().max_connections(CONNECTIONS_MAX);
    let start = async || must("start a server", builder.start().await);
    TestEnsemble::MariaDb(Place::on(&SERVER, start).await)
}
