//! What kazoo 2.11.0 does not share by itself.

use lock_recipes::{AcquireError, Error, InterProcessReadWriteLock};
use test_rig::{CuratorPeer, ForeignPeer, Naming, TestEnsemble};

use super::{OURS, PATIENCE, THEIRS, mutex, server, soon};

/// kazoo with a client `c`.
async fn set_up() -> (TestEnsemble, ForeignPeer) {
    let ensemble = test_rig::own::on_a_real_server().await;
    let kazoo = ForeignPeer::kazoo().await.unwrap();
    assert_eq!(kazoo.version(), "2.11.0");
    let at = server(&ensemble).connect_string();
    kazoo.open("c", &at, PATIENCE).await.unwrap();
    (ensemble, kazoo)
}

/// Without `extra_lock_patterns` it counts no names but its own. We wait for it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoo_without_patterns_is_granted_next_to_us_where_we_wait_for_it() {
    let (ensemble, kazoo) = set_up().await;
    for (lock, naming) in [("m", Naming::Own), ("n", Naming::Counting)] {
        kazoo.lock(lock, "c", THEIRS, naming).await.unwrap();
    }
    let session = ensemble.session().await;
    let lock = mutex(&session, THEIRS);
    let held = lock.acquire().await.unwrap();
    assert!(kazoo.acquire("t", "m", None).await.unwrap());
    held.verify().await.unwrap(); // two holders
    held.release().await.unwrap();
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(THEIRS, 2).await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    kazoo.release("t", "m").await.unwrap();
    let held = soon(waiter).await.unwrap().unwrap();

    let theirs = kazoo.acquire("t", "n", None);
    ensemble.await_children(THEIRS, 2).await;
    held.verify().await.unwrap();
    held.release().await.unwrap();
    assert!(soon(theirs).await.unwrap());
}

/// The lock object looks for the directory only once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_object_fails_when_its_directory_was_reaped_where_ours_makes_it_again() {
    let (ensemble, kazoo) = set_up().await;
    let session = ensemble.session().await;
    let lock = mutex(&session, THEIRS);
    // We make the directories: containers. Theirs is not empty before kazoo has come: kazoo would
    // make one that is never reaped.
    let held = mutex(&session, OURS).acquire().await.unwrap();
    held.release().await.unwrap();
    let held = lock.acquire().await.unwrap();
    for lock in ["m", "n"] {
        let made = kazoo.lock(lock, "c", THEIRS, Naming::Counting);
        made.await.unwrap();
    }
    let theirs = kazoo.acquire("t", "m", None);
    ensemble.await_children(THEIRS, 2).await;
    held.release().await.unwrap();
    assert!(theirs.await.unwrap());
    kazoo.release("t", "m").await.unwrap();
    ensemble.await_reaper(THEIRS).await;
    for _ in 0..2 {
        let error = kazoo.acquire("t", "m", None).await.unwrap_err();
        assert_eq!(error.class(), Some("NoNodeError"), "{error}");
    }
    let held = mutex(&session, OURS).acquire().await.unwrap();
    held.release().await.unwrap();
    // Another object looks for it again.
    assert!(kazoo.acquire("t", "n", None).await.unwrap());
    kazoo.release("t", "n").await.unwrap();
}

/// Curator compares the uuid of kazoo's names with its own numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curator_passes_kazoos_own_names_where_we_wait_for_them() {
    let (ensemble, kazoo) = set_up().await;
    let curator = CuratorPeer::start().await.unwrap();
    let at = server(&ensemble).connect_string();
    curator.open("c", &at, PATIENCE).await.unwrap();
    curator.mutex("m", "c", THEIRS).await.unwrap();
    let made = kazoo.lock("m", "c", THEIRS, Naming::Counting);
    made.await.unwrap();

    assert!(kazoo.acquire("t", "m", None).await.unwrap());
    let session = ensemble.session().await;
    let lock = mutex(&session, THEIRS);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let theirs = curator.acquire("t", "m", Some(PATIENCE));
    assert!(theirs.await.unwrap(), "two holders");
    curator.release("t", "m").await.unwrap();
    kazoo.release("t", "m").await.unwrap();
}

/// Neither side takes the other's readers and writers for such. Ours refuses what it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoos_own_readers_and_writers_share_no_lock_with_ours() {
    let (ensemble, kazoo) = set_up().await;
    for (lock, naming) in [("r", Naming::OwnRead), ("w", Naming::OwnWrite)] {
        kazoo.lock(lock, "c", THEIRS, naming).await.unwrap();
    }
    let session = ensemble.session().await;
    let lock = InterProcessReadWriteLock::new(&session, THEIRS).unwrap();
    let writer = lock.write().await.unwrap();
    assert!(kazoo.acquire("t", "w", None).await.unwrap());
    writer.verify().await.unwrap(); // two writers
    writer.release().await.unwrap();
    // Its writer has the name of its mutex, so ours is refused if it comes later.
    let refused = soon(lock.write()).await.unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::RecipeDiffers { .. })),
        "{refused}"
    );
    kazoo.release("t", "w").await.unwrap();
    let writer = soon(lock.write()).await.unwrap();
    assert!(kazoo.acquire("t", "r", None).await.unwrap());
    writer.verify().await.unwrap(); // a writer and a reader
    writer.release().await.unwrap();
    // Nor does our mutex wait for its readers.
    let other = ensemble.session().await;
    let held = soon(mutex(&other, THEIRS).acquire()).await.unwrap();
    held.release().await.unwrap();
    kazoo.release("t", "r").await.unwrap();
}
