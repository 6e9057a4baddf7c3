//! Test doubles for `lock-recipes` and the services that use it.
//!
//! [`MemoryEnsemble`] runs in the test's own process, in milliseconds and without a server. It is
//! the right start for a service's unit tests. [`contract`] is what every lock must keep, for what a
//! service builds from locks.
//!
//! Each feature adds a real server on loopback, for everything that a double cannot prove:
//!
//! | feature | what it adds | starts within |
//! |---|---|---|
//! | `zookeeper-server` | `ZooKeeperServer`, `ZooKeeperEnsemble` | a second |
//! | `redis-server` | `RedisServer` | milliseconds |
//! | `postgres-server` | `PostgresServer` | a tenth of a second |
//! | `mysql-server` | `MariaDbServer` | a tenth of a second |
//! | `etcd-server` | `EtcdServer`, `EtcdCluster` | a tenth of a second, some seconds |

pub mod contract;
mod memory;
#[cfg(feature = "server")]
mod server;

pub use memory::{
    Checkpoint, Faults, Lost, MemoryBuilder, MemoryEnsemble, MemoryError, MemoryOptions, Operation,
    Request,
};
#[cfg(any(feature = "postgres-server", feature = "mysql-server"))]
pub use server::Durability;
#[cfg(feature = "server")]
pub use server::ServerError;
#[cfg(feature = "etcd-server")]
pub use server::{EtcdCluster, EtcdServer, EtcdServerBuilder};
#[cfg(feature = "mysql-server")]
pub use server::{MariaDbServer, MariaDbServerBuilder};
#[cfg(feature = "postgres-server")]
pub use server::{PostgresServer, PostgresServerBuilder};
#[cfg(feature = "redis-server")]
pub use server::{RedisServer, RedisServerBuilder, StoreClock};
#[cfg(feature = "zookeeper-server")]
pub use server::{ServerBuilder, ZooKeeperEnsemble, ZooKeeperServer};

/// What the project's own tests need besides. It changes without notice.
#[doc(hidden)]
pub mod internal {
    pub use crate::memory::{Random, ZOOKEEPER};
    #[cfg(feature = "server")]
    pub use crate::server::ports;
}
