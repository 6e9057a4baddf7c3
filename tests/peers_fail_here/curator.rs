//! The recipes of Curator 5.4.

use std::time::Duration;

use recipes_testing::{CuratorPeer, TestEnsemble};
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{
    AcquireError, InterProcessReadWriteLock, Owner, ReleaseError, Session, SessionHealth,
};

use crate::{MOMENT, OURS, PATIENCE, THEIRS, client, mutex, server, soon};

const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Curator gives a session up after four thirds of it.
const SHORT: Duration = Duration::from_secs(6);

/// Curator, with clients named `c` and `d`.
async fn curator(ensemble: &TestEnsemble, session_timeout: Duration) -> CuratorPeer {
    let curator = CuratorPeer::start().await.unwrap();
    let version = curator.curator_version();
    assert!(version.starts_with("5.4."), "faults of 5.4, not {version}");
    let connect_string = server(ensemble).connect_string();
    for client in ["c", "d"] {
        let opened = curator.open(client, &connect_string, session_timeout);
        opened.await.unwrap();
    }
    curator
}

/// D2: the lock object does not hear what its client knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_is_not_told_of_its_loss_where_ours_is() {
    let ensemble = TestEnsemble::on_a_real_server().await;
    let curator = curator(&ensemble, SESSION_TIMEOUT).await;
    curator.mutex("m", "c", THEIRS).await.unwrap();
    curator.mutex("n", "d", THEIRS).await.unwrap();
    assert!(curator.acquire("t", "m", None).await.unwrap());
    let next = curator.acquire("u", "n", Some(PATIENCE));
    ensemble.await_children(THEIRS, 2).await;

    let session = curator.session("c").await.unwrap();
    server(&ensemble).expire(session).await.unwrap();
    assert!(next.await.unwrap());
    ensemble
        .until("a client that knows", async || {
            let state = curator.state("c").await.unwrap();
            (state == "RECONNECTED").then_some(())
        })
        .await;
    for lock in ["m", "n"] {
        assert!(curator.held(lock).await.unwrap(), "two holders");
    }
    let reentered = curator.acquire("t", "m", Some(Duration::ZERO));
    assert!(reentered.await.unwrap());
    for _ in 0..2 {
        curator.release("t", "m").await.unwrap();
    }

    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let owner = Owner::new();
    let held = mutex(&holding, OURS).acquire_as(&owner).await.unwrap();
    let waiter = mutex(&waiting, OURS);
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    ensemble.await_children(OURS, 2).await;
    ensemble.expire(&holding).await;
    soon(held.lost()).await;
    assert!(!held.is_valid());
    let again = mutex(&holding, OURS).acquire_as(&owner).await.unwrap_err();
    assert!(matches!(again, AcquireError::Lost(_)), "{again}");
    let released = held.release().await.unwrap_err();
    assert!(matches!(released, ReleaseError::Lost(_)), "{released}");
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// D1: after an outage that outlasts a session its client has a new one, while the server, which
/// counts anew from its start, still has the old one and its node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_granted_on_the_node_of_a_dead_session_where_ours_queues_again() {
    let ensemble = TestEnsemble::on_a_real_server().await;
    let curator = curator(&ensemble, SHORT).await;
    curator.mutex("m", "c", THEIRS).await.unwrap();
    let waiting = ensemble
        .session_with(Session::builder().session_timeout(SHORT))
        .await;

    // In front of each waiter stands a node that outlives the outage.
    let operator = client(&ensemble).await;
    let mut in_front = Vec::new();
    for path in [THEIRS, OURS] {
        ensemble.create(path, b"").await;
        let prefix = format!("{path}/_c_00000000-0000-4000-8000-000000000000-lock-");
        let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = operator.create(&prefix, b"", &options).await.unwrap();
        in_front.push(format!("{prefix}{sequence}"));
    }
    let theirs = curator.acquire("t", "m", None);
    let ours = mutex(&waiting, OURS);
    let ours = tokio::spawn(async move { ours.acquire().await });
    ensemble.await_children(THEIRS, 2).await;
    let before = ensemble.await_children(OURS, 2).await;
    let dead = curator.session("c").await.unwrap();

    ensemble.stop().await;
    let mut health = waiting.watch_health();
    while waiting.health() != SessionHealth::Connecting {
        health.changed().await;
    }
    let gave_up = async || (curator.state("c").await.unwrap() == "LOST").then_some(());
    ensemble.until("an outage that is too long", gave_up).await;
    ensemble.start_again().await;
    ensemble
        .until("a new session", async || {
            let state = curator.state("c").await.unwrap();
            (state == "RECONNECTED").then_some(())
        })
        .await;
    for node in in_front {
        ensemble.delete(&node).await;
    }

    assert!(theirs.await.unwrap());
    let node = curator.lock_path("t", "m").await.unwrap().unwrap();
    let stat = curator.stat("d", &node).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, dead);
    assert_ne!(curator.session("c").await.unwrap(), dead);
    // So the next one gets in beside it when the server ends that session.
    let beside = mutex(&ensemble.session().await, THEIRS).acquire().await;
    assert!(curator.held("m").await.unwrap(), "two holders");
    beside.unwrap().release().await.unwrap();

    let granted = soon(ours).await.unwrap().unwrap();
    let own = granted.members()[0].node_path.clone();
    assert!(before.iter().all(|old| !own.ends_with(old)), "{own}");
    let (_, stat) = ensemble.read(&own).await.unwrap();
    assert_eq!(Some(stat.ephemeral_owner), waiting.session_id());
    granted.release().await.unwrap();
}

/// D4, mended in 5.5.0: the reader queues behind the writer that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downgrade_lets_a_queued_writer_in_where_ours_keeps_it_out() {
    let ensemble = TestEnsemble::on_a_real_server().await;
    let curator = curator(&ensemble, SESSION_TIMEOUT).await;
    curator.read_write_lock("m", "c", THEIRS).await.unwrap();
    curator.read_write_lock("n", "d", THEIRS).await.unwrap();
    assert!(curator.acquire("t", "m.write", None).await.unwrap());
    let queued = curator.acquire("u", "n.write", Some(PATIENCE));
    ensemble.await_children(THEIRS, 2).await;
    assert!(curator.acquire("t", "m.read", None).await.unwrap());
    curator.release("t", "m.write").await.unwrap();
    assert!(queued.await.unwrap());
    for lock in ["m.read", "n.write"] {
        assert!(curator.held(lock).await.unwrap(), "a reader and a writer");
    }

    let (first, second) = (ensemble.session().await, ensemble.session().await);
    let lock = InterProcessReadWriteLock::new(&first, OURS).unwrap();
    let writer = lock.write().await.unwrap();
    let queued = InterProcessReadWriteLock::new(&second, OURS).unwrap();
    let mut queued = tokio::spawn(async move { queued.write().await });
    ensemble.await_children(OURS, 2).await;
    let reader = writer.downgrade().await.unwrap();
    let early = timeout(MOMENT, &mut queued).await;
    assert!(early.is_err(), "{early:?}");
    reader.verify().await.unwrap();
    reader.release().await.unwrap();
    soon(queued)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}
