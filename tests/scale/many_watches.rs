//! A session that holds more locks than its client could watch again after a reconnect. The locks
//! stay held, and the loss of a node that is not watched is noticed a little later.

use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    GuardState, InterProcessMutex, LockOptions, LostReason, MutexGuard, Session, ZooKeeper,
};
use test_rig::{Cut, FaultProxy, MemoryEnsemble, Operation, TestEnsemble, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Their paths take 190 kB. The client gives up above 128 KiB.
const LOCKS: usize = 400;
/// Nodes whose paths are within 48 KiB.
const WATCHED: usize = 104;
/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that is not watched is read within this time.
const LOOKED_AT: Duration = Duration::from_secs(11);

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
    let watched = async || (ensemble.watch_count().await == WATCHED).then_some(());
    ensemble.until("watches", watched).await;
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
            timeout(PATIENCE, guard.verify()).await.unwrap().unwrap();
        }
        until_watched(&ensemble).await;
        assert_eq!(session.epoch(), 1);
        // The session's, and that over which it asks what the server grants now.
        assert!(proxy.connections() - before <= 2);
    }
    for released in join_all(held.into_iter().map(MutexGuard::release)).await {
        released.unwrap();
    }
    ensemble
        .until("no watch", async || {
            (ensemble.watch_count().await == 0).then_some(())
        })
        .await;
}

/// The client counts whole paths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chroot_counts_on_a_real_server() {
    let ensemble = test_rig::own::on_a_real_server().await;
    let chroot = format!("/{}", "app".repeat(156));
    ensemble.create(&chroot, b"").await;
    let session = ensemble.session_below(&chroot, ZooKeeper::builder()).await;
    let held = hold(&session).await;
    let expected = 48 * 1024 / (chroot.len() + node_of(held.first().unwrap()).len());
    let watched = async || (ensemble.watch_count().await == expected).then_some(());
    ensemble.until("watches", watched).await;
    session.close().await;
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
        let deadline = Instant::now() + LOOKED_AT;
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
        let deadline = Instant::now() + LOOKED_AT;
        for guard in &held {
            let asked = timeout_at(deadline, guard.revocation_requested()).await;
            asked.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_become_free_are_taken() {
        let memory = MemoryEnsemble::new();
        let ensemble = TestEnsemble::Memory(memory.clone());
        let session = ensemble.session().await;
        let mut held = hold(&session).await;
        until_watched(&ensemble).await;
        let (rest, first) = (held.split_off(LOCKS / 2), held);
        for guard in first {
            guard.release().await.unwrap();
        }
        sleep(LOOKED_AT).await;
        assert_eq!(memory.watch_count(), WATCHED);
        drop(rest);
        sleep(LOOKED_AT).await;
        assert_eq!(memory.watch_count(), 0);
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
            sleep(LOOKED_AT + Duration::from_millis(100 * tenths)).await;
            assert!(memory.disconnect(id));
            sleep(LOOKED_AT / 2).await;
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
        let lost = timeout(LOOKED_AT, waited.lost()).await.unwrap();
        assert_eq!(lost.reason, LostReason::NodeRemoved);
    }

    /// A hand-off is a new grant, so a node that may be gone unnoticed is read first.
    #[tokio::test(start_paused = true)]
    async fn node_that_is_not_watched_is_handed_on_only_if_it_is_there() {
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let held = hold(&session).await;
        until_watched(&TestEnsemble::Memory(memory.clone())).await;
        let options = LockOptions::default().local_handoffs(100);
        let lock = InterProcessMutex::with_options(&session, &directory(LOCKS), &options).unwrap();
        let mut tokens = Vec::new();
        for is_removed in [false, true, true, false, true] {
            let guard = lock.acquire().await.unwrap();
            let next = lock.acquire();
            let (next, ()) = tokio::join!(next, async {
                // Until the session knows that there is no watch for it.
                sleep(Duration::from_secs(1)).await;
                memory.reset_requests();
                if is_removed {
                    memory.delete(&node_of(&guard)).unwrap();
                }
                guard.release().await.unwrap();
            });
            let next = next.unwrap();
            assert!(memory.request_count(Operation::Read) > 0, "not asked for");
            assert!(memory.exists(&node_of(&next)));
            tokens.push(next.fencing_token().handoff());
            next.release().await.unwrap();
        }
        assert_eq!(tokens, [1, 0, 0, 1, 0]);
        drop(held);
    }
}
