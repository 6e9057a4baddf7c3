//! Locks by key: any string works, and the same key is always the same lock.

use std::collections::BTreeSet;

use lock_recipes::{
    ConfigError, Error, InterProcessMutex, InterProcessReadWriteLock, KeyMember, LockFactory,
    LockGuard, LockOptions, Owner, Session, escape_key, unescape_key,
};
use test_rig::{MemoryEnsemble, TestEnsemble, on_every_ensemble};

const KEYS: [&str; 14] = [
    "",
    "orders",
    "a/b",
    "/",
    ".",
    "..",
    "100%",
    "%2F",
    "zookeeper",
    "Row 7, Seat 12",
    "Größe",
    "日本語",
    "🚲",
    "nul \0 and del \u{7f} and \u{ffff}",
];

/// Keys that the lock of the root would take for a contender ahead, if they were not escaped.
const LOOKALIKES: [&str; 11] = [
    "lock-0000000000",
    "lock-",
    "block-0",
    "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000000",
    "_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000000",
    "__READ__0000000000",
    "__WRIT__",
    "x-lock--000000001",
    "-",
    " ",
    "",
];

on_every_ensemble!(
    options_of_a_factory_are_those_of_all_its_locks,
    live_handle_with_other_options_stops_no_factory,
    set_of_keys_mixes_mutexes_readers_and_writers,
    key_never_blocks_a_lock_of_the_root,
    any_string_is_a_key_of_a_lock_of_its_own,
    same_key_is_the_same_lock_in_every_factory_and_session,
    all_recipes_are_made_by_key,
);

async fn any_string_is_a_key_of_a_lock_of_its_own(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let locks = LockFactory::new(&session, "/by-key").unwrap();
    let mut paths = BTreeSet::new();
    let mut held = Vec::new();
    for key in KEYS {
        let lock = locks.mutex(key).unwrap();
        let part = lock.path().strip_prefix("/by-key/").unwrap().to_owned();
        assert!(!part.contains('/'), "{part}");
        assert_eq!(unescape_key(&part).as_deref(), Some(key));
        assert_eq!(escape_key(key), part);
        paths.insert(lock.path().to_owned());
        // All are held at once, so no two keys are one lock.
        held.push(lock.try_acquire().await.unwrap().unwrap());
    }
    assert_eq!(paths.len(), KEYS.len());
    assert_eq!(ensemble.children("/by-key").await.len(), KEYS.len());
    for guard in held {
        guard.release().await.unwrap();
    }
}

async fn same_key_is_the_same_lock_in_every_factory_and_session(ensemble: TestEnsemble) {
    let (here, elsewhere) = (ensemble.session().await, ensemble.session().await);
    let lock = |session| {
        LockFactory::new(session, "/by-key")
            .unwrap()
            .mutex("a/b")
            .unwrap()
    };
    let owner = Owner::new();
    let held = lock(&here).acquire().owner(&owner).await.unwrap();
    let again = lock(&here)
        .try_acquire()
        .owner(&owner)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(again.hold_count(), 2);
    assert!(lock(&elsewhere).try_acquire().await.unwrap().is_none());
    let by_path = InterProcessMutex::new(&here, lock(&here).path()).unwrap();
    assert!(by_path.try_acquire().owner(&owner).await.unwrap().is_some());
    drop((held, again));
}

async fn all_recipes_are_made_by_key(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let locks = LockFactory::new(&session, "/by-key").unwrap();
    let shared = locks.read_write_lock("settings").unwrap();
    shared
        .write()
        .await
        .unwrap()
        .downgrade()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let refused = locks.mutex("settings").unwrap_err();
    assert!(
        matches!(refused, Error::Config(ConfigError::RecipeDiffers { .. })),
        "{refused}"
    );
    let seats = locks.multi_lock(["7/12", "7/11"]).unwrap();
    let both = seats.acquire().await.unwrap();
    let keys = both.members().into_iter().map(|it| it.key().unwrap());
    assert_eq!(keys.collect::<Vec<_>>(), ["7/12", "7/11"]);
    for member in both.members() {
        let key = member.key().unwrap();
        assert_eq!(both.token_of(&key), Some(member.fencing_token));
    }
    assert_eq!(both.token_of("7/13"), None);
    assert!(
        locks
            .mutex("7/12")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    both.release().await.unwrap();
    let none: [&str; 0] = [];
    assert!(matches!(
        locks.multi_lock(none),
        Err(Error::Config(ConfigError::EmptySet))
    ));
    assert!(matches!(
        locks.multi_lock(["a", "a"]),
        Err(Error::Config(ConfigError::DuplicateMember { .. }))
    ));
}

/// What the holder's node says.
async fn record(session: &Session, guard: &LockGuard, member: usize) -> String {
    let node = guard.members()[member].node_path.clone();
    let (data, _) = session.read(&node).await.unwrap().unwrap();
    String::from_utf8(data).unwrap()
}

fn purpose(text: &str) -> LockOptions {
    LockOptions::new().purpose(text).unwrap()
}

async fn options_of_a_factory_are_those_of_all_its_locks(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let locks = LockFactory::new(&session, "/by-key").unwrap();
    let locks = locks.with_options(purpose("sale"));
    let mutex = locks.mutex("a").unwrap().acquire().await.unwrap();
    let reader = locks.read_write_lock("b").unwrap().read().await.unwrap();
    let set = [KeyMember::write("c"), KeyMember::mutex("d")];
    let set = locks.multi_lock(set).unwrap().acquire().await.unwrap();
    let shards = [("one", &session), ("two", &session)];
    let sharded = LockFactory::sharded(shards, "/sharded").unwrap();
    let sharded = sharded.with_options(purpose("sale"));
    let sharded = sharded.multi_lock(["a", "c"]).unwrap();
    let sharded = sharded.acquire().await.unwrap();
    let guards: [(&LockGuard, usize); 6] = [
        (&mutex, 0),
        (&reader, 0),
        (&set, 0),
        (&set, 1),
        (&sharded, 0),
        (&sharded, 1),
    ];
    for (guard, member) in guards {
        let record = record(&session, guard, member).await;
        assert!(record.contains(" purpose=sale"), "{record}");
    }
}

async fn live_handle_with_other_options_stops_no_factory(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let plain = LockFactory::new(&session, "/by-key").unwrap();
    let sale = plain
        .clone()
        .with_options(purpose("sale").local_handoffs(4));
    let path = |key: &str| plain.mutex(key).unwrap().path().to_owned();
    let other = purpose("other");
    let live = InterProcessMutex::with_options(&session, &path("a"), &other).unwrap();
    let live_set = sale.multi_lock(["b"]).unwrap();
    for factory in [&plain, &sale] {
        let held = factory.mutex("a").unwrap().acquire().await.unwrap();
        // It is one lock, with the options of the handle that was there first.
        assert!(live.try_acquire().await.unwrap().is_none());
        let said = record(&session, &held, 0).await;
        assert!(said.contains(" purpose=other"), "{said}");
        held.release().await.unwrap();
        let set = factory.multi_lock(["a", "b"]).unwrap();
        set.acquire().await.unwrap().release().await.unwrap();
    }
    let refused = InterProcessMutex::new(&session, &path("a")).unwrap_err();
    assert!(
        matches!(refused, Error::Config(ConfigError::OptionsDiffer { .. })),
        "{refused}"
    );
    drop((live, live_set));
    let held = sale.mutex("a").unwrap().acquire().await.unwrap();
    let said = record(&session, &held, 0).await;
    assert!(said.contains(" purpose=sale"), "{said}");
    held.release().await.unwrap();
}

async fn set_of_keys_mixes_mutexes_readers_and_writers(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let factory = |session| LockFactory::new(session, "/by-key").unwrap();
    let shards = |session| LockFactory::sharded([("one", session), ("two", session)], "/sharded");
    for (here, there) in [
        (factory(&here), factory(&there)),
        (shards(&here).unwrap(), shards(&there).unwrap()),
    ] {
        let set = || {
            let mutex = KeyMember::mutex("a");
            [KeyMember::write("c/d"), mutex, KeyMember::read("e")]
        };
        let guard = here.multi_lock(set()).unwrap().acquire().await.unwrap();
        let keys = guard.members().into_iter().map(|it| {
            let part = it.path.rsplit('/').next().unwrap().to_owned();
            unescape_key(&part).unwrap()
        });
        assert_eq!(keys.collect::<Vec<_>>(), ["c/d", "a", "e"]);
        let others = [
            (KeyMember::mutex("a"), false),
            (KeyMember::read("c/d"), false),
            (KeyMember::write("e"), false),
            (KeyMember::read("e"), true),
        ];
        for (other, is_free) in others {
            let text = format!("{other:?}");
            let got = there
                .multi_lock([other])
                .unwrap()
                .try_acquire()
                .await
                .unwrap();
            assert_eq!(got.is_some(), is_free, "{text}");
            if let Some(guard) = got {
                guard.release().await.unwrap();
            }
        }
        guard.release().await.unwrap();
        let twice = [KeyMember::read("a"), KeyMember::write("a")];
        let refused = there.multi_lock(twice).unwrap_err();
        assert!(
            matches!(refused, Error::Config(ConfigError::DuplicateMember { .. })),
            "{refused}"
        );
    }
}

async fn key_never_blocks_a_lock_of_the_root(ensemble: TestEnsemble) {
    let (keys, root) = (ensemble.session().await, ensemble.session().await);
    let locks = LockFactory::new(&keys, "/by-key").unwrap();
    let mut held = Vec::new();
    // Numbers stay as they are, for services in other languages, and may block.
    let is_number = |key: &&str| key.starts_with(|first: char| first.is_ascii_digit());
    let keys = LOOKALIKES.into_iter().chain(KEYS);
    for key in keys.filter(|key| !is_number(key)) {
        let lock = locks.mutex(key).unwrap();
        // Some keys are in both lists.
        held.extend(lock.try_acquire().await.unwrap());
    }
    let mutex = InterProcessMutex::new(&root, "/by-key").unwrap();
    let guard = mutex.try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    drop(mutex);
    let shared = InterProcessReadWriteLock::new(&root, "/by-key").unwrap();
    let guard = shared.try_write().await.unwrap().unwrap();
    guard.release().await.unwrap();
    shared.write().await.unwrap().release().await.unwrap();
    let guard = shared.try_read().await.unwrap().unwrap();
    guard.release().await.unwrap();
    for guard in held {
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn root_of_a_factory_is_no_lock_before_anything_is_sent() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let locks = LockFactory::new(&session, "/locks/orders").unwrap();
    let again = LockFactory::new(&session, "/locks/orders").unwrap();
    let above = LockFactory::new(&session, "/locks").unwrap();
    let shared = || InterProcessReadWriteLock::new(&session, "/locks/orders");
    let refusals = || {
        [
            InterProcessMutex::new(&session, "/locks/orders").err(),
            shared().err(),
            above.mutex("orders").err(),
            above.multi_lock(["orders"]).err(),
        ]
    };
    for refused in refusals() {
        let refused = refused.unwrap();
        assert!(
            matches!(&refused, Error::Config(ConfigError::FactoryRoot { path }) if path == "/locks/orders"),
            "{refused}"
        );
    }
    drop(locks);
    assert!(shared().is_err(), "the other factory lives");
    drop(again);
    let lock = shared().unwrap();
    let sharded = LockFactory::sharded([("one", &session)], "/locks/orders");
    for refused in [
        LockFactory::new(&session, "/locks/orders").unwrap_err(),
        sharded.unwrap_err(),
    ] {
        assert!(
            matches!(&refused, Error::Config(ConfigError::RootIsLock { path }) if path == "/locks/orders"),
            "{refused}"
        );
    }
    drop(lock);
    // No key makes the root, and another session has roots of its own.
    let locks = LockFactory::new(&session, "/locks/orders").unwrap();
    assert_eq!(locks.mutex("").unwrap().path(), "/locks/orders/~%");
    let elsewhere = ensemble.session();
    assert!(InterProcessMutex::new(&elsewhere, "/locks/orders").is_ok());
    assert_eq!(ensemble.requests().len(), 0);
}
