//! Real servers as child processes.
//!
//! | file | noun |
//! |---|---|
//! | `single`, `ensemble`, `builder` | the handles that tests hold, and how they are set up |
//! | `redis`, `redis_builder`, `store_clock` | the same for Redis, and what the locks' store there remembers of time |
//! | `postgres`, `mariadb` | the same for databases |
//! | `etcd` | the same for etcd, alone or in a cluster |
//! | `daemon`, `durability`, `command_line` | what these have in common: how they run, when databases answer a commit, how a test asks them |
//! | `folder`, `template` | a database's folder, and what is in it at first |
//! | `process`, `slot` | a server's process: its start, its signals, its end; where it is, if it runs |
//! | `children`, `account` | the processes that a server has started; whom it runs as, if not as root |
//! | `installation` | where Java and the server's jars are |
//! | `home`, `config`, `ports` | a server's folder, its `zoo.cfg`, and what it listens on |
//! | `links` | the network between the servers of an ensemble or a cluster |
//! | `reports`, `four_letter` | what a server reports about itself |
//! | `raw_session`, `password` | how a session is ended from outside |

#![cfg_attr(
    not(all(
        feature = "zookeeper-server",
        feature = "redis-server",
        feature = "postgres-server",
        feature = "mysql-server",
        feature = "etcd-server"
    )),
    allow(dead_code, reason = "one kind of server alone needs only some of it")
)]

mod account;
mod children;
mod error;
#[doc(hidden)]
pub mod ports;
mod process;
mod slot;

#[cfg(feature = "zookeeper-server")]
mod builder;
#[cfg(feature = "zookeeper-server")]
mod config;
#[cfg(feature = "zookeeper-server")]
mod ensemble;
#[cfg(feature = "zookeeper-server")]
mod four_letter;
#[cfg(feature = "zookeeper-server")]
mod home;
#[cfg(feature = "zookeeper-server")]
mod installation;
#[cfg(any(feature = "zookeeper-server", feature = "etcd-server"))]
mod links;
#[cfg(feature = "zookeeper-server")]
mod password;
#[cfg(feature = "zookeeper-server")]
mod raw_session;
#[cfg(feature = "zookeeper-server")]
mod reports;
#[cfg(feature = "zookeeper-server")]
mod single;

#[cfg(feature = "redis-server")]
mod redis;
#[cfg(feature = "redis-server")]
mod redis_builder;
#[cfg(feature = "redis-server")]
mod store_clock;

#[cfg(any(
    feature = "postgres-server",
    feature = "mysql-server",
    feature = "etcd-server"
))]
mod command_line;
#[cfg(any(
    feature = "postgres-server",
    feature = "mysql-server",
    feature = "etcd-server"
))]
mod daemon;
#[cfg(any(feature = "postgres-server", feature = "mysql-server"))]
mod durability;
#[cfg(feature = "etcd-server")]
mod etcd;
#[cfg(any(
    feature = "postgres-server",
    feature = "mysql-server",
    feature = "etcd-server"
))]
mod folder;
#[cfg(feature = "mysql-server")]
mod mariadb;
#[cfg(feature = "postgres-server")]
mod postgres;
#[cfg(any(feature = "postgres-server", feature = "mysql-server"))]
mod template;

#[cfg(feature = "zookeeper-server")]
pub use builder::ServerBuilder;
#[cfg(any(feature = "postgres-server", feature = "mysql-server"))]
pub use durability::Durability;
#[cfg(feature = "zookeeper-server")]
pub use ensemble::ZooKeeperEnsemble;
pub use error::ServerError;
#[cfg(feature = "etcd-server")]
pub use etcd::{EtcdCluster, EtcdServer, EtcdServerBuilder};
#[cfg(feature = "mysql-server")]
pub use mariadb::{MariaDbServer, MariaDbServerBuilder};
#[cfg(feature = "postgres-server")]
pub use postgres::{PostgresServer, PostgresServerBuilder};
#[cfg(feature = "redis-server")]
pub use redis::RedisServer;
#[cfg(feature = "redis-server")]
pub use redis_builder::RedisServerBuilder;
#[cfg(feature = "zookeeper-server")]
pub use single::ZooKeeperServer;
#[cfg(feature = "redis-server")]
pub use store_clock::StoreClock;
