//! Sessions that cannot watch all that their waiters wait for. Those without room wait all the same.

use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use lock_recipes::{
    AcquireError, InterProcessMutex, InterProcessReadWriteLock, Member, MultiLock, MutexGuard,
    Session,
};
use test_rig::{MemoryEnsemble, Operation};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};

const PATH: &str = "/locks/orders";
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);
/// A node that is not watched is looked at within this time, even after a quiet time.
const LOOKED_AT: Duration = Duration::from_secs(6);
/// Room for the watches of one waiter: 5/16 of this are 250 bytes.
const ONE: usize = 800;

fn ensemble(watch_bytes: usize) -> MemoryEnsemble {
    MemoryEnsemble::builder().watch_bytes(watch_bytes).build()
}

fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}

/// Starts an acquire and waits until it is in the queue.
async fn queued(
    memory: &MemoryEnsemble,
    lock: InterProcessMutex,
) -> JoinHandle<Result<MutexGuard, AcquireError>> {
    let path = lock.path().to_owned();
    let before = memory.children(&path).len();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while memory.children(&path).len() == before {
        yield_now().await;
    }
    settle().await;
    waiting
}

async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

fn node_of(guard: &MutexGuard) -> String {
    guard.members().remove(0).node_path
}

async fn granted(waiting: JoinHandle<Result<MutexGuard, AcquireError>>) -> MutexGuard {
    let granted = timeout(PATIENCE, waiting).await.unwrap();
    granted.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiter_without_room_watches_nothing_and_is_granted() {
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    let waiting = queued(&memory, mutex(&ours, PATH)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(memory.watch_count(), 0);
    assert!(!waiting.is_finished());
    let released = Instant::now();
    held.release().await.unwrap();
    let guard = granted(waiting).await;
    assert!(released.elapsed() < LOOKED_AT, "{:?}", released.elapsed());
    assert!(memory.exists(&node_of(&guard)));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn room_goes_to_the_next_waiter() {
    let memory = ensemble(ONE);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(queued(&memory, mutex(&ours, PATH)).await);
    }
    let released = Instant::now();
    held.release().await.unwrap();
    let mut tokens = Vec::new();
    for waiting in waiting {
        let guard = granted(waiting).await;
        tokens.push(guard.fencing_token());
        guard.release().await.unwrap();
    }
    assert!(tokens.is_sorted(), "{tokens:?}");
    // Each watches by the time it is the first, so no look is waited for.
    assert!(released.elapsed() < LOOKED_AT, "{:?}", released.elapsed());
}

/// The looks at its own node and at the one ahead come in any order, so neither is a grant.
#[tokio::test(start_paused = true)]
async fn waiter_without_room_whose_node_was_deleted_is_not_granted_on_it() {
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    for pause in 0..20 {
        let held = mutex(&theirs, PATH).acquire().await.unwrap();
        let waiting = queued(&memory, mutex(&ours, PATH)).await;
        let names = memory.children(PATH);
        let theirs_node = node_of(&held);
        let own = names
            .iter()
            .map(|name| format!("{PATH}/{name}"))
            .find(|node| *node != theirs_node);
        sleep(Duration::from_millis(311 * pause)).await;
        memory.delete(&own.clone().unwrap()).unwrap();
        held.release().await.unwrap();
        let guard = granted(waiting).await;
        assert_ne!(Some(node_of(&guard)), own);
        assert!(memory.exists(&node_of(&guard)));
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_without_room_whose_node_was_deleted_joins_again() {
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    let waiting = queued(&memory, mutex(&ours, PATH)).await;
    let before = memory.children(PATH);
    for name in &before {
        let node = format!("{PATH}/{name}");
        if node != node_of(&held) {
            memory.delete(&node).unwrap();
        }
    }
    sleep(LOOKED_AT).await;
    let after = memory.children(PATH);
    assert_eq!(after.len(), 2);
    assert_ne!(after, before);
    held.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiters_without_room_survive_a_reconnect() {
    let memory = ensemble(ONE);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(queued(&memory, mutex(&ours, PATH)).await);
    }
    let places = memory.children(PATH);
    let id = ours.session_id().unwrap();
    for _ in 0..3 {
        assert!(memory.disconnect(id));
        sleep(Duration::from_secs(2)).await;
        assert!(memory.reconnect(id));
        sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(memory.children(PATH), places);
    assert!(memory.disconnect(id));
    held.release().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(memory.reconnect(id));
    for waiting in waiting {
        granted(waiting).await.release().await.unwrap();
    }
    assert_eq!(ours.epoch(), 1);
}

/// As if the node ahead could not be watched.
#[tokio::test(start_paused = true)]
async fn node_ahead_that_may_not_be_seen_ends_the_wait() {
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    memory.deny(&node_of(&held), Operation::List);
    let refused = timeout(PATIENCE, mutex(&ours, PATH).acquire())
        .await
        .unwrap();
    let error = refused.unwrap_err();
    assert!(
        matches!(error, AcquireError::NotAuthorized { .. }),
        "{error}"
    );
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn sets_and_readers_wait_without_room() {
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let paths = ["/locks/a", "/locks/b", "/locks/c"];
    let locks = paths.map(|path| mutex(&theirs, path));
    let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
    let shared = InterProcessReadWriteLock::new(&theirs, "/locks/shared").unwrap();
    let writing = shared.write().await.unwrap();
    let set = MultiLock::new(&ours, paths.map(Member::mutex)).unwrap();
    let readers = InterProcessReadWriteLock::new(&ours, "/locks/shared").unwrap();
    let (all, one, other, ()) =
        tokio::join!(set.acquire(), readers.read(), readers.read(), async {
            for guard in held {
                sleep(Duration::from_secs(3)).await;
                guard.unwrap().release().await.unwrap();
            }
            writing.release().await.unwrap();
        });
    let all = all.unwrap();
    for member in all.members() {
        assert!(memory.exists(&member.node_path));
    }
    all.release().await.unwrap();
    one.unwrap().release().await.unwrap();
    other.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiter_that_gives_up_leaves_nothing_to_look_at() {
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    let lock = mutex(&ours, PATH);
    let given_up = lock.acquire().timeout(Duration::from_secs(20)).await;
    assert!(given_up.unwrap_err().is_busy());
    let mut dropped = Box::pin(async { lock.acquire().await });
    assert!(poll!(dropped.as_mut()).is_pending());
    sleep(LOOKED_AT).await;
    assert!(poll!(dropped.as_mut()).is_pending());
    drop(dropped);
    sleep(LOOKED_AT).await;
    memory.reset_requests();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(memory.request_count(Operation::List), 0);
    assert_eq!(memory.request_count(Operation::ListAll), 0);
    assert_eq!(memory.children(PATH).len(), 1);
    held.release().await.unwrap();
}

/// One request looks at many nodes.
#[tokio::test(start_paused = true)]
async fn looks_share_requests() {
    const WAITERS: usize = 500;
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let paths: Vec<_> = (0..WAITERS).map(|it| format!("/locks/{it}")).collect();
    let locks: Vec<_> = paths.iter().map(|path| mutex(&theirs, path)).collect();
    let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
    let mut waiting = Vec::new();
    for path in &paths {
        waiting.push(queued(&memory, mutex(&ours, path)).await);
    }
    sleep(Duration::from_secs(30)).await;
    memory.reset_requests();
    sleep(Duration::from_secs(60)).await;
    let looks = memory.request_count(Operation::ListAll);
    // Two nodes for each, 256 in a request, every 5 s.
    assert!((1..=60).contains(&looks), "{looks}");
    assert_eq!(memory.request_count(Operation::Watch), 0);
    for (guard, waiting) in held.into_iter().zip(waiting) {
        guard.unwrap().release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    }
}

/// The client keeps a request that is made without a connection until there is one. So a round of
/// looks may last as long as an outage, and the store is not slow afterwards.
#[tokio::test(start_paused = true)]
async fn waiter_without_room_is_granted_soon_after_an_outage() {
    const OUTAGE: Duration = Duration::from_secs(10);
    let memory = ensemble(0);
    let (ours, theirs) = (memory.session(), memory.session());
    let held = mutex(&theirs, PATH).acquire().await.unwrap();
    let waiting = queued(&memory, mutex(&ours, PATH)).await;
    sleep(Duration::from_secs(30)).await;
    let id = ours.session_id().unwrap();
    assert!(memory.disconnect(id));
    sleep(OUTAGE / 2).await;
    held.release().await.unwrap();
    sleep(OUTAGE / 2).await;
    assert!(memory.reconnect(id));
    let back = Instant::now();
    let guard = granted(waiting).await;
    assert_eq!(ours.epoch(), 1);
    assert!(back.elapsed() < LOOKED_AT, "free for {:?}", back.elapsed());
    guard.release().await.unwrap();
}

/// Waiters of one lock have all the room. A contender for another lock, which is free after a
/// moment, has less time than passes between two looks.
#[tokio::test(start_paused = true)]
async fn contender_without_room_is_not_told_that_a_free_lock_is_busy() {
    const TURN: Duration = Duration::from_millis(100);
    const TIME: Duration = Duration::from_secs(2);
    let memory = ensemble(ONE);
    let (ours, theirs) = (memory.session(), memory.session());
    let slow = mutex(&theirs, "/locks/slow").acquire().await.unwrap();
    let _crowd = [
        queued(&memory, mutex(&ours, "/locks/slow")).await,
        queued(&memory, mutex(&ours, "/locks/slow")).await,
    ];
    sleep(Duration::from_secs(60)).await;
    let mut told = Vec::new();
    for _ in 0..10 {
        let held = mutex(&theirs, PATH).acquire().await.unwrap();
        let lock = mutex(&ours, PATH);
        let acquiring = tokio::spawn(async move { lock.acquire().timeout(TIME).await });
        sleep(TURN).await;
        held.release().await.unwrap();
        match acquiring.await.unwrap() {
            Ok(guard) => drop(guard.release().await.unwrap()),
            Err(error) => told.push(error.to_string()),
        }
        sleep(Duration::from_secs(21)).await;
    }
    assert!(told.is_empty(), "{} of 10: {}", told.len(), told[0]);
    slow.release().await.unwrap();
}
