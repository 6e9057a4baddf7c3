//! A session that watches more than its client could set again after a reconnect: 190 kB of paths, where
//! zookeeper-client 0.11.2 gives up above 128 KiB.

use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{GuardState, InterProcessMutex, LostReason, MutexGuard, Session, ZooKeeper};
use test_rig::{Cut, FaultProxy, MemoryEnsemble, TestEnsemble, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// With their paths of 480 bytes.
const LOCKS: usize = 400;
/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// What happens to a node is told within this time.
const SOON: Duration = Duration::from_secs(1);

fn directory(number: usize) -> String {
    format!("/locks/{}-{number:03}", "orders".repeat(67))
}

async fn hold(session: &Session) -> Vec<MutexGuard> {
    let locks: Vec<_> = (0..LOCKS)
        .map(|it| InterProcessMutex::new(session, &directory(it)).unwrap())
        .collect();
    let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
    held.into_iter().map(Result::unwrap).collect()
}

async fn until_watched(ensemble: &TestEnsemble) {
    ensemble.await_watches(LOCKS).await;
}

fn node_of(guard: &MutexGuard) -> String {
    guard.members().remove(0).node_path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_held_on_over_a_reconnect_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
    let ensemble = TestEnsemble::Real(server.into());
    let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    let held = hold(&session).await;
    until_watched(&ensemble).await;
    for _ in 0..2 {
        let before = proxy.connections();
        proxy.cut_all(Cut::Fin);
        ensemble
            .until("the client", async || {
                (proxy.connections() > before).then_some(())
            })
            .await;
        for guard in &held {
            let is_held = async || (guard.state() == GuardState::Held).then_some(());
            ensemble.until("the guard", is_held).await;
            // The first answer may be lost with the connection.
            let is_verified = async || guard.verify().await.is_ok().then_some(());
            ensemble.until("an answer", is_verified).await;
        }
        until_watched(&ensemble).await;
        assert_eq!(session.epoch(), 1);
        // One that the client of the last connection begins and never uses, one to see that the server can be
        // reached, one to ask what it grants, and the session's.
        let made = proxy.connections() - before;
        assert!(made <= 4, "{made} connections");
    }
    for released in join_all(held.into_iter().map(MutexGuard::release)).await {
        released.unwrap();
    }
    ensemble.await_watches(0).await;
}

mod in_memory {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn removal_is_told_of_each() {
        let memory = MemoryEnsemble::new();
        let held = hold(&memory.session()).await;
        until_watched(&TestEnsemble::Memory(memory.clone())).await;
        for guard in &held {
            memory.delete(&node_of(guard)).unwrap();
        }
        let deadline = Instant::now() + SOON;
        for guard in &held {
            let lost = timeout_at(deadline, guard.lost()).await.unwrap();
            assert_eq!(lost.reason, LostReason::NodeRemoved);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_to_give_up_is_told_of_each() {
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let held = hold(&session).await;
        until_watched(&TestEnsemble::Memory(memory.clone())).await;
        // A request as Curator's `Revoker` sends it.
        for guard in &held {
            memory.set_data(&node_of(guard), b"__REVOKE__").unwrap();
        }
        let deadline = Instant::now() + SOON;
        for guard in &held {
            let asked = timeout_at(deadline, guard.revocation_requested()).await;
            asked.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_that_an_outage_has_held_up_are_made_up_for_at_once() {
        let memory = MemoryEnsemble::builder()
            .session_timeout(SESSION_TIMEOUT)
            .build();
        let session = memory.session();
        let held = hold(&session).await;
        until_watched(&TestEnsemble::Memory(memory.clone())).await;
        let id = session.session_id().unwrap();
        for tenths in 0..20 {
            // Some of them are due while no server answers.
            sleep(SOON + Duration::from_millis(100 * tenths)).await;
            assert!(memory.disconnect(id));
            sleep(SOON / 2).await;
            assert!(memory.reconnect(id));
            sleep(Duration::from_millis(500)).await;
            for guard in &held {
                assert_eq!(guard.state(), GuardState::Held);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_waited_is_told_as_well() {
        let memory = MemoryEnsemble::new();
        let (ours, theirs) = (memory.session(), memory.session());
        let _held = hold(&ours).await;
        until_watched(&TestEnsemble::Memory(memory.clone())).await;
        let lock = |session| InterProcessMutex::new(session, &directory(LOCKS)).unwrap();
        let before_us = lock(&theirs).acquire().await.unwrap();
        let ours = lock(&ours);
        let (waited, released) = tokio::join!(ours.acquire(), async {
            sleep(Duration::from_secs(1)).await;
            before_us.release().await
        });
        released.unwrap();
        let waited = waited.unwrap();
        memory.delete(&node_of(&waited)).unwrap();
        let lost = timeout(SOON, waited.lost()).await.unwrap();
        assert_eq!(lost.reason, LostReason::NodeRemoved);
    }
}
