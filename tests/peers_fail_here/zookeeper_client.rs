//! The lock and the watches of zookeeper-client 0.11.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use recipes_testing::TestEnsemble;
use tokio::time::timeout;
use zookeeper_client::{
    Acls, AddWatchMode, Client, EventType, LockClient, LockPrefix, SessionState,
};
use zookeeper_recipes::LostReason;

use crate::{MOMENT, OURS, THEIRS, client, mutex, soon};

/// As the documentation of the client says for locks that Curator shares.
async fn lock(client: &Client) -> Result<LockClient<'_>, zookeeper_client::Error> {
    let prefix = LockPrefix::new_curator(THEIRS, "lock-").unwrap();
    client.lock(prefix, b"", Acls::anyone_all()).await
}

/// Its clean-up deletes the name of the node without the parent's path, which is no path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_acquire_leaves_its_node_where_ours_leaves_none() {
    let ensemble = TestEnsemble::on_a_real_server().await;
    for path in [THEIRS, OURS] {
        ensemble.create(path, b"").await;
    }

    let (dropping, next) = (client(&ensemble).await, client(&ensemble).await);
    {
        let mut acquire = pin!(lock(&dropping));
        assert!(poll!(&mut acquire).is_pending(), "the create is in flight");
    }
    let left = ensemble.await_children(THEIRS, 1).await;
    let blocked = timeout(MOMENT, lock(&next)).await;
    assert!(blocked.is_err(), "{blocked:?}");
    // The next one's own node does go: it was dropped after its create had been answered.
    assert_eq!(ensemble.await_children(THEIRS, 1).await, left);
    // Only the end of the session frees the lock.
    drop(dropping);
    drop(lock(&next).await.unwrap());

    let (dropping, next) = (ensemble.session().await, ensemble.session().await);
    {
        let dropping = mutex(&dropping, OURS);
        let mut acquire = pin!(dropping.acquire());
        assert!(poll!(&mut acquire).is_pending(), "the create is in flight");
    }
    let watcher = client(&ensemble).await;
    let created_and_deleted = async || {
        let stat = watcher.check_stat(OURS).await.unwrap().unwrap();
        (stat.cversion == 2 && stat.num_children == 0).then_some(())
    };
    ensemble
        .until("a node made and deleted", created_and_deleted)
        .await;
    let granted = timeout(MOMENT, mutex(&next, OURS).acquire()).await;
    granted.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_clone_releases_the_lock_where_our_guards_are_counted() {
    let ensemble = TestEnsemble::on_a_real_server().await;
    ensemble.create(THEIRS, b"").await;

    let (holding, next) = (client(&ensemble).await, client(&ensemble).await);
    let held = lock(&holding).await.unwrap().into_owned();
    drop(held.clone());
    let granted = lock(&next).await.unwrap();
    // Who kept the original is not told: it still names a node, which is gone.
    assert_ne!(held.lock_path(), granted.lock_path());
    assert!(ensemble.read(held.lock_path()).await.is_none());

    let (holding, next) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding, OURS).acquire().await.unwrap();
    held.reenter().unwrap().release().await.unwrap();
    assert_eq!(held.hold_count(), 1);
    assert!(mutex(&next, OURS).try_acquire().await.unwrap().is_none());
    held.verify().await.unwrap();
}

/// After a reconnect the client sets its one-shot watches again, and leaves out the persistent
/// ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn persistent_watch_is_silent_after_a_reconnect_where_ours_are_heard() {
    let ensemble = TestEnsemble::on_a_real_server().await;
    for path in [THEIRS, "/witness"] {
        ensemble.create(path, b"").await;
    }
    let watching = Client::connector()
        .with_session_timeout(Duration::from_secs(40))
        .connect(&crate::server(&ensemble).connect_string())
        .await
        .unwrap();
    let mut watch = watching
        .watch(THEIRS, AddWatchMode::Persistent)
        .await
        .unwrap();
    ensemble.set(THEIRS, b"before").await;
    assert_eq!(watch.changed().await.event_type, EventType::NodeDataChanged);
    let (_, _, witness) = watching.get_and_watch_data("/witness").await.unwrap();
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding, OURS).acquire().await.unwrap();
    let waiter = mutex(&waiting, OURS);
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    ensemble.await_children(OURS, 2).await;

    ensemble.stop().await;
    ensemble.start_again().await;
    while watch.changed().await.session_state != SessionState::SyncConnected {}
    // Behind the request in which the client sets its watches again.
    watching.get_data(THEIRS).await.unwrap();
    ensemble.set(THEIRS, b"after").await;
    ensemble.set("/witness", b"after").await;
    assert_eq!(
        witness.changed().await.event_type,
        EventType::NodeDataChanged
    );
    // The server tells changes in their order, so the other one would be here by now.
    let told = pin!(watch.changed());
    assert!(poll!(told).is_pending());

    // The holder's watch on its own node, then the waiter's on the holder's.
    ensemble.delete(&held.members()[0].node_path).await;
    assert_eq!(soon(held.lost()).await.reason, LostReason::NodeRemoved);
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!((holding.epoch(), waiting.epoch()), (1, 1));
}
