//! Test doubles and real servers for `zookeeper-recipes`.

mod memory;

pub use memory::{Faults, Lost, MemoryBuilder, MemoryEnsemble, MemoryError, Operation, Request};
