//! Contenders on several threads, and on several runtimes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, poll};
use lock_recipes::{
    AcquireError, Error, FencingToken, InterProcessMutex, MutexGuard, ReleaseOutcome, Session,
    ZooKeeper,
};
use test_rig::{Faults, MemoryEnsemble, TestEnsemble};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{PATH, mutex};

const HANDOFFS: u32 = 3;
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(30);

/// The present holder, and the highest token so far, judged independently of the lock.
#[derive(Default)]
struct Judge {
    inside: usize,
    highest: Option<FencingToken>,
    visits: usize,
    handed_on: usize,
}

async fn contend_and_give_up(lock: InterProcessMutex, seed: u64, judge: Arc<Mutex<Judge>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        let mut acquire = lock.acquire().boxed();
        if random.u8(..3) == 0 {
            // It is polled this many times and then dropped, whatever it has by then.
            for _ in 0..random.u8(1..6) {
                if poll!(acquire.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            continue;
        }
        let guard = acquire.await.unwrap();
        {
            let mut judge = judge.lock().unwrap();
            judge.inside += 1;
            assert_eq!(judge.inside, 1, "two are inside");
            assert!(judge.highest < Some(guard.fencing_token()));
            judge.highest = Some(guard.fencing_token());
            assert!(guard.fencing_token().handoff() <= HANDOFFS);
            judge.visits += 1;
            judge.handed_on += usize::from(guard.fencing_token().handoff() > 0);
        }
        tokio::task::yield_now().await;
        judge.lock().unwrap().inside -= 1;
        match random.u8(..3) {
            0 => drop(guard),
            1 => drop(poll!(guard.release().boxed().as_mut())),
            _ => assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released),
        }
    }
}

/// Other threads run between any two steps of a contender.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contenders_on_several_threads_that_give_up_at_any_moment_exclude_each_other() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let sessions: Vec<_> = (0..3).map(|_| memory.session()).collect();
    let judge = Arc::new(Mutex::new(Judge::default()));
    let tasks = (0..24).map(|number| {
        let lock = mutex(&sessions[number % 3], HANDOFFS);
        let seed = seed.wrapping_add(number as u64);
        tokio::spawn(contend_and_give_up(lock, seed, Arc::clone(&judge)))
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let visits = judge.lock().unwrap().visits;
    assert!(visits > 24 * 300 / 2, "{visits}");
    assert!(judge.lock().unwrap().handed_on > visits / 4);
    ensemble.await_children(PATH, 0).await;
    for session in &sessions {
        mutex(session, HANDOFFS)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// Acquires the lock and hands it on, and reports the node, until it is notified to stop.
async fn hand_on(lock: InterProcessMutex, grants: watch::Sender<FencingToken>) {
    while !grants.is_closed() {
        let guard = lock.acquire().await.unwrap();
        grants.send_replace(guard.fencing_token());
        tokio::task::yield_now().await;
        drop(guard);
    }
}

/// The holder of a removed node is notified, even if the node is handed on at that moment.
/// Otherwise the node would be handed on for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn node_that_is_removed_while_it_is_handed_on_is_lost() {
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (ours, others) = (memory.session(), memory.session());
    let other = mutex(&others, 0);
    let mut held = other.acquire().await.unwrap();
    let (grants, mut granted) = watch::channel(held.fencing_token());
    let tasks: Vec<_> = (0..4)
        .map(|_| tokio::spawn(hand_on(mutex(&ours, u32::MAX), grants.clone())))
        .collect();
    drop(grants);
    let mut removed = 0;
    for _ in 0..300 {
        // After another's node, so that ours is watched from the moment it holds.
        let before = held.fencing_token();
        ensemble.await_children(PATH, 2).await;
        let next = other.clone();
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        ensemble.await_children(PATH, 3).await;
        drop(held);
        let token = granted.wait_for(|token| *token > before);
        let czxid = timeout(PATIENCE, token).await.unwrap().unwrap().as_i64();
        let nodes = memory.children(PATH).into_iter();
        let mut nodes = nodes.map(|name| format!("{PATH}/{name}"));
        let is_ours = |node: &String| memory.stat(node).is_some_and(|it| it.czxid == czxid);
        // It is released, and not handed on, if for a moment no other task waits.
        if let Some(node) = nodes.find(is_ours) {
            removed += usize::from(memory.delete(&node).is_ok());
        }
        held = timeout(PATIENCE, next).await.unwrap().unwrap();
    }
    assert!(removed > 100, "{removed}");
    drop(granted);
    drop(held);
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

type Outcome = Result<MutexGuard, Error>;

/// Lets a contender on another runtime begin to wait, between two tries of a request, and give up.
/// The next contender goes on with its attempt.
fn go_on_after_another_runtime(ends: bool) -> Outcome {
    let (here, there) = (runtime(), runtime());
    let memory = MemoryEnsemble::new();
    let session: Session = here.block_on(async { memory.session() });
    let lock = mutex(&session, HANDOFFS);
    here.block_on(async { lock.acquire().await.unwrap().release().await.unwrap() });
    memory.set_faults(Faults {
        lost_before_per_mille: 1000,
        ..Faults::default()
    });
    let mut first = lock.acquire().timeout(Duration::from_millis(300)).boxed();
    assert!(there.block_on(async { poll!(first.as_mut()) }).is_pending());
    let second = lock.clone();
    let second = here.spawn(async move { second.acquire().await });
    let timed_out = there.block_on(first).unwrap_err();
    assert!(
        matches!(timed_out, Error::Acquire(AcquireError::TimedOut { .. })),
        "{timed_out}"
    );
    let there = (!ends).then_some(there);
    memory.set_faults(Faults::default());
    let second = here.block_on(async { timeout(PATIENCE, second).await });
    drop(there);
    second.expect("nobody wakes it").unwrap()
}

#[test]
fn attempt_is_gone_on_with_though_the_runtime_that_began_it_does_nothing() {
    drop(go_on_after_another_runtime(false).unwrap());
}

#[test]
fn attempt_is_gone_on_with_though_the_runtime_that_began_it_is_gone() {
    drop(go_on_after_another_runtime(true).unwrap());
}

/// A user's function may panic inside an attempt. The panic reaches the task that polls it.
#[tokio::test]
async fn attempt_that_panics_is_nobody_elses() {
    let memory = MemoryEnsemble::new();
    let panics = Arc::new(Mutex::new(false));
    let does = Arc::clone(&panics);
    let options = ZooKeeper::builder().acl_by_path(move |_| {
        assert!(!*does.lock().unwrap(), "as it is asked to");
        None
    });
    let session = memory.session_with(options);
    let lock = mutex(&session, HANDOFFS);
    let held = lock.acquire().await.unwrap();
    *panics.lock().unwrap() = true;
    let (first, second) = (lock.clone(), lock.clone());
    let first = tokio::spawn(first.acquire());
    while memory.children(PATH).len() > 1 {
        tokio::task::yield_now().await;
    }
    memory.delete(&held.members()[0].node_path).unwrap();
    held.lost().await;
    assert!(first.await.unwrap_err().is_panic());
    *panics.lock().unwrap() = false;
    let second = tokio::spawn(second.acquire());
    drop(timeout(PATIENCE, second).await.unwrap().unwrap().unwrap());
}
