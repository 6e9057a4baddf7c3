//! No grant on a node that was removed before its evidence was there.
//!
//! An operator may remove a lock node at any time, as `zklock break` does, and somebody else is
//! granted the lock then. Whoever had the node must not be: not by what it hears of others before it
//! hears of itself, nor by what its own process hands on to it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod between_polls;
mod contenders;

mod hand_offs;
mod judge;
mod on_a_server;
mod reconnect;
mod sets;

use std::time::Duration;

use zookeeper_recipes::{InterProcessMutex, MutexGuard, Session};

/// Within this, what a test waits for has happened or never will.
const PATIENCE: Duration = Duration::from_secs(120);

fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}

fn node_of(guard: &MutexGuard) -> String {
    guard.members().remove(0).node_path
}

/// So many, unless this variable says how many.
fn asked_for(variable: &str, default: usize) -> usize {
    let asked = std::env::var(variable);
    asked.map_or(default, |it| it.parse().unwrap())
}
