//! Contenders that wait for each other, over several locks.

use lock_recipes::{
    Basis, InterProcessMutex, LockOptions, Owner, Party, Session, WaitForGraph, scan,
};
use test_rig::{TestEnsemble, on_every_ensemble};

use crate::enqueue;

const ROOT: &str = "/locks";

fn mutex(session: &Session, name: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, &format!("{ROOT}/{name}")).unwrap()
}

async fn graph(session: &Session) -> WaitForGraph {
    WaitForGraph::of(&scan(session, ROOT).await.unwrap().locks)
}

on_every_ensemble!(
    owners_that_wait_for_each_other_are_named,
    tasks_that_wait_for_each_other_are_found,
    locks_that_are_only_busy_are_no_deadlock,
);

async fn owners_that_wait_for_each_other_are_named(ensemble: TestEnsemble) {
    let (one, other) = (ensemble.session().await, ensemble.session().await);
    let (first, second) = (Owner::new(), Owner::new());
    let held_a = mutex(&one, "a").acquire().owner(&first).await.unwrap();
    let held_b = mutex(&other, "b").acquire().owner(&second).await.unwrap();
    let (lock, owner) = (mutex(&one, "b"), first.clone());
    let wants_b = async move { lock.acquire().owner(&owner).await };
    let (_, wants_b) = enqueue(&ensemble, "/locks/b", wants_b).await;
    let open = graph(&one).await;
    assert_eq!((open.edges.len(), open.cycles().len()), (1, 0));
    let (lock, owner) = (mutex(&other, "a"), second.clone());
    let wants_a = async move { lock.acquire().owner(&owner).await };
    let (_, wants_a) = enqueue(&ensemble, "/locks/a", wants_a).await;

    let found = graph(&one).await.cycles();
    let [cycle] = &found[..] else {
        panic!("{found:?}")
    };
    let party = |owner: &Owner, session: &Session| Party::Owner {
        id: owner.id(),
        session_id: session.session_id().unwrap(),
    };
    let (first, second) = (party(&first, &one), party(&second, &other));
    let told: Vec<_> = cycle
        .iter()
        .map(|it| {
            (
                it.lock.as_str(),
                it.waiter.clone(),
                it.holder.clone(),
                it.basis,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("/locks/a", second.clone(), first.clone(), Basis::Owner),
            ("/locks/b", first, second, Basis::Owner),
        ]
    );
    assert_eq!(cycle[0].holding_node, held_a.members()[0].node_path);
    assert_eq!(cycle[1].holding_node, held_b.members()[0].node_path);

    // One contender gives up, and the deadlock is gone.
    wants_a.abort();
    ensemble.await_children("/locks/a", 1).await;
    assert!(graph(&one).await.cycles().is_empty());
    held_b.release().await.unwrap();
    wants_b.await.unwrap().unwrap().release().await.unwrap();
    held_a.release().await.unwrap();
}

/// No owner is named. Each task holds one lock and waits for the other.
async fn tasks_that_wait_for_each_other_are_found(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let both = |first: &str, second: &str| {
        let (first, second) = (mutex(&session, first), mutex(&session, second));
        let (has_one, told) = tokio::sync::oneshot::channel();
        let (go, go_on) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let held = first.acquire().await.unwrap();
            has_one.send(()).unwrap();
            go_on.await.unwrap();
            drop((second.acquire().await.unwrap(), held));
        });
        (task, told, go)
    };
    let (one, one_has_a, one_goes) = both("a", "b");
    let (other, other_has_b, other_goes) = both("b", "a");
    one_has_a.await.unwrap();
    other_has_b.await.unwrap();
    assert!(graph(&session).await.cycles().is_empty());
    one_goes.send(()).unwrap();
    other_goes.send(()).unwrap();
    ensemble.await_children("/locks/a", 2).await;
    ensemble.await_children("/locks/b", 2).await;
    let found = graph(&session).await.cycles();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].iter().all(|it| it.basis == Basis::Owner),
        "{found:?}"
    );
    one.abort();
    other.await.unwrap();
}

/// As in any busy service, and no contender waits for ever.
async fn locks_that_are_only_busy_are_no_deadlock(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // With and without records that identify the contender.
    let options = LockOptions::new()
        .local_handoffs(0)
        .identity(*b"somebody")
        .unwrap();
    let unnamed = |name: &str| {
        let path = format!("{ROOT}/{name}");
        InterProcessMutex::with_options(&session, &path, &options).unwrap()
    };
    let locks = [
        unnamed("a"),
        unnamed("b"),
        mutex(&session, "c"),
        mutex(&session, "d"),
    ];
    let mut holding = Vec::new();
    for lock in &locks {
        let lock = lock.clone();
        holding.push(
            tokio::spawn(async move { lock.acquire().await.unwrap() })
                .await
                .unwrap(),
        );
    }
    let mut waiting = Vec::new();
    for lock in locks.iter().chain(&locks) {
        let (path, lock) = (lock.path().to_owned(), lock.clone());
        let waits = async move { lock.acquire().await.unwrap().release().await.unwrap() };
        waiting.push(enqueue(&ensemble, &path, waits).await.1);
    }
    let graph = graph(&session).await;
    assert_eq!(graph.edges.len(), 8);
    assert_eq!(graph.cycles(), Vec::<Vec<lock_recipes::Edge>>::new());
    for held in holding {
        held.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap();
    }
}
