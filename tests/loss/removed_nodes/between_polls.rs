//! News that arrive while an attempt is being polled.
//!
//! The attempt checks its own node first, and then the node ahead. Both may be removed in between.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::{hint, thread};

use lock_recipes::{InterProcessMutex, MutexGuard};
use test_rig::{MemoryEnsemble, Operation, Request, asked_for};
use tokio::time::Instant;

use super::{PATIENCE, mutex, node_of};

const PATH: &str = "/locks/orders";

/// Polls without a pause, and counts the polls. With a waker, the poll would come too late for this
/// test.
fn acquire_busily(lock: &InterProcessMutex, polls: &AtomicU64) -> MutexGuard {
    let mut acquire = pin!(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(granted) = acquire.as_mut().poll(&mut context) {
            return granted.unwrap();
        }
        polls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Spins until the condition is true, or fails the test.
fn spin_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// The other node of a queue of two.
fn second_of(memory: &MemoryEnsemble, first: &str) -> Option<String> {
    let names = memory.children(PATH).into_iter();
    let mut paths = names.map(|name| format!("{PATH}/{name}"));
    paths.find(|path| path != first)
}

/// Waits until the second contender watches both nodes and has been polled since.
fn until_watched(memory: &MemoryEnsemble, first: &str, polls: &AtomicU64) -> String {
    let mut own = None;
    spin_until("a waiter", || {
        own = second_of(memory, first);
        own.is_some()
    });
    let own = own.unwrap();
    let watched = [first.to_owned(), own.clone()];
    spin_until("two watches", || {
        let is_watch = |request: &Request| {
            request.operation == Operation::Watch && watched.contains(&request.path)
        };
        memory.requests().iter().filter(|it| is_watch(it)).count() >= 2
    });
    let before = polls.load(Ordering::Relaxed);
    spin_until("polls", || polls.load(Ordering::Relaxed) > before + 8);
    own
}

/// Removes a waiter's node and then the one ahead of it. Returns the waiter's.
fn remove_both(
    memory: &MemoryEnsemble,
    first: &str,
    polls: &AtomicU64,
    pauses: [u32; 2],
) -> String {
    let own = until_watched(memory, first, polls);
    for (path, pause) in [own.as_str(), first].into_iter().zip(pauses) {
        (0..pause).for_each(|_| hint::spin_loop());
        memory.delete(path).unwrap();
    }
    own
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_node_goes_before_the_one_ahead_is_not_granted_between_two_polls() {
    let trials = asked_for("REMOVED_TRIALS", 250);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let memory = MemoryEnsemble::new();
    let (holding, waiting) = (memory.session(), memory.session());
    let mut wrong = 0;
    for _ in 0..trials {
        let held = mutex(&holding, PATH).acquire().await.unwrap();
        let ahead = node_of(&held);
        memory.reset_requests();
        let polls = Arc::new(AtomicU64::new(0));
        let (lock, counted) = (mutex(&waiting, PATH), Arc::clone(&polls));
        let waiter = tokio::task::spawn_blocking(move || acquire_busily(&lock, &counted));
        let pauses = [0; 2].map(|_| random.u32(..100));
        let operator = memory.clone();
        let operator =
            tokio::task::spawn_blocking(move || remove_both(&operator, &ahead, &polls, pauses));
        let (removed, granted) = (operator.await.unwrap(), waiter.await.unwrap());
        wrong += usize::from(node_of(&granted) == removed);
        drop((held, granted));
        while !memory.children(PATH).is_empty() {
            tokio::task::yield_now().await;
        }
    }
    println!("granted on a node that was removed before: {wrong} of {trials}");
    assert_eq!(wrong, 0, "of {trials}");
}
