//! Test doubles and real servers for `lock-recipes` and the services that use it.
//!
//! [`MemoryEnsemble`] runs in the test's own process, in milliseconds and without Java. It is the
//! right start for a service's unit tests. [`ZooKeeperServer`] and [`ZooKeeperEnsemble`] start real
//! servers on loopback, in about a second, for everything that a double cannot prove.
//! [`RedisServer`] starts Redis, in milliseconds; [`PostgresServer`] and [`MariaDbServer`] start
//! databases, in a tenth of a second. [`FaultProxy`] breaks the connections to them at chosen frames.
//! [`CuratorPeer`] runs the recipes of Apache Curator, to contend with ours, and [`ForeignPeer`] the
//! locks of Go and Python.

pub mod contract;
pub mod history;
mod jute;
mod memory;
mod peer;
mod proxy;
mod server;
mod test_ensemble;
mod txn_log;

pub use memory::{
    Checkpoint, Faults, Lost, MemoryBuilder, MemoryEnsemble, MemoryError, Operation, Request,
};
pub use peer::{
    CandidateKind, CuratorPeer, Disorder, ForeignPeer, Grant, GrantKind, Naming, PeerError,
    PeerStat, ReadWriteGrants, ReadWriteMix, RedissonPeer, check_grants,
};
pub use proxy::{
    Cut, Direction, Fate, Fault, FaultProxy, Frame, FramePattern, Gate, Injection, Opcode,
};
pub use server::{
    Durability, MariaDbServer, MariaDbServerBuilder, PostgresServer, PostgresServerBuilder,
    RedisServer, RedisServerBuilder, ServerBuilder, ServerError, StoreClock, ZooKeeperEnsemble,
    ZooKeeperServer,
};
pub use test_ensemble::TestEnsemble;
pub use txn_log::{Change, Life, LockNodes, LogError, LogRecord, Removal, TransactionLog};
