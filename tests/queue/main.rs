//! How contenders wait, and how a lock goes from one to the next.
//!
//! | file | question it answers |
//! |---|---|
//! | `directory` | which nodes of a directory count, and in which order? |
//! | `hand_off` | what does a release cost, and which tasks does it wake? |
//! | `local_handoffs` | how do contenders of one process share a node of the queue? |
//! | `shared_reads` | how do readers of one session share a node? |
//! | `releases` | what becomes of each lock when many are released at once? |
//! | `pending` | what does a release say that has no answer? |
//! | `vacancy` | when does an acquire need no listing? |
//! | `costs` | which requests and transactions does each operation take on a real server? |
//! | `costs_on_etcd` | what does a server of etcd count for it? |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod costs;
mod costs_on_etcd;
mod directory;
mod hand_off;
mod local_handoffs;
mod pending;
mod releases;
mod shared_reads;
mod vacancy;
