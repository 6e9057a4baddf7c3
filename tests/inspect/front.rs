//! What the command line asks: the front of a queue, locks that only strangers block, and owners that
//! are nested in those of other processes.

use lock_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, Owner, QueryError, Recipe, Session, Standing,
    WaitForGraph, ZooKeeper, scan,
};
use recipes_core::internal::{inspect_front, inspect_with_strangers, scan_with_strangers};
use test_rig::{Operation, TestEnsemble, on_every_ensemble};

use crate::enqueue;

const PATH: &str = "/locks/orders";

on_every_ensemble!(
    front_of_what_only_strangers_block_is_those,
    left_node_is_shown_before_anybody_waits_for_it,
    owners_within_others_are_named_with_them_and_deadlocks_over_both_found,
);
on_every_ensemble!(
    but_etcd:
    front_of_a_queue_is_read_and_the_rest_counted,
);

async fn front_of_a_queue_is_read_and_the_rest_counted(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let empty = inspect_front(&session, "/locks", 3).await;
    assert!(empty.is_err(), "{empty:?}");
    let readers = [
        lock.read().await.unwrap(),
        lock.read().await.unwrap(),
        lock.read().await.unwrap(),
    ];
    let (_, writer) = enqueue(&ensemble, PATH, lock.write()).await;
    let (_, last) = enqueue(&ensemble, PATH, lock.read()).await;
    if let TestEnsemble::Memory(ensemble) = &ensemble {
        ensemble.reset_requests();
    }
    let front = inspect_front(&session, PATH, 2).await.unwrap();
    if let TestEnsemble::Memory(ensemble) = &ensemble {
        let requests = ensemble.requests().into_iter().map(|it| it.operation);
        let expected = [Operation::List, Operation::Read, Operation::Read];
        assert_eq!(requests.collect::<Vec<_>>(), expected);
    }
    let expected = (Recipe::ReadWrite, 3, 2, 2);
    let seen = (
        front.recipe,
        front.holders,
        front.waiters,
        front.first.len(),
    );
    assert_eq!(seen, expected);
    for (contender, sequence) in front.first.iter().zip(0..) {
        assert_eq!(contender.standing, Standing::Holds);
        assert_eq!(contender.participant.sequence, Some(sequence));
    }
    for reader in readers {
        reader.release().await.unwrap();
    }
    writer.await.unwrap().unwrap().release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();
    match inspect_front(&session, PATH, 2).await {
        // The server has removed the directory, which nobody uses any more.
        Err(QueryError::NoSuchNode { .. }) => {}
        front => {
            let front = front.unwrap();
            assert_eq!((front.holders, front.waiters, front.first.len()), (0, 0, 0));
        }
    }
}

async fn front_of_what_only_strangers_block_is_those(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let stranger = format!("{PATH}/-stranger");
    ensemble.create(&stranger, b"").await;
    ensemble.create(&format!("{PATH}/zstranger"), b"").await;
    let front = inspect_front(&session, PATH, 3).await.unwrap();
    assert_eq!((front.holders, front.waiters, front.first.len()), (0, 0, 0));
    assert_eq!(front.strangers, ["-stranger", "zstranger"]);
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let (_, waiting) = enqueue(&ensemble, PATH, lock.acquire()).await;
    let front = inspect_front(&session, PATH, 3).await.unwrap();
    assert_eq!((front.holders, front.waiters), (0, 1));
    let [first] = &front.first[..] else {
        panic!("{front:?}")
    };
    let seen = (&first.participant.path, &first.standing);
    assert_eq!(seen, (&stranger, &Standing::Stranger));
    ensemble.delete(&stranger).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

async fn left_node_is_shown_before_anybody_waits_for_it(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let left = format!("{PATH}/lock-0000000000");
    ensemble.create(&left, b"").await;
    ensemble.create("/data/block-0000000001", b"").await;
    assert!(scan(&session, "/").await.unwrap().locks.is_empty());
    let shown = inspect_with_strangers(&session, PATH).await.unwrap();
    assert_eq!(shown.recipe, Recipe::Mutex);
    assert_eq!(shown.contenders[0].participant.path, left);
    assert_eq!(shown.contenders[0].standing, Standing::Stranger);
    let scanned = scan_with_strangers(&session, "/").await.unwrap();
    assert_eq!(scanned.locks, [shown]);
    let refused = inspect_with_strangers(&session, "/data").await;
    assert!(refused.is_err(), "{refused:?}");
}

async fn owners_within_others_are_named_with_them_and_deadlocks_over_both_found(
    ensemble: TestEnsemble,
) {
    let [a, b] = ["/locks/a", "/locks/b"];
    let owners = [Owner::new(), Owner::new()];
    let outer = ensemble.session().await;
    let mutex = |session: &Session, path: &str| InterProcessMutex::new(session, path).unwrap();
    let held = [
        mutex(&outer, a).acquire().owner(&owners[0]).await.unwrap(),
        mutex(&outer, b).acquire().owner(&owners[1]).await.unwrap(),
    ];
    let mut waiting = Vec::new();
    for (owner, path) in owners.iter().zip([b, a]) {
        let inner = ZooKeeper::builder().within(&owner.id());
        let inner = ensemble.session_with(inner).await;
        let lock = mutex(&inner, path);
        let nested = Owner::new();
        let acquire = lock.acquire().owner(&nested);
        waiting.push(enqueue(&ensemble, path, acquire).await.1);
        let seen = lock.participants().await.unwrap();
        let named = seen[1].identity().unwrap().owner.unwrap();
        assert_eq!(named, format!("{}/{}", owner.id(), nested.id()));
    }
    let locks = scan(&outer, "/locks").await.unwrap().locks;
    let cycles = WaitForGraph::of(&locks).cycles();
    assert_eq!(cycles.len(), 1, "{cycles:?}");
    assert_eq!(cycles[0].len(), 2, "{cycles:?}");
    for held in held {
        held.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}
