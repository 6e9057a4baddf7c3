//! Sets of locks: all of them or none.

use std::time::Duration;

use lock_recipes::{
    AcquireError, ConfigError, DistributedLock, Error, GuardState, InterProcessMutex,
    InterProcessReadWriteLock, LockFactory, Member, MultiLock, Owner, ReleaseError, Session,
};
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble,
};
use tokio::time::Instant;

mod endings;

const PATHS: [&str; 3] = ["/set/a", "/set/b", "/set/c"];
/// What is late for so long is not the machine's fault.
const PATIENCE: Duration = Duration::from_secs(120);

fn set(session: &Session) -> MultiLock {
    MultiLock::new(session, PATHS.map(Member::mutex)).unwrap()
}

fn mutex(session: &Session, path: &str) -> InterProcessMutex {
    InterProcessMutex::new(session, path).unwrap()
}

async fn children(ensemble: &TestEnsemble) -> [usize; 3] {
    let mut counts = [0; 3];
    for (count, path) in counts.iter_mut().zip(PATHS) {
        *count = ensemble.children(path).await.len();
    }
    counts
}

async fn await_nothing_left(ensemble: &TestEnsemble) {
    for path in PATHS {
        ensemble.await_children(path, 0).await;
    }
}

on_every_ensemble!(
    set_holds_all_its_members_and_tells_their_tokens,
    set_waits_for_one_busy_member_and_queues_nowhere_behind_it,
    set_that_times_out_returns_in_time_and_leaves_nothing,
    one_deadline_covers_all_members,
    locks_in_turn_stop_at_the_first_error_and_roll_back,
    order_that_was_given_is_kept_where_asked_for,
);
on_ensembles_of_their_own!(set_is_re_entered_by_its_owner_and_so_is_a_member);

async fn set_holds_all_its_members_and_tells_their_tokens(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    // In another order than that of the paths.
    let members = [
        Member::write("/set/c"),
        Member::mutex("/set/a"),
        Member::read("/set/b"),
    ];
    let set = MultiLock::new(&here, members).unwrap();
    // If a server does not return the number of the second transaction, it is read in another
    // way.
    set.acquire().await.unwrap().release().await.unwrap();
    let guard = set.acquire().await.unwrap();
    let members = guard.members();
    let paths: Vec<_> = members.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/set/c", "/set/a", "/set/b"]);
    let again = guard.reenter().unwrap();
    assert_eq!(again.members(), members);
    drop(again);
    for member in &members {
        let (_, stat) = ensemble.read(&member.node_path).await.unwrap();
        assert_eq!(member.fencing_token.as_i64(), stat.czxid);
        assert_eq!(member.state, GuardState::Held);
    }
    assert!(set.is_acquired_in_this_process());
    assert!(
        mutex(&elsewhere, "/set/a")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let b = InterProcessReadWriteLock::new(&elsewhere, "/set/b").unwrap();
    assert!(b.try_write().await.unwrap().is_none());
    b.try_read()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    assert!(!set.is_acquired_in_this_process());
    assert_eq!(children(&ensemble).await, [0; 3]);
}

async fn set_waits_for_one_busy_member_and_queues_nowhere_behind_it(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let busy = mutex(&session, "/set/b").acquire().await.unwrap();
    let waiter = set(&session);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children("/set/b", 2).await;
    ensemble.await_children("/set/c", 0).await;
    assert_eq!(children(&ensemble).await, [1, 2, 0]);
    // So another contender may have the later locks.
    mutex(&session, "/set/c")
        .try_acquire()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    busy.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    await_nothing_left(&ensemble).await;
}

async fn set_that_times_out_returns_in_time_and_leaves_nothing(ensemble: TestEnsemble) {
    let limit = Duration::from_secs(1);
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let mut busy = Vec::new();
    for path in PATHS {
        busy.push(mutex(&elsewhere, path).acquire().await.unwrap());
    }
    let a = mutex(&here, "/set/a");
    let b = mutex(&here, "/set/b");
    let in_turn: Vec<Box<dyn DistributedLock>> = vec![Box::new(a), Box::new(b)];
    for set in [set(&here), MultiLock::from_locks(in_turn).unwrap()] {
        let since = Instant::now();
        let mut shortest = Duration::MAX;
        for number in 1.. {
            let started = Instant::now();
            let error = set.acquire().timeout(limit).await.unwrap_err();
            let took = started.elapsed();
            assert!(took >= limit, "{took:?}");
            assert!(
                matches!(&error, Error::Acquire(AcquireError::TimedOut { waited, .. }) if *waited == limit),
                "{error}"
            );
            shortest = shortest.min(took);
            if number >= 3 && shortest <= limit.mul_f64(1.1) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{shortest:?}");
        }
        assert!(set.try_acquire().await.unwrap().is_none());
    }
    for path in PATHS {
        ensemble.await_children(path, 1).await;
    }
    drop(busy);
    await_nothing_left(&ensemble).await;
}

async fn one_deadline_covers_all_members(ensemble: TestEnsemble) {
    let limit = Duration::from_secs(3);
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let in_turn: Vec<Box<dyn DistributedLock>> = PATHS
        .map(|path| Box::new(mutex(&here, path)) as Box<dyn DistributedLock>)
        .into();
    for set in [set(&here), MultiLock::from_locks(in_turn).unwrap()] {
        let since = Instant::now();
        loop {
            let took = first_is_released_in_the_meantime(&set, &elsewhere, limit).await;
            await_nothing_left(&ensemble).await;
            // A time for each member would be up after 1.6 of it.
            if took <= limit.mul_f64(1.5) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{took:?}");
        }
    }
}

/// How long a set takes to time out whose first member is busy for six tenths of the time, and its second one for all.
async fn first_is_released_in_the_meantime(
    set: &MultiLock,
    elsewhere: &Session,
    limit: Duration,
) -> Duration {
    let first = mutex(elsewhere, PATHS[0]).acquire().await.unwrap();
    let second = mutex(elsewhere, PATHS[1]).acquire().await.unwrap();
    let started = Instant::now();
    let (refused, ()) = tokio::join!(set.acquire().timeout(limit), async {
        tokio::time::sleep(limit * 6 / 10).await;
        first.release().await.unwrap();
    });
    let took = started.elapsed();
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, Error::Acquire(AcquireError::TimedOut { waited, .. }) if *waited == limit),
        "{refused}"
    );
    assert!(took >= limit, "{took:?}");
    second.release().await.unwrap();
    took
}

async fn set_is_re_entered_by_its_owner_and_so_is_a_member(ensemble: TestEnsemble) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    let owner = Owner::new();
    let first = set(&session).acquire().owner(&owner).await.unwrap();
    let written = ensemble.zxid().await;
    let second = set(&session)
        .try_acquire()
        .owner(&owner)
        .await
        .unwrap()
        .unwrap();
    let third = second.reenter().unwrap();
    let member = mutex(&session, "/set/b")
        .acquire()
        .owner(&owner)
        .await
        .unwrap();
    assert_eq!(ensemble.zxid().await, written);
    assert_eq!((third.hold_count(), member.hold_count()), (3, 4));
    for guard in [first, second, third] {
        guard.release().await.unwrap();
    }
    // The member that was entered again stays.
    assert!(
        mutex(&other, "/set/b")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(children(&ensemble).await, [0, 1, 0]);

    // The other way round: the owner has a member when it acquires the set.
    let all = set(&session).acquire().owner(&owner).await.unwrap();
    assert_eq!(children(&ensemble).await, [1, 1, 1]);
    member.release().await.unwrap();
    assert_eq!(children(&ensemble).await, [1, 1, 1]);
    all.release().await.unwrap();
    assert_eq!(children(&ensemble).await, [0; 3]);
}

/// Curator `testSomeLocksFailToLock`: here the first error ends it, and later ones are not tried.
async fn locks_in_turn_stop_at_the_first_error_and_roll_back(ensemble: TestEnsemble) {
    let (first, closed) = (ensemble.session().await, ensemble.session().await);
    let locks: Vec<Box<dyn DistributedLock>> = vec![
        Box::new(mutex(&first, "/set/a")),
        Box::new(mutex(&closed, "/set/b")),
        Box::new(mutex(&first, "/set/c")),
    ];
    let set = MultiLock::from_locks(locks).unwrap();
    let guard = set.acquire().await.unwrap();
    assert_eq!(guard.members().len(), 3);
    guard.release().await.unwrap();
    closed.close().await;
    let error = set.acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Acquire(AcquireError::SessionClosed { path }) if path == "/set/b"),
        "{error}"
    );
    assert_eq!(children(&ensemble).await, [0; 3]);
    assert!(
        mutex(&first, "/set/a")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

async fn order_that_was_given_is_kept_where_asked_for(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let members = ["/set/c", "/set/b", "/set/a"].map(Member::mutex);
    let set = MultiLock::new(&session, members).unwrap().in_given_order();
    let busy = mutex(&session, "/set/b").acquire().await.unwrap();
    let waiter = tokio::spawn(set.acquire());
    ensemble.await_children("/set/b", 2).await;
    ensemble.await_children("/set/a", 0).await;
    assert_eq!(children(&ensemble).await, [0, 2, 1]);
    busy.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn sets_that_cannot_be_are_refused_at_construction() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let empty = MultiLock::new(&session, []).unwrap_err();
    assert!(
        matches!(empty, Error::Config(ConfigError::EmptySet)),
        "{empty}"
    );
    let empty = MultiLock::from_locks(Vec::new()).unwrap_err();
    assert!(
        matches!(empty, Error::Config(ConfigError::EmptySet)),
        "{empty}"
    );
    for twice in [
        [Member::mutex("/a"), Member::mutex("/a")],
        [Member::read("/a"), Member::write("/a")],
    ] {
        let refused = MultiLock::new(&session, twice).unwrap_err();
        assert!(
            matches!(&refused, Error::Config(ConfigError::DuplicateMember { path }) if path == "/a"),
            "{refused}"
        );
    }
    let mixed = MultiLock::new(&session, [Member::mutex("/a"), Member::read("/a")]).unwrap_err();
    assert!(
        matches!(mixed, Error::Config(ConfigError::RecipeDiffers { .. })),
        "{mixed}"
    );
    let bad = MultiLock::new(&session, [Member::mutex("/a"), Member::mutex("b")]).unwrap_err();
    assert!(
        matches!(bad, Error::Config(ConfigError::InvalidPath { .. })),
        "{bad}"
    );
    let a = || Box::new(mutex(&session, "/a")) as Box<dyn DistributedLock>;
    let refused = MultiLock::from_locks(vec![a(), a()]).unwrap_err();
    assert!(
        matches!(refused, Error::Config(ConfigError::DuplicateMember { .. })),
        "{refused}"
    );
    // The same path in another session counts as another lock.
    let other = Box::new(mutex(&ensemble.session(), "/a")) as Box<dyn DistributedLock>;
    assert!(MultiLock::from_locks(vec![a(), other]).is_ok());
    assert_eq!(ensemble.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn refused_member_leaves_nothing_of_the_others() {
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
    for operation in [Operation::Create, Operation::List] {
        memory.deny("/set/b", operation);
        let refused = set(&session).acquire().await.unwrap_err();
        assert!(
            matches!(&refused, Error::Acquire(AcquireError::NotAuthorized { path, .. }) if path == "/set/b"),
            "{refused}"
        );
        await_nothing_left(&ensemble).await;
        memory.allow_all();
    }
}

/// Curator `testSomeReleasesFail`.
#[tokio::test(start_paused = true)]
async fn refused_release_of_one_member_does_not_keep_the_others() {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let guard = set(&session).acquire().await.unwrap();
    memory.deny("/set/b", Operation::Delete);
    let refused = guard.release().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Release(ReleaseError::Refused { path, .. }) if path == "/set/b"),
        "{refused}"
    );
    let ensemble = TestEnsemble::Memory(memory);
    assert_eq!(children(&ensemble).await, [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn uncontended_set_of_eight_is_one_transaction_one_list_one_transaction() {
    for told in [true, false] {
        let memory = MemoryEnsemble::builder()
            .stats_in_transactions(told)
            .build();
        let session = memory.session();
        let keys: Vec<_> = (0..8).map(|n| format!("seat {n}")).collect();
        let set = LockFactory::new(&session, "/seats")
            .unwrap()
            .multi_lock(&keys)
            .unwrap();
        set.acquire().await.unwrap().release().await.unwrap();
        memory.reset_requests();
        let guard = set.acquire().await.unwrap();
        guard.release().await.unwrap();
        let count = |operation| memory.request_count(operation);
        assert_eq!((count(Operation::Multi), count(Operation::ListAll)), (2, 1));
        // Servers before 3.7.2 and 3.8.2 do not return the number of a transaction. Reads in the
        // same flush return it, so no request follows.
        let looks = if told { 0 } else { 2 };
        assert_eq!(count(Operation::Stat), looks);
        assert_eq!(memory.requests().len(), 3 + looks);
    }
}
