//! Inspection of one lock.

use futures::poll;
use lock_recipes::{
    Acls, Error, InterProcessMutex, InterProcessReadWriteLock, LockKind, LockOptions, Owner,
    QueryError, Recipe, Session, Standing, inspect,
};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};
use zookeeper_client::CreateMode;

use crate::{enqueue, told};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

on_every_ensemble!(
    mutex_shows_holder_and_waiters_in_order_with_owner_and_purpose,
    nodes_that_owners_share_name_none,
    readers_and_writers_are_shown_as_they_wait,
    queue_that_moves_on_while_it_is_read_is_never_an_error,
);
on_every_ensemble!(
    but_etcd:
    strangers_and_nodes_of_others_are_shown_where_they_stand,
);

async fn mutex_shows_holder_and_waiters_in_order_with_owner_and_purpose(ensemble: TestEnsemble) {
    let (one, other) = (ensemble.session().await, ensemble.session().await);
    let options = LockOptions::new().purpose("nightly export").unwrap();
    let lock = InterProcessMutex::with_options(&one, PATH, &options).unwrap();
    let owner = Owner::new();
    let held = lock.acquire().owner(&owner).await.unwrap();
    let lock = mutex(&other);
    let (second, waiting) = enqueue(&ensemble, PATH, async move { lock.acquire().await }).await;
    let lock = mutex(&other);
    let (third, last) = enqueue(&ensemble, PATH, async move { lock.acquire().await }).await;

    let seen = inspect(&one, PATH).await.unwrap();
    let first = held.members()[0]
        .node_path
        .rsplit_once('/')
        .unwrap()
        .1
        .to_owned();
    assert_eq!((seen.path.as_str(), seen.recipe), (PATH, Recipe::Mutex));
    assert_eq!(
        told(&seen),
        [
            (first.clone(), "holds".to_owned()),
            (second.clone(), first),
            (third, second),
        ]
    );
    assert_eq!((seen.holders().count(), seen.waiters().count()), (1, 2));
    let identities: Vec<_> = seen
        .contenders
        .iter()
        .map(|it| it.participant.identity().unwrap())
        .collect();
    assert_eq!(identities[0].owner, Some(owner.id()));
    assert_eq!(identities[0].purpose.as_deref(), Some("nightly export"));
    assert_eq!(identities[1].purpose, None);
    // A task of its own acquired each.
    let owners = [&identities[1].owner, &identities[2].owner];
    assert!(
        owners[0].is_some() && owners[1].is_some() && owners[0] != owners[1],
        "{owners:?}"
    );
    assert!(
        seen.contenders
            .iter()
            .all(|it| it.mode == Some(LockKind::Mutex) && it.is_readable)
    );
    let sessions: Vec<_> = seen
        .contenders
        .iter()
        .map(|it| it.participant.session_id)
        .collect();
    let (one_id, other_id) = (one.session_id().unwrap(), other.session_id().unwrap());
    assert_eq!(sessions, [one_id, other_id, other_id]);

    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();
}

async fn nodes_that_owners_share_name_none(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let options = LockOptions::new().local_handoffs(3);
    let lock = InterProcessMutex::with_options(&session, PATH, &options).unwrap();
    let held = lock.acquire().owner(&Owner::new()).await.unwrap();
    let seen = inspect(&session, PATH).await.unwrap();
    assert_eq!(
        seen.contenders[0].participant.identity().unwrap().owner,
        None
    );
    held.release().await.unwrap();
    // Readers do not share.
    let lock = InterProcessReadWriteLock::with_options(&session, "/locks/rw", &options).unwrap();
    let owner = Owner::new();
    let held = lock.read().owner(&owner).await.unwrap();
    let seen = inspect(&session, "/locks/rw").await.unwrap();
    assert_eq!(
        seen.contenders[0].participant.identity().unwrap().owner,
        Some(owner.id())
    );
    held.release().await.unwrap();
}

async fn readers_and_writers_are_shown_as_they_wait(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let writer = Owner::new();
    let writing = lock.write().owner(&writer).await.unwrap();
    let beside = lock.read().owner(&writer).await.unwrap();
    let wants = lock.clone();
    let (second, waiting) = enqueue(&ensemble, PATH, async move { wants.write().await }).await;
    let wants = lock.clone();
    let (third, last) = enqueue(&ensemble, PATH, async move { wants.read().await }).await;

    let name = |path: &str| path.rsplit_once('/').unwrap().1.to_owned();
    let written = name(&writing.members()[0].node_path);
    let read = name(&beside.members()[0].node_path);
    let seen = inspect(&session, PATH).await.unwrap();
    assert_eq!(seen.recipe, Recipe::ReadWrite);
    assert_eq!(
        told(&seen),
        [
            (written.clone(), "holds".to_owned()),
            (read.clone(), "holds".to_owned()),
            (second.clone(), format!("{read} {written}")),
            (third.clone(), second.clone()),
        ]
    );
    // After the downgrade only the reader holds, and the writer waits for it.
    writing.release().await.unwrap();
    let seen = inspect(&session, PATH).await.unwrap();
    assert_eq!(
        told(&seen),
        [
            (read.clone(), "holds".to_owned()),
            (second.clone(), read),
            (third, second)
        ]
    );
    beside.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();
}

async fn strangers_and_nodes_of_others_are_shown_where_they_stand(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    ensemble
        .create(&format!("{PATH}/-stranger"), b"\x1f\x8b\x08\x00")
        .await;
    ensemble
        .create(&format!("{PATH}/lock-0000000001"), b"127.0.0.1")
        .await;
    ensemble
        .create(&format!("{PATH}/zstranger"), b"__REVOKE__")
        .await;
    let lock = mutex(&session);
    let (ours, waiting) = enqueue(&ensemble, PATH, async move { lock.acquire().await }).await;
    let seen = inspect(&session, PATH).await.unwrap();
    let stranger = |name: &str| (name.to_owned(), "stranger".to_owned());
    assert_eq!(
        told(&seen),
        [
            stranger("-stranger"),
            stranger("lock-0000000001"),
            (ours, "lock-0000000001 -stranger".to_owned()),
            stranger("zstranger"),
        ]
    );
    let data: Vec<_> = seen
        .contenders
        .iter()
        .map(|it| it.participant.data.as_slice())
        .collect();
    assert_eq!(
        (data[0], data[1]),
        (&b"\x1f\x8b\x08\x00"[..], &b"127.0.0.1"[..])
    );
    for (index, is_asked) in [(0, false), (1, false), (2, false), (3, true)] {
        let participant = &seen.contenders[index].participant;
        assert_eq!(
            participant.revocation_requested(),
            is_asked,
            "{participant:?}"
        );
        assert_eq!(
            participant.identity().is_some(),
            index == 2,
            "{participant:?}"
        );
    }
    ensemble.delete(&format!("{PATH}/-stranger")).await;
    ensemble.delete(&format!("{PATH}/lock-0000000001")).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// One of them is of a client that does not look at others, which only ZooKeeper has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_recipes_in_a_directory_are_unknown_and_stand_as_each_takes_it_on_a_real_server() {
    let ensemble = test_rig::shared::on_a_real_server().await;
    let one = ensemble.session().await;
    let held = mutex(&one).acquire().await.unwrap();
    let written = format!("{PATH}/_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000007");
    let TestEnsemble::Real(server) = &ensemble else {
        panic!("no ZooKeeper");
    };
    let other = server.client_of_place().await;
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    other.create(&written, b"", &ephemeral).await.unwrap();
    let seen = inspect(&one, PATH).await.unwrap();
    assert_eq!(seen.recipe, Recipe::Unknown);
    assert!(
        seen.contenders
            .iter()
            .all(|it| it.standing == Standing::Holds),
        "{seen:?}"
    );
    held.release().await.unwrap();
    ensemble.delete(&written).await;
}

/// Nodes may leave between the list and the reads.
async fn queue_that_moves_on_while_it_is_read_is_never_an_error(ensemble: TestEnsemble) {
    let (busy, session) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&busy).acquire().await.unwrap();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let lock = mutex(&busy);
            tokio::spawn(async move {
                for _ in 0..25 {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    ensemble.await_children(PATH, 5).await;
    held.release().await.unwrap();
    while workers.iter().any(|it| !it.is_finished()) {
        match inspect(&session, PATH).await {
            Ok(seen) => assert!(seen.holders().count() <= 1, "{seen:?}"),
            Err(
                Error::Query(QueryError::NotALock { .. })
                | Error::Query(QueryError::NoSuchNode { .. }),
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
    for worker in workers {
        worker.await.unwrap();
    }
}

/// Only in memory can a test choose when the node leaves.
#[tokio::test(start_paused = true)]
async fn node_that_leaves_before_it_is_read_is_left_out() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let (first, second) = (mutex(&session), mutex(&session));
    let held = first.acquire().await.unwrap();
    let waiting = tokio::spawn(second.acquire());
    while ensemble.children(PATH).len() < 2 {
        tokio::task::yield_now().await;
    }
    let node = held.members()[0].node_path.clone();
    for (node, holders) in [(Some(node), 1), (None, 0)] {
        ensemble.reset_requests();
        let mut seeing = Box::pin(inspect(&session, PATH));
        let is_listed = || {
            let requests = ensemble.requests();
            requests.iter().any(|it| it.operation == Operation::List)
        };
        while !is_listed() {
            assert!(poll!(&mut seeing).is_pending());
        }
        // The node is in the listing, but gone.
        let gone = node.map_or_else(
            || ensemble.children(PATH),
            |it| vec![it.rsplit_once('/').unwrap().1.to_owned()],
        );
        for name in gone {
            ensemble.delete(&format!("{PATH}/{name}")).unwrap();
        }
        let seen = seeing.await.unwrap();
        assert_eq!(seen.recipe, Recipe::Mutex);
        assert_eq!(seen.holders().count(), holders, "{seen:?}");
        assert_eq!(seen.contenders.len(), holders, "{seen:?}");
        if holders == 0 {
            waiting.abort();
            break;
        }
    }
}
