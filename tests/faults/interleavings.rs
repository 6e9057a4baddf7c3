//! Events that happen at the worst moment. Each of these went wrong once.
//!
//! The tests run in memory, where they choose the moment.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::poll;
use lock_recipes::{
    Acl, AcquireError, AuthId, Error, InterProcessMutex, InterProcessReadWriteLock, LockGuard,
    LostReason, Member, MultiLock, MutexGuard, Owner, Permission, Session,
};
use test_rig::{Lost, MemoryEnsemble, Operation};

mod sessions;

const PATH: &str = "/locks/orders";
const PATIENCE: Duration = Duration::from_secs(60);

fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}

fn read_write(session: &Session) -> InterProcessReadWriteLock {
    InterProcessReadWriteLock::new(session, PATH).unwrap()
}

/// Sessions that are open, on directories that exist.
async fn stage<const N: usize>(ensemble: &MemoryEnsemble, paths: &[&str]) -> [Session; N] {
    for path in paths {
        ensemble.create(path, b"").unwrap();
    }
    let sessions = std::array::from_fn(|_| ensemble.session());
    for session in &sessions {
        session.read("/").await.unwrap();
    }
    sessions
}

/// Lets everything happen that does not wait for the clock.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Polls on, and returns the guard if there is one soon.
async fn granted<G, E: std::fmt::Debug>(
    mut acquire: std::pin::Pin<&mut impl Future<Output = Result<G, E>>>,
) -> Option<G> {
    for _ in 0..50 {
        if let Poll::Ready(granted) = poll!(&mut acquire) {
            return Some(granted.unwrap());
        }
        tokio::task::yield_now().await;
    }
    None
}

fn node_besides(ensemble: &MemoryEnsemble, held: &MutexGuard) -> String {
    let held = &held.members()[0].node_path;
    let nodes = ensemble
        .children(PATH)
        .into_iter()
        .map(|name| format!("{PATH}/{name}"));
    nodes.into_iter().find(|node| node != held).unwrap()
}

fn assert_not_both(one: Option<LockGuard>, other: &MutexGuard) {
    let both = one.is_some_and(|one| one.is_valid()) && other.is_valid();
    assert!(!both, "two valid guards");
}

#[tokio::test(start_paused = true)]
async fn own_node_and_the_one_ahead_are_deleted_before_they_are_watched() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2, s3] = stage(&ensemble, &[PATH]).await;
    let held = mutex(&s1, PATH).acquire().await.unwrap();
    let waiting = mutex(&s2, PATH);
    let mut waiter = Box::pin(waiting.acquire());
    // Create and list are in flight.
    assert!(poll!(&mut waiter).is_pending());
    let waiters_node = node_besides(&ensemble, &held);
    let next = mutex(&s3, PATH);
    let next = tokio::spawn(next.acquire());
    settle().await;
    ensemble.delete(&waiters_node).unwrap();
    held.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_not_both(granted(waiter.as_mut()).await.map(Into::into), &next);
}

#[tokio::test(start_paused = true)]
async fn own_watch_is_used_up_when_both_are_deleted() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2, s3] = stage(&ensemble, &[PATH]).await;
    let held = mutex(&s1, PATH).acquire().await.unwrap();
    let waiting = mutex(&s2, PATH);
    let mut waiter = Box::pin(waiting.acquire());
    assert!(granted(waiter.as_mut()).await.is_none());
    let waiters_node = node_besides(&ensemble, &held);
    let next = mutex(&s3, PATH);
    let next = tokio::spawn(next.acquire());
    settle().await;
    ensemble.set_data(&waiters_node, b"__REVOKE__").unwrap();
    ensemble.delete(&waiters_node).unwrap();
    held.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_not_both(granted(waiter.as_mut()).await.map(Into::into), &next);
}

#[tokio::test(start_paused = true)]
async fn earlier_member_of_a_set_is_deleted_before_it_is_watched() {
    let ensemble = MemoryEnsemble::builder()
        .stats_in_transactions(true)
        .build();
    let [s1, s2, s3] = stage(&ensemble, &["/a", "/b"]).await;
    let held = mutex(&s1, "/b").acquire().await.unwrap();
    let set = MultiLock::new(&s2, ["/a", "/b"].map(Member::mutex)).unwrap();
    let mut waiter = Box::pin(set.acquire());
    assert!(poll!(&mut waiter).is_pending());
    ensemble
        .delete(&format!("/a/{}", ensemble.children("/a")[0]))
        .unwrap();
    held.release().await.unwrap();
    let other = mutex(&s3, "/a").acquire().await.unwrap();
    assert_not_both(granted(waiter.as_mut()).await.map(Into::into), &other);
}

#[tokio::test(start_paused = true)]
async fn wrapped_sequence_is_refused_when_its_reply_was_lost() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2] = stage(&ensemble, &[PATH]).await;
    ensemble.set_sequence(PATH, i32::MAX - 1).unwrap();
    let held = mutex(&s1, PATH).acquire().await.unwrap();
    ensemble.lose_reply(s2.session_id(), Operation::Create, Lost::AfterCommit);
    let refused = mutex(&s2, PATH)
        .acquire()
        .timeout(PATIENCE)
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Acquire(AcquireError::SequenceExhausted { .. })
        ),
        "{refused}"
    );
    assert!(held.is_valid());
}

#[tokio::test(start_paused = true)]
async fn stranger_that_is_made_again_still_blocks_and_costs_no_spin() {
    let ensemble = MemoryEnsemble::new();
    let pause = format!("{PATH}/-pause");
    let [s1] = stage(&ensemble, &[PATH, &pause, &format!("{PATH}/0000000000")]).await;
    let (one, other) = (mutex(&s1, PATH), mutex(&s1, PATH));
    let waiters = [one, other].map(|it| tokio::spawn(async move { it.acquire().await.map(drop) }));
    settle().await;
    ensemble.delete(&pause).unwrap();
    ensemble.create(&pause, b"").unwrap();
    ensemble.delete(&format!("{PATH}/0000000000")).unwrap();
    settle().await;
    ensemble.reset_requests();
    tokio::time::sleep(PATIENCE).await;
    assert!(
        waiters.iter().all(|waiter| !waiter.is_finished()),
        "granted past a stranger"
    );
    assert_eq!(ensemble.request_count(Operation::List), 0);
    ensemble.delete(&pause).unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn writer_waits_for_its_owners_reader_that_nobody_polls() {
    let ensemble = MemoryEnsemble::new();
    let [session] = stage(&ensemble, &[PATH]).await;
    let (owner, lock) = (Owner::new(), read_write(&session));
    let mut reader = Box::pin(lock.read().owner(&owner));
    assert!(poll!(&mut reader).is_pending());
    let limit = Duration::from_millis(200);
    let refused = lock.write().owner(&owner).timeout(limit).await.unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::TimedOut { .. })),
        "{refused}"
    );
    reader.await.unwrap().release().await.unwrap();
    lock.write()
        .owner(&owner)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reader_and_writer_of_one_owner_begin_on_two_threads() {
    let ensemble = MemoryEnsemble::new();
    let [session] = stage(&ensemble, &[PATH]).await;
    let lock = read_write(&session);
    for round in 0..2000 {
        let owner = Owner::new();
        let both = Arc::new(tokio::sync::Barrier::new(2));
        let (reading, writing) = (lock.clone(), lock.clone());
        let reader = tokio::spawn({
            let (both, owner) = (Arc::clone(&both), owner.clone());
            async move {
                both.wait().await;
                reading.read().owner(&owner).timeout(PATIENCE).await
            }
        });
        let writer = tokio::spawn(async move {
            both.wait().await;
            writing.write().owner(&owner).timeout(PATIENCE).await
        });
        let reader = reader.await.unwrap();
        assert!(reader.is_ok(), "round {round}: {reader:?}");
        match writer.await.unwrap() {
            Ok(_) | Err(Error::Acquire(AcquireError::WouldDeadlock { .. })) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writer_is_released_in_good_order_while_its_reader_is_asked_for() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2] = stage(&ensemble, &["/a", PATH]).await;
    let busy = mutex(&s2, "/a").acquire().await.unwrap();
    let (owner, lock) = (Owner::new(), read_write(&s1));
    // As a member of a set that waits for another member.
    let writer = lock.write().owner(&owner).await.unwrap();
    let set = MultiLock::new(&s1, [Member::mutex("/a"), Member::read(PATH)]).unwrap();
    let waiter = tokio::spawn({
        let owner = owner.clone();
        async move { set.acquire().owner(&owner).await }
    });
    settle().await;
    writer.release().await.unwrap();
    busy.release().await.unwrap();
    let both = tokio::time::timeout(PATIENCE, waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    both.release().await.unwrap();
    // Alone, while its connection breaks.
    let writer = lock.write().owner(&owner).await.unwrap();
    ensemble.lose_reply(s1.session_id(), Operation::Multi, Lost::BeforeCommit);
    let (reader, released) = tokio::join!(lock.read().owner(&owner), writer.release());
    released.unwrap();
    reader.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn downgrade_of_unknown_outcome_keeps_a_queued_writer_out() {
    for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
        let ensemble = MemoryEnsemble::new();
        let [s1, s2] = stage(&ensemble, &[PATH]).await;
        let writer = read_write(&s1).write().await.unwrap();
        let queued = read_write(&s2);
        let queued = tokio::spawn(queued.write());
        settle().await;
        ensemble.lose_reply(s1.session_id(), Operation::Multi, lost);
        let reader = writer.downgrade().await.unwrap();
        settle().await;
        assert!(!queued.is_finished(), "{lost:?}");
        reader.release().await.unwrap();
        queued.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_missing_directory_of_a_set_does_not_need_rights_beside_the_others() {
    let ensemble = MemoryEnsemble::new();
    let only_read = [Acl::new(Permission::READ, AuthId::anyone())];
    ensemble
        .create_with_acl("/closed", b"", &only_read)
        .unwrap();
    let [session] = stage(&ensemble, &["/closed/x"]).await;
    let set = MultiLock::new(&session, ["/closed/x", "/open/y"].map(Member::mutex)).unwrap();
    set.acquire()
        .timeout(PATIENCE)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_refused_delete_of_a_set_leaves_only_its_own_node() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2] = stage(&ensemble, &["/a", "/b", "/c"]).await;
    let busy = mutex(&s2, "/a").acquire().await.unwrap();
    ensemble.deny("/c", Operation::Delete);
    let set = MultiLock::new(&s1, ["/a", "/b", "/c"].map(Member::mutex)).unwrap();
    // Later it would wait for its own node in /c. It is an error that the node stays.
    let refused = set.acquire().timeout(PATIENCE).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Acquire(AcquireError::NotAuthorized { path, .. }) if path == "/b"),
        "{refused}"
    );
    settle().await;
    assert_eq!(ensemble.children("/a").len(), 1);
    assert_eq!(
        (ensemble.children("/b").len(), ensemble.children("/c").len()),
        (0, 1)
    );
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn member_that_was_re_entered_is_lost_while_the_set_waits() {
    let ensemble = MemoryEnsemble::new();
    let [s1, s2] = stage(&ensemble, &["/a", "/b"]).await;
    let _busy = mutex(&s2, "/b").acquire().await.unwrap();
    let owner = Owner::new();
    let held = mutex(&s1, "/a").acquire().owner(&owner).await.unwrap();
    let set = MultiLock::new(&s1, ["/a", "/b"].map(Member::mutex)).unwrap();
    let waiter = tokio::spawn(set.acquire().owner(&owner));
    settle().await;
    ensemble.delete(&held.members()[0].node_path).unwrap();
    let lost = tokio::time::timeout(PATIENCE, waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(&lost, Error::Acquire(AcquireError::Lost(lost)) if lost.reason == LostReason::NodeRemoved),
        "{lost}"
    );
}
