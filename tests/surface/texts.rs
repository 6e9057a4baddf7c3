//! Errors of a held lock, and what handles and guards say of it: which lock and what is known of it,
//! and nothing of their inside. Other errors are in `errors`.

use std::time::Duration;

use lock_recipes::{
    DistributedLock, Error, InterProcessMutex, InterProcessReadWriteLock, LockGuard, LockOptions,
    Member, MultiLock, NodesError, Owner, Session, TransactionError,
};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

on_every_ensemble!(
    lost_lock_is_named_with_the_reason_and_what_to_do,
    writer_that_would_wait_for_itself_is_told_what_to_do,
    operation_that_is_refused_is_named_with_its_node,
    guards_and_handles_print_path_token_and_state,
);

async fn lost_lock_is_named_with_the_reason_and_what_to_do(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let owner = Owner::new();
    let held = mutex(&session).acquire().owner(&owner).await.unwrap();
    ensemble.delete(&held.members()[0].node_path).await;
    let lost = held.lost().await;
    let why = "lock node deleted, but not by the holder";
    assert_eq!(
        lost.to_string(),
        format!(
            "lock \"{PATH}\" is lost ({why}): stop the work under it, as another contender may \
             hold it"
        )
    );
    let again = mutex(&session).acquire().owner(&owner).await.unwrap_err();
    assert_eq!(
        again.to_string(),
        format!(
            "owner still has guards of lock \"{PATH}\", which it lost; drop them, then acquire again"
        )
    );
    let verified = held.verify().await.unwrap_err();
    assert_eq!(
        verified.to_string(),
        format!("lock \"{PATH}\" is not held any more ({why})")
    );
    let committed = held.transaction().check("/").commit().await.unwrap_err();
    assert_eq!(
        committed.to_string(),
        format!(
            "transaction under \"{PATH}\" not committed, nothing was changed: the lock is lost \
             ({why})"
        )
    );
    assert_eq!(
        held.release().await.unwrap_err().to_string(),
        format!(
            "lock \"{PATH}\" was lost before it was released ({why}): check what was done under \
             it, as another contender may have held it"
        )
    );
}

async fn writer_that_would_wait_for_itself_is_told_what_to_do(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (lock, owner) = (
        InterProcessReadWriteLock::new(&session, PATH).unwrap(),
        Owner::new(),
    );
    let _reader = lock.read().owner(&owner).await.unwrap();
    let refused = lock.write().owner(&owner).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "owner holds the read lock of \"{PATH}\" and would wait for itself: release it first, \
             or write first and downgrade"
        )
    );
}

async fn operation_that_is_refused_is_named_with_its_node(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let write = held.transaction().create("/free", "1").delete("/none");
    assert_eq!(
        format!("{write:?}"),
        format!(
            "Transaction {{ locks: [\"{PATH}\"], operations: [(\"create\", \"/free\"), (\"delete\", \
             \"/none\")] }}"
        )
    );
    assert_eq!(
        write.commit().await.unwrap_err().to_string(),
        format!(
            "operation 1 of a transaction under \"{PATH}\", on \"/none\", refused, nothing was \
             changed"
        )
    );
    held.release().await.unwrap();
}

async fn guards_and_handles_print_path_token_and_state(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let mutex = mutex(&session);
    assert_eq!(
        format!("{mutex:?}"),
        format!("InterProcessMutex {{ path: \"{PATH}\" }}")
    );
    let held = mutex.acquire().await.unwrap();
    let id = session.session_id().unwrap();
    assert_eq!(
        format!("{session:?}"),
        format!("Session {{ id: {id:#x}, epoch: 1, health: Connected }}")
    );
    let token = held.fencing_token();
    let inside = format!("path: \"{PATH}\", fencing_token: {token}, state: Held");
    assert_eq!(format!("{held:?}"), format!("MutexGuard {{ {inside} }}"));
    let held = LockGuard::from(held);
    assert_eq!(format!("{held:?}"), format!("LockGuard {{ {inside} }}"));
    held.release().await.unwrap();

    let config = InterProcessReadWriteLock::new(&session, "/config").unwrap();
    assert_eq!(
        format!("{config:?} {:?}", config.read_lock()),
        "InterProcessReadWriteLock { path: \"/config\" } ReadLock { path: \"/config\" }"
    );
    let set = MultiLock::new(&session, ["/b", "/a"].map(Member::mutex)).unwrap();
    assert_eq!(format!("{set:?}"), "MultiLock { path: \"/a, /b\" }");
    let held = set.acquire().await.unwrap();
    let tokens: Vec<_> = held.members().iter().map(|it| it.fencing_token).collect();
    assert_eq!(
        format!("{held:?}"),
        format!("MultiGuard {{ path: \"/a, /b\", fencing_tokens: {tokens:?}, state: Held }}")
    );
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_named_with_its_node() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    ensemble.create(PATH, b"").unwrap();
    for (operation, doing, permission) in [
        (Operation::Create, "create the lock node", "CREATE"),
        (Operation::List, "list the lock directory", "READ"),
    ] {
        ensemble.deny(PATH, operation);
        let refused = mutex(&session).acquire().await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "not authorized to {doing} of \"{PATH}\": {permission} on \"{PATH}\" is missing"
            )
        );
        ensemble.allow_all();
    }
    let held = mutex(&session).acquire().await.unwrap();
    let node = held.members().remove(0).node_path;
    ensemble.deny(&node, Operation::Watch);
    let waiter = mutex(&session).acquire().timeout(Duration::from_secs(1));
    assert_eq!(
        waiter.await.unwrap_err().to_string(),
        format!("not authorized to watch a lock node of \"{PATH}\": READ on \"{node}\" is missing")
    );
    ensemble.deny(PATH, Operation::Delete);
    assert_eq!(
        held.release().await.unwrap_err().to_string(),
        format!(
            "store refused to release lock \"{PATH}\", as DELETE on \"{PATH}\" is missing; it \
             stays locked until the session ends"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn option_that_differs_is_named_with_both_values() {
    let session = MemoryEnsemble::new().session();
    let options = LockOptions::new().local_handoffs(3);
    let options = options.purpose("nightly export").unwrap();
    let options = options.identity(*b"host\n1").unwrap();
    let with = |options: &LockOptions| InterProcessMutex::with_options(&session, PATH, options);
    let _live = with(&options).unwrap();
    let purpose = LockOptions::new()
        .local_handoffs(3)
        .purpose("import")
        .unwrap();
    let identity = LockOptions::new().local_handoffs(3);
    let identity = identity.purpose("nightly export").unwrap();
    for (differ, told) in [
        (LockOptions::new(), "local_handoffs 3, not 0"),
        (purpose, "purpose \"nightly export\", not \"import\""),
        (identity, "identity \"host\\n1\", not unset"),
    ] {
        assert_eq!(
            with(&differ).unwrap_err().to_string(),
            format!(
                "lock \"{PATH}\" is in use in this session with {told}: all handles of a path need \
                 the same options"
            )
        );
    }
}

/// What a guard says is what its lock says, whatever kind of lock it is.
#[tokio::test(start_paused = true)]
async fn guard_of_any_lock_has_its_path_and_one_lock_its_token() {
    let session = MemoryEnsemble::new().session();
    let other = MemoryEnsemble::new().session();
    let read_write = InterProcessReadWriteLock::new(&session, "/rw").unwrap();
    let set = ["/b", "/a"].map(Member::mutex);
    let in_turn: Vec<Box<dyn DistributedLock>> =
        vec![Box::new(mutex(&session)), Box::new(mutex(&other))];
    let locks: [(Box<dyn DistributedLock>, bool); 7] = [
        (Box::new(mutex(&session)), true),
        (Box::new(read_write.write_lock()), true),
        (Box::new(read_write.read_lock()), true),
        (
            Box::new(MultiLock::new(&session, set.clone()).unwrap()),
            false,
        ),
        (
            Box::new(MultiLock::new(&session, set).unwrap().in_given_order()),
            false,
        ),
        (
            Box::new(MultiLock::new(&session, [Member::mutex("/c")]).unwrap()),
            true,
        ),
        (Box::new(MultiLock::from_locks(in_turn).unwrap()), false),
    ];
    for (lock, is_one) in locks {
        let held = lock.acquire().await.unwrap();
        assert_eq!(held.path(), lock.path());
        assert_eq!(held.reenter().unwrap().path(), lock.path());
        let own = held.members().remove(0).fencing_token;
        assert_eq!(held.fencing_token(), is_one.then_some(own), "{held:?}");
        held.release().await.unwrap();
    }
}

/// A service with `?` everywhere has no other way to name it.
#[tokio::test(start_paused = true)]
async fn downgrade_that_fails_is_any_error_and_releases_the_lock_in_memory() {
    async fn reload(lock: &InterProcessReadWriteLock) -> Result<(), Error> {
        let writer = lock.write().await?;
        let _reader = writer.downgrade().await?;
        Ok(())
    }
    let memory = MemoryEnsemble::new();
    let lock = InterProcessReadWriteLock::new(&memory.session(), PATH).unwrap();
    lock.write().await.unwrap().release().await.unwrap();
    // Refuses the reader's node next to the writer's.
    memory.deny(PATH, Operation::Multi);
    let refused = reload(&lock).await.unwrap_err();
    memory.allow_all();
    assert!(matches!(refused, Error::Acquire(_)), "{refused:?}");
    TestEnsemble::Memory(memory).await_children(PATH, 0).await;
}

#[test]
fn transaction_without_an_answer_is_transient_whatever_ended_it() {
    for source in [NodesError::SessionEnded, NodesError::NoNode] {
        let path = PATH.to_owned();
        let unknown = Error::Transaction(TransactionError::Unknown { path, source });
        assert!(unknown.is_transient() && !unknown.is_busy(), "{unknown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_closed_session_say_that_it_is_closed() {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    let waiter = tokio::spawn(mutex(&session).acquire());
    memory_has(&memory, 2).await;
    let waiting = mutex(&session).participants().await.unwrap().remove(1);
    session.close().await;
    let errors: [Error; 6] = [
        waiter.await.unwrap().unwrap_err(),
        session.read("/").await.unwrap_err(),
        waiting.revoke(&session).await.unwrap_err(),
        held.lost().await.into(),
        held.verify().await.unwrap_err(),
        held.release().await.unwrap_err(),
    ];
    for (error, is_lost) in errors
        .into_iter()
        .zip([false, false, false, true, true, true])
    {
        assert!(error.is_closed(), "{error:?}");
        assert_eq!(error.is_lost(), is_lost, "{error:?}");
        let lost = error.lost().map(|it| &*it.path);
        assert_eq!(lost, is_lost.then_some(PATH));
        assert!(!error.is_transient() && !error.is_busy(), "{error:?}");
    }
}

async fn memory_has(memory: &MemoryEnsemble, nodes: usize) {
    while memory.children(PATH).len() < nodes {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn errors_of_an_open_session_do_not_say_that_it_is_closed() {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let held = mutex(&session).acquire().await.unwrap();
    let late = mutex(&session).acquire().timeout(Duration::from_secs(1));
    let late = late.await.unwrap_err();
    assert!(late.is_busy() && !late.is_closed(), "{late:?}");
    memory.delete(&held.members()[0].node_path).unwrap();
    let lost = Error::from(held.lost().await);
    assert!(lost.is_lost() && !lost.is_closed(), "{lost:?}");
}
