//! No grant on a node that was removed before its evidence was there.
//!
//! An operator may remove a lock node at any time, as `lockctl break` does. Another contender is
//! then granted the lock. The contender of the removed node must not be: neither because of news
//! about others that arrive before the news about its own node, nor by a local hand-off.

mod between_polls;
// The moments of a hand-off in memory are there too.
#[path = "../simulation/removed_nodes/contenders.rs"]
mod contenders;
#[path = "../simulation/removed_nodes/judge.rs"]
mod judge;
mod on_a_server;
mod reconnect;
mod sets;

use std::time::Duration;

use lock_recipes::{InterProcessMutex, MutexGuard, Session};

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}

fn node_of(guard: &MutexGuard) -> String {
    guard.members().remove(0).node_path
}
