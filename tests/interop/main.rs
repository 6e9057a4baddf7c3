//! Next to other clients on one server.
//!
//! | file | question it answers |
//! |---|---|
//! | `curator` | do Apache Curator and this library exclude each other? |
//! | `peers_fail_here` | which faults do other lock implementations show where this one does not? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod curator;
mod peers_fail_here;
