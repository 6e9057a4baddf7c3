//! Sets that lose a member, are dropped, or get no answer.

use futures::poll;
use lock_recipes::{GuardState, LostReason};
use test_rig::{Lost, MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};

use super::{PATHS, await_nothing_left, children, mutex, set};

on_every_ensemble!(
    loss_of_any_member_is_a_loss_of_the_set_and_names_it,
    set_whose_session_expires_while_it_waits_starts_over,
    set_dropped_at_every_poll_leaves_nothing,
    release_of_a_set_that_is_dropped_goes_on,
);

async fn loss_of_any_member_is_a_loss_of_the_set_and_names_it(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for (index, path) in PATHS.into_iter().enumerate() {
        let guard = set(&session).acquire().await.unwrap();
        let node = guard.members()[index].node_path.clone();
        ensemble.delete(&node).await;
        let lost = guard.lost().await;
        assert_eq!(
            (lost.path.as_str(), lost.reason),
            (path, LostReason::NodeRemoved)
        );
        assert!(!guard.is_valid());
        for (place, member) in guard.members().iter().enumerate() {
            let is_lost = matches!(member.state, GuardState::Lost(_));
            assert_eq!(is_lost, place == index);
        }
        assert!(guard.release().await.is_err());
        await_nothing_left(&ensemble).await;
    }
}

async fn set_whose_session_expires_while_it_waits_starts_over(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let busy = mutex(&holding, "/set/b").acquire().await.unwrap();
    let waiter = set(&waiting);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children("/set/b", 2).await;
    ensemble.expire(&waiting).await;
    ensemble
        .until("next epoch", async || (waiting.epoch() == 2).then_some(()))
        .await;
    busy.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    guard.verify().await.unwrap();
    assert_eq!(children(&ensemble).await, [1, 1, 1]);
    guard.release().await.unwrap();
    await_nothing_left(&ensemble).await;
}

async fn set_dropped_at_every_poll_leaves_nothing(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    for busy in [None, Some("/set/a"), Some("/set/b")] {
        for polls in 0..16 {
            let held = match busy {
                Some(path) => Some(mutex(&holding, path).acquire().await.unwrap()),
                None => None,
            };
            {
                let set = set(&waiting);
                let mut acquire = Box::pin(set.acquire());
                for _ in 0..polls {
                    if poll!(&mut acquire).is_ready() {
                        break;
                    }
                    ensemble.let_something_happen().await;
                }
            }
            drop(held);
            set(&holding)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
            await_nothing_left(&ensemble).await;
        }
    }
}

async fn release_of_a_set_that_is_dropped_goes_on(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for polls in 0..3 {
        let guard = set(&session).acquire().await.unwrap();
        {
            let mut release = Box::pin(guard.release());
            for _ in 0..polls {
                if poll!(&mut release).is_ready() {
                    break;
                }
                ensemble.let_something_happen().await;
            }
        }
        await_nothing_left(&ensemble).await;
    }
}

#[tokio::test(start_paused = true)]
async fn transaction_of_unknown_outcome_makes_each_node_once() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        set(&session)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let ensemble = TestEnsemble::Memory(memory.clone());
        memory.lose_reply(session.session_id(), Operation::Multi, lost);
        let guard = set(&session).acquire().await.unwrap();
        assert_eq!(children(&ensemble).await, [1, 1, 1], "{lost:?}");
        memory.lose_reply(session.session_id(), Operation::Multi, lost);
        guard.release().await.unwrap();
        assert_eq!(children(&ensemble).await, [0; 3], "{lost:?}");
    }
}
