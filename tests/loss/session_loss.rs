//! What happens to locks when the session, the server or the node goes away.

use std::time::Duration;

use lock_recipes::{
    AcquireError, Error, GuardState, InterProcessMutex, LostReason, Owner, ReleaseError, Session,
    SessionHealth, ZooKeeper,
};
use recipes_core::EndReason;
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, ZooKeeperServer, on_ensembles_of_their_own,
    on_every_ensemble,
};
use tokio::time::Instant;

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

fn node(name: &str) -> String {
    format!("{PATH}/{name}")
}

/// Expired explicitly, so news of the node's deletion may arrive before the end of the session.
fn assert_expired(reason: LostReason) {
    let is_expired = matches!(reason, LostReason::SessionExpired | LostReason::NodeRemoved);
    assert!(is_expired, "{reason}");
}

on_every_ensemble!(
    waiter_whose_session_expires_joins_again_and_gets_the_lock,
    holder_whose_session_expires_is_told_and_the_next_one_gets_the_lock,
    waiters_node_deleted_by_an_operator_is_made_again_at_the_tail,
    closing_the_session_ends_waiters_and_loses_guards,
);
on_ensembles_of_their_own!(holder_keeps_the_lock_over_a_restart_of_the_server);
on_ensembles_of_their_own!(
    watches:
    holders_node_deleted_by_an_operator_is_a_lost_lock,
    holders_node_written_into_and_then_deleted_is_a_lost_lock,
);

async fn waiter_whose_session_expires_joins_again_and_gets_the_lock(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let waiter = mutex(&waiting);
    let waiter = tokio::spawn(waiter.acquire());
    let before = ensemble.await_children(PATH, 2).await;

    ensemble.expire(&waiting).await;
    let after = ensemble
        .until("another node of the waiter", async || {
            let now = ensemble.children(PATH).await;
            (now.len() == 2 && now != before).then_some(now)
        })
        .await;
    assert_ne!(before, after);
    assert_eq!(waiting.epoch(), 2);

    held.release().await.unwrap();
    let granted = waiter.await.unwrap().unwrap();
    let left = ensemble.children(PATH).await;
    assert_eq!(granted.members()[0].node_path, node(&left[0]));
    granted.release().await.unwrap();
    assert!(ensemble.children(PATH).await.is_empty());
}

async fn holder_whose_session_expires_is_told_and_the_next_one_gets_the_lock(
    ensemble: TestEnsemble,
) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let owner = Owner::new();
    let held = mutex(&holding).acquire().owner(&owner).await.unwrap();
    let waiter = mutex(&waiting);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children(PATH, 2).await;

    ensemble.expire(&holding).await;
    let lost = held.lost().await;
    assert_expired(lost.reason);
    assert_eq!(lost.path, PATH);
    assert_eq!(held.state(), GuardState::Lost(lost.reason));
    assert!(!held.is_valid());
    let granted = waiter.await.unwrap().unwrap();
    assert!(granted.fencing_token() > held.fencing_token());

    // While a guard of it exists, the owner is not granted as if nothing had happened.
    let again = mutex(&holding).acquire().owner(&owner).await.unwrap_err();
    assert!(
        matches!(again, Error::Acquire(AcquireError::Lost(_))),
        "{again}"
    );
    assert!(held.reenter().is_err());
    let released = held.release().await.unwrap_err();
    assert!(
        matches!(released, Error::Release(ReleaseError::Lost(_))),
        "{released}"
    );

    // After the last guard is gone, it starts again.
    granted.release().await.unwrap();
    mutex(&holding)
        .acquire()
        .owner(&owner)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn holders_node_deleted_by_an_operator_is_a_lost_lock(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // At once, and after the holder has begun to watch its node.
    for watched in [false, true] {
        let held = mutex(&session).acquire().await.unwrap();
        if watched {
            ensemble.await_watches(1).await;
        }
        ensemble.delete(&held.members()[0].node_path).await;
        assert_eq!(held.lost().await.reason, LostReason::NodeRemoved);
        assert!(!held.is_valid());
        let released = held.release().await.unwrap_err();
        assert!(
            matches!(&released, Error::Release(ReleaseError::Lost(lost)) if lost.reason == LostReason::NodeRemoved)
        );
    }
    // The session itself is healthy.
    mutex(&session)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn holders_node_written_into_and_then_deleted_is_a_lost_lock(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let own = held.members()[0].node_path.clone();
    ensemble.await_watches(1).await;
    ensemble.set(&own, b"__REVOKE__").await;
    ensemble.await_watches(1).await;
    assert!(held.is_valid());
    ensemble.delete(&own).await;
    assert_eq!(held.lost().await.reason, LostReason::NodeRemoved);
}

async fn waiters_node_deleted_by_an_operator_is_made_again_at_the_tail(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let first = mutex(&session);
    let first = tokio::spawn(first.acquire());
    let removed = by_sequence(ensemble.await_children(PATH, 2).await)
        .pop()
        .unwrap();
    let second = mutex(&session);
    let second = tokio::spawn(second.acquire());
    ensemble.await_children(PATH, 3).await;

    ensemble.delete(&node(&removed)).await;
    ensemble
        .until("the waiter's new node", async || {
            let now = ensemble.children(PATH).await;
            (now.len() == 3 && !now.contains(&removed)).then_some(())
        })
        .await;
    held.release().await.unwrap();
    // The contender that lost its place is second in the queue now.
    let granted = second.await.unwrap().unwrap();
    assert!(!first.is_finished());
    granted.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
}

async fn holder_keeps_the_lock_over_a_restart_of_the_server(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let waiter = mutex(&session);
    let waiter = tokio::spawn(waiter.acquire());
    let before = ensemble.await_children(PATH, 2).await;

    ensemble.stop().await;
    let mut health = session.watch_health();
    while session.health() != SessionHealth::Disconnected {
        health.changed().await;
    }
    assert!(
        matches!(held.state(), GuardState::Suspended { .. }),
        "{:?}",
        held.state()
    );
    assert!(held.is_valid());
    ensemble.start_again().await;
    while session.health() != SessionHealth::Connected {
        health.changed().await;
    }
    held.verify().await.unwrap();
    // It is verified, although the connection may have broken and come back once more.
    let is_held = async || (held.state() == GuardState::Held).then_some(());
    ensemble.until("held again", is_held).await;
    assert_eq!(ensemble.children(PATH).await, before);
    assert!(!waiter.is_finished());

    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(session.epoch(), 1);
}

async fn closing_the_session_ends_waiters_and_loses_guards(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let waiter = mutex(&session);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children(PATH, 2).await;

    let closing = Instant::now();
    session.close().await;
    assert!(
        closing.elapsed() < Duration::from_secs(15),
        "{:?}",
        closing.elapsed()
    );
    assert!(ensemble.children(PATH).await.is_empty());
    let ended = waiter.await.unwrap().unwrap_err();
    assert!(
        matches!(ended, Error::Acquire(AcquireError::SessionClosed { .. })),
        "{ended}"
    );
    assert_eq!(held.state(), GuardState::Lost(LostReason::SessionClosed));
    let late = mutex(&session).acquire().await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::SessionClosed { .. })),
        "{late}"
    );
    assert!(session.read(PATH).await.is_err());
    session.close().await;
    assert_eq!(session.health(), SessionHealth::Closed);
}

/// Sessions that the ensemble expires after two seconds.
const SHORT: Duration = Duration::from_secs(2);
/// The same, of a server on a machine that keeps each process waiting for a second and more.
const BUSY: Duration = Duration::from_secs(30);

/// A holder without contact to the ensemble gives the lock up in time, and for good.
async fn holder_gives_up_in_time(
    ensemble: &TestEnsemble,
    session: &Session,
    session_timeout: Duration,
) {
    let held = mutex(session).acquire().await.unwrap();
    // The heartbeat moves the deadline on without any other request.
    let lost = tokio::time::timeout(session_timeout, held.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(held.state(), GuardState::Held);

    ensemble.stop().await;
    let stopped = Instant::now();
    let lost = held.lost().await;
    let silent = stopped.elapsed();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    assert!(
        silent <= session_timeout / 2 + session_timeout / 10,
        "{silent:?}"
    );
    assert!(!held.is_valid());

    ensemble.start_again().await;
    let mut health = session.watch_health();
    while session.health() != SessionHealth::Connected {
        health.changed().await;
    }
    assert_eq!(held.state(), GuardState::Lost(LostReason::DeadlinePassed));
    let released = held.release().await.unwrap_err();
    assert!(
        matches!(released, Error::Release(ReleaseError::Lost(_))),
        "{released}"
    );
    mutex(session)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(start_paused = true)]
async fn holder_of_a_silent_ensemble_gives_up_in_time_in_memory() {
    let memory = MemoryEnsemble::builder().session_timeout(SHORT).build();
    let ensemble = TestEnsemble::Memory(memory);
    holder_gives_up_in_time(&ensemble, &ensemble.session().await, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_of_a_silent_ensemble_gives_up_in_time_on_a_real_server() {
    let ensemble = test_rig::own::on_a_real_server().await;
    let session = ensemble
        .session_with(ZooKeeper::builder().session_timeout(BUSY))
        .await;
    holder_gives_up_in_time(&ensemble, &session, BUSY).await;
}

/// The ensemble still lists the node of a session that its client has given up. If the waiter were
/// granted on that node, it would lose the lock unnoticed when the ensemble expires that session.
#[tokio::test(start_paused = true)]
async fn waiter_is_not_granted_on_the_node_of_a_session_that_it_has_given_up() {
    // Which does not end the old session by itself.
    let memory = MemoryEnsemble::builder().without_session_timeout().build();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (holding, waiting) = (memory.session(), memory.session());
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire());
    let queue = by_sequence(ensemble.await_children(PATH, 2).await);
    let old_session = waiting.session_id().unwrap();
    // Only the ensemble can remove the old node.
    memory.deny(&node(&queue[1]), Operation::Delete);

    memory.end_client(old_session, EndReason::Expired);
    let queue = by_sequence(ensemble.await_children(PATH, 3).await);
    held.release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!waiter.is_finished(), "granted while the old node is first");
    memory.expire(old_session);
    let granted = waiter.await.unwrap().unwrap();
    assert_eq!(granted.members()[0].node_path, node(&queue[2]));
}

/// After an outage that was longer than its session, a waiter may still find its old node listed,
/// because the ensemble gives every session its full timeout again. Curator acquires the lock with
/// that node (`LockInternals` of 5.4), and loses it when the old session expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_whose_session_dies_in_an_outage_is_not_granted_on_its_old_node_on_a_real_server() {
    let ensemble = test_rig::own::on_a_real_server().await;
    let holding = ensemble.session().await;
    let waiting = ensemble
        .session_with(ZooKeeper::builder().session_timeout(SHORT))
        .await;
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire());
    let before = ensemble.await_children(PATH, 2).await;

    ensemble.stop().await;
    let mut health = waiting.watch_health();
    while waiting.health() != SessionHealth::Connecting {
        health.changed().await;
    }
    ensemble.start_again().await;
    // Its connection may not be back yet.
    drop(held);
    let granted = waiter.await.unwrap().unwrap();
    // A busy machine may lose a session as short as this once more.
    assert!(waiting.epoch() >= 2);
    let own = granted.members()[0].node_path.clone();
    assert!(
        before.iter().all(|name| node(name) != own),
        "{own} is from before"
    );
    let (_, stat) = ensemble.read(&own).await.unwrap();
    assert_eq!(Some(stat.ephemeral_owner), waiting.session_id());
    // The session is short, so the release of a busy machine may not know its end.
    drop(granted);
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_from_a_client_that_is_over_ends_every_acquire_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let client = server.client().await.unwrap();
    server.expire(client.session_id().0).await.unwrap();
    let mut state = client.state_watcher();
    while !state.peek_state().is_terminated() {
        state.changed().await;
    }
    let session = ZooKeeper::from_client(client);
    let ended = mutex(&session)
        .acquire()
        .timeout(Duration::from_secs(10))
        .await
        .unwrap_err();
    assert!(
        matches!(ended, Error::Acquire(AcquireError::SessionEnded { .. })),
        "{ended}"
    );
}

fn by_sequence(mut names: Vec<String>) -> Vec<String> {
    names.sort_by_key(|name| name.get(name.len() - 10..).map(str::to_owned));
    names
}
