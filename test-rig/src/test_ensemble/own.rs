//! Ensembles of the test's own: for tests that halt, kill, cut, configure or count.
//!
//! All functions panic if a server cannot be started.
#![allow(clippy::missing_panics_doc, reason = "said above, once")]

use recipes_testing::{EtcdServer, MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};

use super::{TestEnsemble, must};

/// A ZooKeeper server, which reaps empty containers after half a second.
pub async fn on_a_real_server() -> TestEnsemble {
    TestEnsemble::Real(zookeeper().await.into())
}

/// An etcd server, a cluster of one member.
pub async fn on_etcd() -> TestEnsemble {
    TestEnsemble::Etcd(must("start a server", EtcdServer::start().await).into())
}

/// A Redis server, on which containers are removed when they have been empty for half a second.
pub async fn on_redis() -> TestEnsemble {
    TestEnsemble::Redis(must("start a server", RedisServer::start().await).into())
}

/// As [`on_redis`], on PostgreSQL.
pub async fn on_postgres() -> TestEnsemble {
    TestEnsemble::Postgres(must("start a server", PostgresServer::start().await).into())
}

/// As [`on_redis`], on MariaDB.
pub async fn on_mariadb() -> TestEnsemble {
    TestEnsemble::MariaDb(must("start a server", MariaDbServer::start().await).into())
}

pub(super) async fn zookeeper() -> ZooKeeperServer {
    // Nearly at once, instead of once a minute: locks must cope with it.
    let reaps = ZooKeeperServer::builder().property("znode.container.checkIntervalMs", "500");
    must("start a server", reaps.start().await)
}
