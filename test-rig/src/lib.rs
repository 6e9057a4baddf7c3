//! What the tests of `lock-recipes` need besides its double: real servers, faults, peers, judges.
//!
//! [`TestEnsemble`] is where a behaviour is tested, in memory or on a real server:
//! [`on_every_ensemble!`] on a place of the test's own on a [`shared`] server,
//! [`on_ensembles_of_their_own!`] on a server of its [`own`]. [`FaultProxy`] breaks connections at
//! chosen frames. [`CuratorPeer`] runs the recipes of Apache Curator, to contend with ours, and
//! [`ForeignPeer`] the locks of Go and Python, [`EtcdPeer`] those of etcd's own client. [`RedisCluster`] fails over and moves slots. [`history`] judges what many processes wrote down,
//! and [`TransactionLog`] is a ZooKeeper server's own record of it.

pub mod history;
mod jute;
mod peer;
mod proxy;
mod redis_cluster;
mod test_ensemble;
mod txn_log;

pub use peer::{
    CandidateKind, CuratorPeer, Disorder, ForeignPeer, Grant, GrantKind, Naming, PeerError,
    PeerStat, ReadWriteGrants, ReadWriteMix, RedissonPeer, check_grants,
};
#[cfg(unix)]
pub use peer::{EtcdPeer, EtcdctlPeer};
pub use proxy::{
    Cut, Direction, Fate, Fault, FaultProxy, Frame, FramePattern, Gate, Injection, Opcode,
};
#[doc(hidden)]
pub use recipes_core::SessionOptions;
pub use recipes_testing::{
    Checkpoint, Durability, EtcdCluster, EtcdServer, EtcdServerBuilder, Faults, Lost,
    MariaDbServer, MariaDbServerBuilder, MemoryBuilder, MemoryEnsemble, MemoryError, MemoryOptions,
    Operation, PostgresServer, PostgresServerBuilder, RedisServer, RedisServerBuilder, Request,
    ServerBuilder, ServerError, StoreClock, ZooKeeperEnsemble, ZooKeeperServer, contract,
    lock_contract,
};
pub use redis_cluster::{RedisCluster, slot_of};
pub use test_ensemble::{Place, TestEnsemble, own, shared};
pub use txn_log::{
    Change, Life, LockNodes, LogError, LogRecord, Removal, TransactionLog, WritesLog,
};

/// How much of something that is drawn at random or repeated: what this environment variable asks for, or
/// the default, which suits a desk.
///
/// # Panics
/// If the variable is no number.
#[must_use]
pub fn asked_for(variable: &str, default: usize) -> usize {
    let Ok(asked) = std::env::var(variable) else {
        return default;
    };
    match asked.parse() {
        Ok(asked) => asked,
        Err(error) => panic!("{variable}={asked}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use recipes_testing::internal::ZOOKEEPER;

    /// The double writes them down again, as it must not know a client.
    #[test]
    fn double_has_the_traits_of_the_store_that_it_stands_for() {
        assert_eq!(ZOOKEEPER, recipes_zookeeper::TRAITS);
    }
}
