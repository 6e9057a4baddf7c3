//! Permits of a semaphore: how many are held at a time, and in which order they are granted.
//!
//! | file | question it answers |
//! |---|---|
//! | `permits` | who gets how many, and what does a release give to whom? |
//! | `numbers` | what if the number of permits changes, or processes disagree? |
//! | `refused` | which input is refused before any request? |
//! | `costs` | which requests does a permit take? |
//! | `many` | what do many permits at once take? |
//! | `intrusions` | what if others delete nodes, or make some of their own? |
//! | `rush` | do many contenders keep to the number, with faults? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod costs;
mod intrusions;
mod many;
mod numbers;
mod permits;
mod refused;
mod rush;

use std::time::Duration;

use lock_recipes::{InterProcessSemaphore, SemaphorePermit, Session};
use test_rig::TestEnsemble;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const PATH: &str = "/limits/exports";
const LOCKS: &str = "/limits/exports/locks";
const LEASES: &str = "/limits/exports/leases";
/// What takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(300);

fn semaphore(session: &Session, permits: usize) -> InterProcessSemaphore {
    InterProcessSemaphore::new(session, PATH, permits).unwrap()
}

async fn acquired(semaphore: &InterProcessSemaphore, permits: usize) -> SemaphorePermit {
    let acquire = semaphore.acquire_many(permits).unwrap();
    timeout(PATIENCE, acquire).await.unwrap().unwrap()
}

/// A contender for so many permits, which stands in the queue when this returns. Its node is told by
/// its name: whoever was granted permits just now may still be leaving the queue.
async fn queued(
    ensemble: &TestEnsemble,
    semaphore: &InterProcessSemaphore,
    permits: usize,
) -> JoinHandle<SemaphorePermit> {
    let others = ensemble.children(LOCKS).await;
    let semaphore = semaphore.clone();
    let contender = tokio::spawn(async move { acquired(&semaphore, permits).await });
    ensemble
        .until("a new node in the queue", async || {
            let nodes = ensemble.children(LOCKS).await;
            nodes.iter().any(|it| !others.contains(it)).then_some(())
        })
        .await;
    contender
}

async fn granted(contender: JoinHandle<SemaphorePermit>) -> SemaphorePermit {
    timeout(PATIENCE, contender).await.unwrap().unwrap()
}

/// No node of anybody is left.
async fn nothing_is_left(ensemble: &TestEnsemble) {
    ensemble.await_children(LOCKS, 0).await;
    ensemble.await_children(LEASES, 0).await;
}

/// These requests write nothing. The operator's own sessions end some time later, and a server reaps
/// containers, each by a transaction. So they are made again until none came in between.
async fn writes_nothing(ensemble: &TestEnsemble, mut requests: impl AsyncFnMut()) {
    let is_read_only = async || {
        let before = ensemble.zxid().await;
        requests().await;
        (ensemble.zxid().await == before).then_some(())
    };
    ensemble
        .until("requests without a transaction", is_read_only)
        .await;
}
