//! What a holder and a waiter may conclude after a time without a connection.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use lock_recipes::{
    AcquireError, Error, GuardState, InterProcessMutex, InterProcessReadWriteLock, LostReason,
    Session, VerifyError,
};
use test_rig::{Faults, MemoryEnsemble, Operation, TestEnsemble};
use tokio::time::{Instant, timeout};

const PATH: &str = "/locks/orders";
const SHORT: Duration = Duration::from_secs(2);
/// The default in memory.
const SESSION_TIMEOUT: Duration = Duration::from_secs(12);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

#[tokio::test(start_paused = true)]
async fn holder_that_was_cut_off_is_verified_without_being_asked() {
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    // From then on only the reconnection makes the session read the node.
    ensemble.await_watches(1).await;
    let id = session.session_id().unwrap();
    memory.disconnect(id);
    let is_suspended = || matches!(held.state(), GuardState::Suspended { .. });
    let suspended = async || is_suspended().then_some(());
    ensemble.until("suspended", suspended).await;
    memory.reconnect(id);
    let is_held = async || (held.state() == GuardState::Held).then_some(());
    ensemble.until("held again", is_held).await;
}

/// Holders that need time to stop rely on it: a silent connection looks like one that is up.
#[tokio::test(start_paused = true)]
async fn loss_of_a_silent_ensemble_comes_when_it_was_foreseen() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT).build();
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    let first = held.valid_until().unwrap();
    tokio::time::sleep(SHORT).await;
    let foreseen = held.valid_until().unwrap();
    assert!(foreseen > first, "heartbeats put it off");
    assert!(foreseen > Instant::now());

    memory.stop();
    held.lost().await;
    // The timer counts whole milliseconds.
    let late = Instant::now() - foreseen;
    assert!(late <= Duration::from_millis(1), "{late:?}");
    assert_eq!(held.valid_until(), None);
}

/// What a service's own test of an outage sees.
#[tokio::test(start_paused = true)]
async fn outage_costs_locks_by_default() {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    let began = Instant::now();
    memory.stop();
    tokio::time::sleep(SHORT).await;
    let GuardState::Suspended { until } = held.state() else {
        panic!("{:?}", held.state());
    };
    let lost = held.lost().await;
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    let lasted = began.elapsed();
    assert!((SHORT..=SESSION_TIMEOUT).contains(&lasted), "{lasted:?}");
    assert!(until <= Instant::now());
    // The ensemble still has the node, and nobody else gets the lock.
    assert_eq!(memory.children(PATH).len(), 1);

    memory.restart();
    drop(held);
    let again = mutex(&session).acquire().await.unwrap();
    assert_eq!(session.epoch(), 1);
    again.release().await.unwrap();
}

/// The new leader gives a session its full timeout, as if it had just heard of it.
#[tokio::test(start_paused = true)]
async fn session_that_does_not_come_back_after_an_outage_expires_a_timeout_later() {
    let memory = MemoryEnsemble::new();
    let (gone, waits) = (memory.session(), memory.session());
    let _held = mutex(&gone).acquire().await.unwrap();
    memory.disconnect(gone.session_id().unwrap());
    memory.stop();
    tokio::time::sleep(SESSION_TIMEOUT * 2).await;
    memory.restart();
    let back = Instant::now();
    let next = mutex(&waits).acquire().await.unwrap();
    let waited = back.elapsed();
    let late = SESSION_TIMEOUT + Duration::from_secs(1);
    assert!((SESSION_TIMEOUT..late).contains(&waited), "{waited:?}");
    next.release().await.unwrap();
}

/// Only the late answer has made the session check the clock since the deadline passed.
#[tokio::test(start_paused = true)]
async fn answer_that_comes_after_the_deadline_does_not_bring_the_lock_back() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT).build();
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    let id = session.session_id().unwrap();
    memory.disconnect(id);
    tokio::time::sleep(SHORT * 2 / 5).await;
    let mut verified = pin!(held.verify());
    assert!(poll!(verified.as_mut()).is_pending());
    memory.reconnect(id);
    // One poll moves the clock, and lets no other task run.
    let mut late = pin!(tokio::time::advance(SHORT / 5));
    assert!(poll!(late.as_mut()).is_pending());
    let lost = verified.await.unwrap_err();
    assert!(
        matches!(lost, Error::Verify(VerifyError::Lost(_))),
        "{lost}"
    );
    assert!(!held.is_valid());
}

/// The store would still make the reader: the writer's node exists until the session expires there.
#[tokio::test(start_paused = true)]
async fn downgrade_ends_when_the_writer_is_lost() {
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let session = memory.session();
    let lock = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let writer = lock.write().await.unwrap();
    let (id, lost) = (session.session_id().unwrap(), writer.lost());
    memory.disconnect(id);
    let foreseen = writer.valid_until().unwrap();
    let refused = timeout(SESSION_TIMEOUT, writer.downgrade()).await;
    let refused = refused.expect("it ends").unwrap_err();
    // The timer counts whole milliseconds.
    let late = Instant::now() - foreseen;
    assert!(late <= Duration::from_millis(1), "{late:?}");
    assert!(poll!(pin!(lost)).is_ready(), "told with the holder");
    assert!(matches!(refused, Error::Acquire(AcquireError::Lost(_))));

    memory.reconnect(id);
    ensemble.await_children(PATH, 0).await;
    assert_eq!(session.epoch(), 1);
}

/// Only the late answer has made the session check the clock since the deadline passed.
#[tokio::test(start_paused = true)]
async fn reader_that_comes_after_its_writers_deadline_is_not_granted() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT).build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let session = memory.session();
    let lock = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let writer = lock.write().await.unwrap();
    let id = session.session_id().unwrap();
    memory.disconnect(id);
    tokio::time::sleep(SHORT * 2 / 5).await;
    let lost = {
        let mut reading = pin!(writer.read());
        assert!(poll!(reading.as_mut()).is_pending());
        memory.reconnect(id);
        // One poll moves the clock, and lets no other task run.
        let mut late = pin!(tokio::time::advance(SHORT / 5));
        assert!(poll!(late.as_mut()).is_pending());
        reading.await.unwrap_err()
    };
    assert!(
        matches!(lost, Error::Acquire(AcquireError::Lost(_))),
        "{lost}"
    );
    writer.release().await.unwrap_err();
    ensemble.await_children(PATH, 0).await;
}

/// The news of the deletion arrives before any heartbeat is answered.
#[tokio::test(start_paused = true)]
async fn waiter_that_hears_of_its_grant_after_its_deadline_gets_a_new_one() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT);
    let memory = memory.latency(Duration::from_millis(20)).build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (holding, waiting) = (memory.session(), memory.session());
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 2).await;
    let watches = async || (ensemble.watch_count().await >= 2).then_some(());
    ensemble.until("watches", watches).await;

    let id = waiting.session_id().unwrap();
    memory.disconnect(id);
    held.release().await.unwrap();
    tokio::time::sleep(SHORT * 4 / 5).await;
    memory.reconnect(id);
    let granted = waiter.await.unwrap().unwrap();
    assert!(granted.is_valid(), "{:?}", granted.state());
    tokio::time::sleep(SHORT).await;
    assert!(granted.is_valid(), "{:?}", granted.state());
}

/// The request on which the grant rests was sent more than half a session timeout ago. So were all
/// others that have been answered since.
#[tokio::test(start_paused = true)]
async fn grant_that_comes_after_its_deadline_is_confirmed_and_keeps_its_node() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT);
    let memory = memory.latency(Duration::from_millis(20)).build();
    memory.create(PATH, b"").unwrap();
    let session = memory.session();
    let lock = mutex(&session);
    let ensemble = TestEnsemble::Memory(memory.clone());
    let is_open = async || session.session_id();
    ensemble.until("session", is_open).await;

    let late = SHORT * 3 / 5;
    memory.reset_requests();
    memory.set_faults(Faults {
        delay_min: late,
        delay_max: late,
        ..Faults::default()
    });
    let mut acquire = pin!(lock.acquire());
    assert!(poll!(acquire.as_mut()).is_pending());
    // The heartbeat after it is as late.
    tokio::time::sleep(SHORT / 5).await;
    assert_eq!(memory.request_count(Operation::Sync), 1);
    memory.set_faults(Faults::default());
    let granted = acquire.await.unwrap();
    assert!(granted.is_valid(), "{:?}", granted.state());
    // Another node would have gone to the end of the queue.
    assert_eq!(memory.request_count(Operation::Create), 1);
}
