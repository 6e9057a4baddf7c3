//! Requests whose replies are lost, so that their outcome is unknown.
//!
//! The tests run only in memory: a real server loses no reply at a chosen request without a proxy.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, Session};
use test_rig::{Faults, Lost, MemoryEnsemble, Operation, TestEnsemble};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// Every list is answered by a replica that lags as much as it may.
fn lagging() -> MemoryEnsemble {
    let faults = Faults {
        stale_list_per_mille: 1000,
        ..Faults::default()
    };
    MemoryEnsemble::builder().faults(faults).build()
}

#[tokio::test(start_paused = true)]
async fn create_whose_reply_is_lost_makes_one_node() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let ensemble = lagging();
        let session = ensemble.session();
        mutex(&session)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        ensemble.lose_reply(session.session_id(), Operation::Create, lost);
        // A contender that took its own node for a stranger's would wait for itself.
        let acquired = mutex(&session)
            .acquire()
            .timeout(Duration::from_secs(60))
            .await;
        let held = acquired.unwrap_or_else(|error| panic!("{lost:?}: {error}"));
        assert_eq!(ensemble.children(PATH).len(), 1, "{lost:?}");
        let czxid = ensemble
            .stat(&held.members().remove(0).node_path)
            .unwrap()
            .czxid;
        assert_eq!(held.fencing_token().as_i64(), czxid, "{lost:?}");
        held.release().await.unwrap();
        assert!(ensemble.children(PATH).is_empty(), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn create_that_is_lost_again_and_again_leaves_nothing() {
    let ensemble = lagging();
    let session = ensemble.session();
    mutex(&session)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for lost in [
        Lost::AfterCommit,
        Lost::BeforeCommit,
        Lost::AfterCommit,
        Lost::BeforeCommit,
    ] {
        ensemble.lose_reply(session.session_id(), Operation::Create, lost);
    }
    let held = mutex(&session)
        .acquire()
        .timeout(Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(ensemble.children(PATH).len(), 1);
    held.release().await.unwrap();
    assert!(ensemble.children(PATH).is_empty());
}

#[tokio::test(start_paused = true)]
async fn acquire_dropped_after_a_create_of_unknown_outcome_leaves_nothing() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        for polls in 1..20 {
            let ensemble = lagging();
            let session = ensemble.session();
            mutex(&session)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            ensemble.lose_reply(session.session_id(), Operation::Create, lost);
            let lock = mutex(&session);
            {
                let mut acquire = Box::pin(lock.acquire());
                for _ in 0..polls {
                    if futures::poll!(&mut acquire).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            mutex(&session)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            TestEnsemble::Memory(ensemble).await_children(PATH, 0).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn release_whose_reply_is_lost_is_pursued() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let held = mutex(&session).acquire().await.unwrap();
        ensemble.lose_reply(session.session_id(), Operation::Delete, lost);
        held.release().await.unwrap();
        assert!(ensemble.children(PATH).is_empty(), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn guard_dropped_whose_delete_is_lost_is_pursued() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let held = mutex(&session).acquire().await.unwrap();
        ensemble.lose_reply(session.session_id(), Operation::Delete, lost);
        drop(held);
        TestEnsemble::Memory(ensemble).await_children(PATH, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiter_whose_watches_are_lost_is_granted() {
    for operation in [Operation::Watch, Operation::List] {
        for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
            let ensemble = lagging();
            let (holding, waiting) = (ensemble.session(), ensemble.session());
            let held = mutex(&holding).acquire().await.unwrap();
            ensemble.lose_reply(waiting.session_id(), operation, lost);
            let lock = mutex(&waiting);
            let waiter = tokio::spawn(lock.acquire());
            let ensemble = TestEnsemble::Memory(ensemble);
            ensemble.await_children(PATH, 2).await;
            held.release().await.unwrap();
            let granted = tokio::time::timeout(Duration::from_secs(60), waiter)
                .await
                .unwrap();
            granted.unwrap().unwrap().release().await.unwrap();
            ensemble.await_children(PATH, 0).await;
        }
    }
}

/// Every kind of fault at once, drawn from a seed. A failure names the seed.
#[tokio::test(start_paused = true)]
async fn contenders_stay_apart_and_get_on_under_seeded_faults() {
    for seed in 0..200 {
        let faults = Faults {
            lost_before_per_mille: 30,
            lost_after_per_mille: 30,
            expiry_per_mille: 10,
            stale_list_per_mille: 300,
            delay_min: Duration::ZERO,
            delay_max: Duration::from_millis(20),
            ..Faults::default()
        };
        let ensemble = MemoryEnsemble::builder().seed(seed).faults(faults).build();
        let contend = async |session: Session| {
            for _ in 0..5 {
                let held = mutex(&session).acquire().await.unwrap();
                // The judge: while this guard is valid, no other session's node may be ahead.
                let node = held.members().remove(0).node_path;
                tokio::task::yield_now().await;
                let first = first_of(&ensemble.children(PATH));
                if held.is_valid() && ensemble.exists(&node) {
                    assert_eq!(Some(node), first, "seed {seed}");
                }
                drop(held.release().await);
            }
        };
        let sessions = [ensemble.session(), ensemble.session(), ensemble.session()];
        let all = futures::future::join_all(sessions.clone().map(contend));
        let done = tokio::time::timeout(Duration::from_secs(3600), all).await;
        assert!(done.is_ok(), "seed {seed} hangs\n{}", ensemble.tree());
        ensemble.set_faults(Faults::default());
        for session in sessions {
            session.close().await;
        }
        assert_eq!(ensemble.children(PATH), [""; 0], "seed {seed}");
    }
}

fn first_of(names: &[String]) -> Option<String> {
    let first = names
        .iter()
        .min_by_key(|name| name.rsplit('-').next().map(str::to_owned))?;
    Some(format!("{PATH}/{first}"))
}
