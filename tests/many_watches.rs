//! A session that holds more locks than its client could watch again after a reconnect: they are
//! held on, and what becomes of the nodes that are not watched is heard of a little later.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use futures::future::join_all;
use recipes_testing::{Cut, FaultProxy, MemoryEnsemble, TestEnsemble, ZooKeeperServer};
use tokio::time::timeout;
use zookeeper_recipes::{GuardState, InterProcessMutex, LostReason, MutexGuard, Session};

/// Their paths take 190 kB; the client gives up above 128 KiB.
const LOCKS: usize = 400;
/// Nodes whose paths are within 48 KiB.
const WATCHED: usize = 104;
/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// Within this, what a test waits for has happened or never will.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that is not watched is looked at within this.
const LOOKED_AT: Duration = Duration::from_secs(11);

async fn hold(session: &Session) -> Vec<MutexGuard> {
    let directory = |number: usize| format!("/locks/{}-{number:03}", "orders".repeat(67));
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
async fn they_are_held_on_over_a_reconnect() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
    let ensemble = TestEnsemble::Real(server);
    let options = Session::builder().session_timeout(SESSION_TIMEOUT);
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    let held = hold(&session).await;
    until_watched(&ensemble).await;
    for connections in 2..4 {
        proxy.cut_all(Cut::Fin);
        ensemble
            .until("the client", async || {
                (proxy.connections() >= connections).then_some(())
            })
            .await;
        for guard in &held {
            timeout(PATIENCE, guard.verify()).await.unwrap().unwrap();
            let is_held = async || (guard.state() == GuardState::Held).then_some(());
            ensemble.until("the guard", is_held).await;
        }
        until_watched(&ensemble).await;
        assert_eq!((session.epoch(), proxy.connections()), (1, connections));
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
        for guard in &held {
            let lost = timeout(LOOKED_AT, guard.lost()).await.unwrap();
            assert_eq!(lost.reason, LostReason::NodeRemoved);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_to_give_up_is_told_of_each() {
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let held = hold(&session).await;
        until_watched(&TestEnsemble::Memory(memory.clone())).await;
        // As Curator's `Revoker` asks.
        for guard in &held {
            memory.set_data(&node_of(guard), b"__REVOKE__").unwrap();
        }
        for guard in &held {
            let asked = timeout(LOOKED_AT, guard.revocation_requested()).await;
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
        tokio::time::sleep(LOOKED_AT).await;
        assert_eq!(memory.watch_count(), WATCHED);
        drop(rest);
        tokio::time::sleep(LOOKED_AT).await;
        assert_eq!(memory.watch_count(), 0);
    }
}
