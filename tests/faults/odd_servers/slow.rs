//! Servers that are slow, and frames that come in pieces or all at once.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    AcquireError, DistributedLock, Error, InterProcessMutex, InterProcessReadWriteLock, LostReason,
    Member, MultiLock, ReleaseOutcome, Session,
};
use test_rig::{Direction, Fault, FaultProxy, Opcode, ZooKeeperServer};
use tokio::time::{Instant, timeout};

use super::{LONG, PATIENCE, await_queue, children, connect, granted, mutex, proxy, waiter};

const WAYS: [Direction; 2] = [Direction::ToServer, Direction::FromServer];

/// Splits every frame into pieces of one byte.
fn crumble(proxy: &FaultProxy, pause: Duration) {
    for way in WAYS {
        let split = Fault::Split { bytes: 1, pause };
        drop(proxy.on(way).each().then(split));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_second_for_each_answer_costs_time_and_no_lock() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let operator = server.client().await.unwrap();
    // A lease is valid for half of it.
    let session_timeout = Duration::from_secs(36);
    let session = connect(&proxy.connect_string(), session_timeout).await;
    proxy.set_latency(Duration::from_millis(250));
    let held = mutex(&session).acquire().await.unwrap();
    let lost = timeout(session_timeout * 2 / 3, held.lost()).await;
    assert!(lost.is_err() && held.is_valid(), "{lost:?}");

    let waits = Duration::from_millis(100);
    let late = mutex(&session).acquire().timeout(waits).await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    await_queue(&operator, 1).await;
    let waiter = waiter(&session);
    await_queue(&operator, 2).await;
    let token = held.fencing_token();
    held.release().await.unwrap();
    let next = granted(waiter).await;
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    assert_eq!(session.epoch(), 1);
    await_queue(&operator, 0).await;
}

/// An answer that comes later than a lease is valid for proves nothing any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_slower_than_the_lease_is_no_grant_and_a_loss_that_is_told_in_time() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let operator = server.client().await.unwrap();
    let slow = connect(&proxy.connect_string(), Duration::from_secs(6)).await;
    let others = connect(&server.connect_string(), LONG).await;
    let held = Arc::new(mutex(&slow).acquire().await.unwrap());
    let (waiter, theirs) = (mutex(&others), Arc::clone(&held));
    let waiter = tokio::spawn(async move {
        let granted = waiter.acquire().await.unwrap();
        (theirs.is_valid(), granted)
    });
    await_queue(&operator, 2).await;

    // A round trip takes 4.2 s, and a lease of this session is valid for 3 s.
    proxy.set_latency(Duration::from_millis(2100));
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    let free = InterProcessMutex::new(&slow, "/locks/free").unwrap();
    let late = free.acquire().timeout(Duration::from_secs(12)).await;
    let late = late.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    let (is_told_late, granted) = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(!is_told_late && !held.is_valid());
    granted.release().await.unwrap();

    proxy.set_latency(Duration::ZERO);
    let again = free.acquire().timeout(PATIENCE).await.unwrap();
    again.release().await.unwrap();
    await_queue(&operator, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_without_an_answer_says_so_within_the_session_and_goes_on() {
    let session_timeout = Duration::from_secs(12);
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let operator = server.client().await.unwrap();
    let session = connect(&proxy.connect_string(), session_timeout).await;
    let held = mutex(&session).acquire().await.unwrap();
    WAYS.into_iter().for_each(|way| proxy.stall(way));
    let asked = Instant::now();
    let released = timeout(PATIENCE, held.release()).await.unwrap();
    let waited = asked.elapsed();
    assert!(
        matches!(released, Ok(ReleaseOutcome::Pending)),
        "{released:?}"
    );
    assert!(waited < session_timeout, "{waited:?}");
    await_queue(&operator, 1).await;
    proxy.restore();
    await_queue(&operator, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trickle_of_bytes_is_a_slow_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let operator = server.client().await.unwrap();
    let session = connect(&proxy.connect_string(), LONG).await;
    let others = connect(&server.connect_string(), LONG).await;
    crumble(&proxy, Duration::from_millis(10));
    let held = mutex(&session).acquire().await.unwrap();
    let waiter = waiter(&others);
    await_queue(&operator, 2).await;
    held.verify().await.unwrap();
    let waits = Duration::from_millis(100);
    let late = mutex(&session).acquire().timeout(waits).await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    assert_eq!(session.epoch(), 1);
    await_queue(&operator, 0).await;
}

/// One of each kind, on paths of their own.
fn locks(session: &Session) -> [Box<dyn DistributedLock>; 4] {
    let read_write = |path| InterProcessReadWriteLock::new(session, path).unwrap();
    let members = ["/locks/a", "/locks/b", "/locks/c"].map(Member::mutex);
    [
        Box::new(InterProcessMutex::new(session, "/locks/m").unwrap()),
        Box::new(read_write("/locks/r").read_lock()),
        Box::new(read_write("/locks/w").write_lock()),
        Box::new(MultiLock::new(session, members).unwrap()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_in_single_bytes_make_no_difference_to_any_lock() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    // Starting with the handshake.
    crumble(&proxy, Duration::from_millis(1));
    let session = connect(&proxy.connect_string(), LONG).await;
    let operator = server.client().await.unwrap();
    for lock in locks(&session) {
        let held = lock.acquire().await.unwrap();
        held.verify().await.unwrap();
        held.release().await.unwrap();
    }
    let again = locks(&session).into_iter().map(|lock| async move {
        lock.acquire().await.unwrap().release().await.unwrap();
    });
    join_all(again).await;
    for path in ["m", "r", "w", "a", "b", "c"] {
        let left = children(&operator, &format!("/locks/{path}")).await;
        assert!(left.is_empty(), "{path}: {left:?}");
    }
    assert_eq!(session.epoch(), 1);
}

/// Frames that were kept during a stall arrive together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_arrive_all_at_once_make_no_difference() {
    const LOCKS: usize = 20;
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), LONG).await;
    let lock = |number| InterProcessMutex::new(&session, &format!("/locks/{number}")).unwrap();
    for number in 0..LOCKS {
        let held = lock(number).acquire().await.unwrap();
        held.release().await.unwrap();
    }
    proxy.clear_log();
    proxy.stall(Direction::FromServer);
    let acquiring: Vec<_> = (0..LOCKS)
        .map(|number| {
            let lock = lock(number);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    let creates = proxy.on(Direction::ToServer).opcode(Opcode::Create);
    creates.nth(LOCKS).seen().await;
    assert!(acquiring.iter().all(|it| !it.is_finished()));
    proxy.restore();
    for held in acquiring {
        granted(held).await.release().await.unwrap();
    }
    assert_eq!(session.epoch(), 1);
}
