//! Next to other clients on one server.
//!
//! | file | question it answers |
//! |---|---|
//! | `curator` | do Apache Curator and this library exclude each other? |
//! | `go`, `python` | do the locks of go-zookeeper and kazoo and this library exclude each other? |
//! | `one_queue` | do all of them together? |
//! | `peers_fail_here` | which faults do other lock implementations show where this one does not? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod curator;
mod foreign;
mod go;
mod one_queue;
mod peers_fail_here;
mod python;
