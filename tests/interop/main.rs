//! Next to other clients on one server.
//!
//! | file | question it answers |
//! |---|---|
//! | `curator` | do Apache Curator and this library exclude each other? |
//! | `etcd` | do the locks and elections of Go and etcdctl and this library, on etcd? |
//! | `go`, `python` | do the locks of go-zookeeper and kazoo and this library exclude each other? |
//! | `one_queue` | do all of them together? |
//! | `peers_fail_here` | which faults do other lock implementations show where this one does not? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/again.rs"]
#[expect(
    dead_code,
    reason = "its other users signal processes and wait for their end"
)]
mod again;
mod curator;
#[path = "../support/each_recipe.rs"]
mod each_recipe;
mod etcd;
mod foreign;
mod go;
mod one_queue;
mod peers_fail_here;
mod python;
#[path = "../support/wires.rs"]
#[expect(dead_code, reason = "the tests on Redis use the rest")]
mod wires;

use test_rig::CuratorPeer;

/// Whether the peer's version is one before the release that fixed a fault. Which release that was
/// is known from Curator's history, and the tests show it on both sides of it.
pub(crate) fn is_older_than(peer: &CuratorPeer, fixed_in: [u32; 2]) -> bool {
    let version = peer.curator_version();
    let numbers: Vec<u32> = version
        .split(['.', '-'])
        .take(2)
        .map(|it| it.parse().unwrap())
        .collect();
    numbers < fixed_in.to_vec()
}
