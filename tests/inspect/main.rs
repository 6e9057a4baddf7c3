//! Inspection of locks: one, all below a node, the waits between contenders, and whose sessions are silent; and sessions
//! that only read.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod bounds;
#[path = "../support/crashed.rs"]
mod crashed;
mod deadlocks;
mod family;
mod front;
mod one;
mod reading;
mod refused;
mod scan;
mod silent;

use std::future::Future;

use lock_recipes::{Contender, Inspection, Standing};
use peak_alloc::PeakAlloc;
use test_rig::TestEnsemble;
use tokio::task::JoinHandle;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The names of nodes, and `holds`, `stranger` or the nodes that they wait for.
fn told(lock: &Inspection) -> Vec<(String, String)> {
    let name = |path: &str| path.rsplit_once('/').unwrap().1.to_owned();
    let standing = |contender: &Contender| match &contender.standing {
        Standing::Holds => "holds".to_owned(),
        Standing::Stranger => "stranger".to_owned(),
        Standing::WaitsFor(ahead) => {
            let names: Vec<_> = ahead.iter().map(|it| name(it)).collect();
            names.join(" ")
        }
    };
    let contenders = lock.contenders.iter();
    contenders
        .map(|it| (name(&it.participant.path), standing(it)))
        .collect()
}

/// Starts a contender, and waits until its node is the only new one. Returns the name of that node.
async fn enqueue<T: Send + 'static>(
    ensemble: &TestEnsemble,
    path: &str,
    contender: impl Future<Output = T> + Send + 'static,
) -> (String, JoinHandle<T>) {
    let before = ensemble.children(path).await;
    let contender = tokio::spawn(contender);
    let after = ensemble.await_children(path, before.len() + 1).await;
    let name = after.into_iter().find(|it| !before.contains(it)).unwrap();
    (name, contender)
}
