//! Each error that a service may meet is provoked, and its whole text compared: which lock, what
//! failed, and what to do. Those of a timeout are in `giving_up/reasons.rs`, those of a connection in
//! `bad_input`, those of a lost lock in `texts`.

use std::time::Duration;

use lock_recipes::{
    Acls, InterProcessMutex, InterProcessReadWriteLock, LockFactory, LockOptions, Member,
    MultiLock, Session, ZooKeeper, inspect,
};
use test_rig::{Lost, MemoryEnsemble, Operation, TestEnsemble};

use crate::bad_input::chain;

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

#[tokio::test(start_paused = true)]
async fn lock_that_cannot_be_made_is_named_with_the_reason() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let refused = InterProcessMutex::new(&session, "locks").unwrap_err();
    assert_eq!(
        chain(&refused),
        "\"locks\" cannot be a lock path: it does not start with '/'"
    );
    let shared = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let refused = InterProcessMutex::new(&session, PATH).unwrap_err();
    assert_eq!(
        chain(&refused),
        "lock \"/locks/orders\" is in use in this session by another recipe"
    );
    let refused = LockFactory::new(&session, PATH).unwrap_err();
    assert_eq!(
        chain(&refused),
        "\"/locks/orders\" is a lock in use in this session, so it cannot be the root of a factory"
    );
    drop(shared);
    let _factory = LockFactory::new(&session, PATH).unwrap();
    let refused = InterProcessMutex::new(&session, PATH).unwrap_err();
    assert_eq!(
        chain(&refused),
        "\"/locks/orders\" is the root of a lock factory in this session, so it cannot be a lock"
    );
    assert_eq!(ensemble.requests(), [], "refused before anything is sent");
}

#[tokio::test(start_paused = true)]
async fn set_that_cannot_be_made_is_explained() {
    let session = MemoryEnsemble::new().session();
    let refused = MultiLock::new(&session, []).unwrap_err();
    assert_eq!(chain(&refused), "a set of locks has no members");
    let twice = [Member::read("/a"), Member::write("/a")];
    let refused = MultiLock::new(&session, twice).unwrap_err();
    assert_eq!(chain(&refused), "set of locks has \"/a\" twice");
    let none: [(&str, &Session); 0] = [];
    let refused = LockFactory::sharded(none, "/locks").unwrap_err();
    assert_eq!(chain(&refused), "there is no shard to spread keys over");
    let twice = [("a", &session), ("a", &session)];
    let refused = LockFactory::sharded(twice, "/locks").unwrap_err();
    assert_eq!(chain(&refused), "two shards are called \"a\"");
}

#[tokio::test]
async fn option_that_cannot_be_used_is_explained() {
    let refused = LockOptions::new().identity(vec![0; 1_000_001]).unwrap_err();
    assert_eq!(
        chain(&refused),
        "identity of 1000001 bytes is larger than the 1000000 that a store takes"
    );
    let refused = LockOptions::new().purpose("x".repeat(1_001)).unwrap_err();
    assert_eq!(
        chain(&refused),
        "purpose of 1001 bytes is longer than the 256 that a record takes"
    );
    let refused = LockOptions::new().identity(*b"__REVOKE__").unwrap_err();
    assert_eq!(
        chain(&refused),
        "identity \"__REVOKE__\" would be taken for a revocation request"
    );
    let too_long = ZooKeeper::builder().session_timeout(Duration::from_secs(2_147_484));
    let refused = too_long.connect("127.0.0.1:1").await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "a session timeout of 2147484s cannot be requested: 100ms to 2147483.647s can be set"
    );
    let nobody = ZooKeeper::builder().acl(Acls::new(&[]));
    let refused = nobody.connect("127.0.0.1:1").await.unwrap_err();
    assert_eq!(chain(&refused), "the ACL for lock nodes is empty");
}

#[tokio::test(start_paused = true)]
async fn session_that_is_closed_is_named_as_the_cause() {
    let ensemble = MemoryEnsemble::new();
    let (session, other) = (ensemble.session(), ensemble.session());
    let held = mutex(&other).acquire().await.unwrap();
    let holder = mutex(&other).participants().await.unwrap().remove(0);
    let node = &held.members()[0].node_path;
    session.close().await;
    let refused = mutex(&session).acquire().await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "lock \"/locks/orders\" not acquired: the session is closed"
    );
    let refused = session.read(PATH).await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "\"/locks/orders\" is not reached: the session is closed"
    );
    let refused = holder.revoke(&session).await.unwrap_err();
    assert_eq!(
        chain(&refused),
        format!("\"{node}\" is not reached: the session is closed")
    );
    let refused = inspect(&session, PATH).await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "\"/locks/orders\" is not reached: the session is closed"
    );
}

#[tokio::test(start_paused = true)]
async fn store_that_lost_its_data_is_told_with_both_numbers() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    for _ in 0..20 {
        let held = mutex(&session).acquire().await.unwrap();
        held.release().await.unwrap();
    }
    ensemble.wipe();
    let refused = mutex(&session).acquire().await.unwrap_err();
    let text = chain(&refused);
    let numbers = text.strip_prefix(
        "lock \"/locks/orders\" not acquired: the store has lost data, as its transaction numbers \
         went back from ",
    );
    let (seen, now) = numbers.expect(&text).split_once(" to ").unwrap();
    let [seen, now] = [seen, now].map(|it| it.parse::<i64>().unwrap());
    assert!(seen > 20 && now < seen, "{text}");
}

#[tokio::test(start_paused = true)]
async fn lock_whose_numbers_are_used_up_is_named_with_the_way_out() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    ensemble.create(PATH, b"").unwrap();
    ensemble.set_sequence(PATH, i32::MAX).unwrap();
    let refused = mutex(&session).acquire().await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "sequence numbers of lock \"/locks/orders\" are used up (2147483647); delete its directory"
    );
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_lost_leaves_the_outcome_open_and_says_so() {
    let ensemble = MemoryEnsemble::new();
    let (session, other) = (ensemble.session(), ensemble.session());
    let held = mutex(&session).acquire().await.unwrap();
    let node = held.members()[0].node_path.clone();
    ensemble.lose_reply(session.session_id(), Operation::Multi, Lost::AfterCommit);
    let unknown = held.transaction().create("/done", "1").commit();
    let unknown = unknown.await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "outcome of a transaction under \"/locks/orders\" unknown: all of it or nothing is done; \
         acquire the lock again, then read"
    );
    let holder = mutex(&other).participants().await.unwrap().remove(0);
    ensemble.disconnect(other.session_id().unwrap());
    let unknown = holder.revoke(&other).await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        format!("request to give up \"{node}\" may or may not have been made; repeat it")
    );
    ensemble.reconnect(other.session_id().unwrap());
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refusal_of_the_store_is_named_with_the_node() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let held = mutex(&session).acquire().await.unwrap();
    let node = held.members()[0].node_path.clone();
    ensemble.deny(&node, Operation::Multi);
    let unverified = held.verify().await.unwrap_err();
    assert_eq!(
        chain(&unverified),
        "lock \"/locks/orders\" not verified: not authorized"
    );
    let holder = mutex(&session).participants().await.unwrap().remove(0);
    let refused = holder.revoke(&session).await.unwrap_err();
    assert_eq!(chain(&refused), format!("not authorized to use \"{node}\""));
    ensemble.deny(PATH, Operation::Read);
    let unread = session.read(PATH).await.unwrap_err();
    assert_eq!(chain(&unread), "not authorized to use \"/locks/orders\"");
    ensemble.deny(PATH, Operation::List);
    let refused = inspect(&session, PATH).await.unwrap_err();
    assert_eq!(chain(&refused), "not authorized to use \"/locks/orders\"");
    ensemble.allow_all();
    held.release().await.unwrap();
    let ensemble = TestEnsemble::Memory(ensemble);
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(start_paused = true)]
async fn reader_that_is_refused_to_a_writer_is_named() {
    let ensemble = MemoryEnsemble::new();
    let lock = InterProcessReadWriteLock::new(&ensemble.session(), PATH).unwrap();
    let writing = lock.write().await.unwrap();
    ensemble.deny(PATH, Operation::Create);
    let refused = writing.downgrade().await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "not authorized to create the lock node of \"/locks/orders\": CREATE on \"/locks/orders\" is \
         missing"
    );
}
