//! Locks by key: any string works, and the same key is always the same lock.

use std::collections::BTreeSet;

use lock_recipes::{ConfigError, InterProcessMutex, LockFactory, Owner, escape_key, unescape_key};
use recipes_testing::{TestEnsemble, on_every_ensemble};

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

on_every_ensemble!(
    any_string_is_a_key_of_a_lock_of_its_own,
    same_key_is_the_same_lock_in_every_factory_and_session,
    all_recipes_are_made_by_key
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
        matches!(refused, ConfigError::RecipeDiffers { .. }),
        "{refused}"
    );
    let seats = locks.multi_lock(["7/12", "7/11"]).unwrap();
    let both = seats.acquire().await.unwrap();
    assert_eq!(both.members()[0].path, "/by-key/7%2F11");
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
    assert!(matches!(locks.multi_lock(none), Err(ConfigError::EmptySet)));
    assert!(matches!(
        locks.multi_lock(["a", "a"]),
        Err(ConfigError::DuplicateMember { .. })
    ));
}
