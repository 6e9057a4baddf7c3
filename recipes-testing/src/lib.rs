//! Test doubles and real servers for `zookeeper-recipes` and the services that use it.

mod memory;
mod peer;

pub use memory::{Faults, Lost, MemoryBuilder, MemoryEnsemble, MemoryError, Operation, Request};
pub use peer::{
    CuratorPeer, Disorder, Grant, GrantKind, PeerError, PeerStat, ReadWriteGrants, ReadWriteMix,
    check_grants,
};
