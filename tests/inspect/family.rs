//! Inspection of semaphores and elections.

use lock_recipes::{
    ElectionLayout, Error, InterProcessMutex, InterProcessSemaphore, LeaderElection, LockKind,
    QueryError, Recipe, inspect, scan,
};
use test_rig::{TestEnsemble, on_every_ensemble};

use crate::{enqueue, told};

const LIMIT: &str = "/limits/exports";
const ELECTION: &str = "/elections/billing";

on_every_ensemble!(
    semaphore_shows_its_leases_and_who_waits_for_the_mutex,
    mutex_called_leases_is_no_semaphore,
    election_shows_the_leader_and_its_followers_with_their_ids,
);

async fn semaphore_shows_its_leases_and_who_waits_for_the_mutex(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let limit = InterProcessSemaphore::new(&session, LIMIT, 2).unwrap();
    let held = limit.acquire_many(2).unwrap().await.unwrap();
    let (leases, locks) = (format!("{LIMIT}/leases"), format!("{LIMIT}/locks"));
    // The mutex is given back in the background.
    ensemble.await_children(&locks, 0).await;
    let (first, next) = enqueue(&ensemble, &locks, limit.acquire()).await;
    let (second, last) = enqueue(&ensemble, &locks, limit.acquire()).await;
    // The first has the mutex and its lease, the second has neither.
    ensemble.await_children(&leases, 3).await;

    let seen = inspect(&session, &leases).await.unwrap();
    assert_eq!(seen.recipe, Recipe::Semaphore);
    let modes: Vec<_> = seen.contenders.iter().map(|it| it.mode).collect();
    assert_eq!(modes, [Some(LockKind::Permit); 3]);
    let nodes = seen.contenders.iter().map(|it| it.participant.path.clone());
    let granted = held.members().into_iter().map(|it| it.node_path);
    assert!(nodes.take(2).eq(granted), "{seen:?}");
    let queue = inspect(&session, &locks).await.unwrap();
    assert_eq!(queue.recipe, Recipe::Mutex);
    assert_eq!(
        told(&queue),
        [
            (first.clone(), "holds".to_owned()),
            (second.clone(), first.clone())
        ]
    );
    // By its own path: those who hold, and those who wait.
    let whole = inspect(&session, LIMIT).await.unwrap();
    assert_eq!(
        (whole.path.as_str(), whole.recipe),
        (LIMIT, Recipe::Semaphore)
    );
    assert!(whole.holders().eq(&seen.contenders), "{whole:?}");
    let waiting = whole.waiters().map(|it| it.participant.path.as_str());
    let expected = [&first, &second].map(|node| format!("{locks}/{node}"));
    assert!(waiting.eq(expected.iter().map(String::as_str)), "{whole:?}");
    let all = scan(&session, "/limits").await.unwrap();
    let paths: Vec<_> = all.locks.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, [leases.as_str(), locks.as_str()]);

    held.release().await.unwrap();
    for waiter in [next, last] {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
    // Nobody is there any more, or its directories are gone.
    let free = inspect(&session, LIMIT).await.unwrap_err();
    let is_free = |it: &QueryError| {
        matches!(
            it,
            QueryError::NotALock { .. } | QueryError::NoSuchNode { .. }
        )
    };
    assert!(matches!(&free, Error::Query(it) if is_free(it)), "{free}");
}

/// Only its name is that of a semaphore's leases.
async fn mutex_called_leases_is_no_semaphore(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = InterProcessMutex::new(&session, "/limits/other/leases").unwrap();
    let held = lock.acquire().await.unwrap();
    let refused = inspect(&session, "/limits/other").await.unwrap_err();
    assert!(
        matches!(refused, Error::Query(QueryError::NotALock { .. })),
        "{refused}"
    );
    held.release().await.unwrap();
}

async fn election_shows_the_leader_and_its_followers_with_their_ids(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for (layout, recipe, mode) in [
        (
            ElectionLayout::LeaderSelector,
            Recipe::Mutex,
            LockKind::Mutex,
        ),
        (
            ElectionLayout::LeaderLatch,
            Recipe::Election,
            LockKind::Latch,
        ),
    ] {
        let path = format!("{ELECTION}/{}", recipe.as_str());
        let candidate = |id| LeaderElection::with_layout(&session, &path, id, layout).unwrap();
        let (leader, term) = enqueue(&ensemble, &path, candidate("host-1").campaign()).await;
        let (follower, next) = enqueue(&ensemble, &path, candidate("host-2").campaign()).await;

        let seen = inspect(&session, &path).await.unwrap();
        assert_eq!(seen.recipe, recipe);
        assert_eq!(
            told(&seen),
            [
                (leader.clone(), "holds".to_owned()),
                (follower, leader.clone()),
            ]
        );
        let ids: Vec<_> = seen
            .contenders
            .iter()
            .map(|it| &*it.participant.data)
            .collect();
        assert_eq!(ids, [b"host-1", b"host-2"]);
        let modes: Vec<_> = seen.contenders.iter().map(|it| it.mode).collect();
        assert_eq!(modes, [Some(mode); 2]);
        term.await.unwrap().unwrap().resign().await.unwrap();
        next.await.unwrap().unwrap().resign().await.unwrap();
    }
}
