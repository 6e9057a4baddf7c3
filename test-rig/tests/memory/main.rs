//! The ensemble in memory does what its documentation says. These tests need no server.
//!
//! | file | question it answers |
//! |---|---|
//! | `nodes` | how are znodes created, read, changed, numbered and deleted? |
//! | `sessions` | how does a session begin, expire, close, and what goes with it? |
//! | `watches` | when does a watch fire, and how often? |
//! | `transactions` | does a transaction happen as a whole? |
//! | `access` | who may do what? |
//! | `requests` | when does a request take effect, and when does its reply arrive? |
//! | `in_flight` | what happens to requests that take time to reach the server? |
//! | `faults` | what does each fault do, on request or drawn from the seed? |
//! | `leaders` | what do deposed leaders, slow disks and machines that sleep show? |
//! | `on_redis` | what does a store as that on Redis do, and what does it forget? |
//! | `replay` | does the same seed give the same run? |
//!
//! `memory_in_step` compares it with a real server.

#![allow(
    clippy::unwrap_used,
    reason = "clippy exempts only functions that are marked as tests"
)]

mod access;
mod common;
mod faults;
mod in_flight;
mod leaders;
mod nodes;
mod on_redis;
mod replay;
mod requests;
mod sessions;
mod transactions;
mod watches;
