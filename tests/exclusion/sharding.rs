//! Locks by key over several ensembles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    AcquireError, ConfigError, DistributedLock, Error, LockFactory, MultiLock, Session,
};
use test_rig::{MemoryEnsemble, TestEnsemble, on_ensembles_of_their_own};

const ROOT: &str = "/by-key";
const NAMES: [&str; 3] = ["locks-1", "locks-2", "locks-3"];
/// The first and the last key are on the first of two shards, the middle one on the second.
const KEYS: [&str; 3] = ["a", "c", "e"];
/// Keys with their shard of three, and of two.
const GOLDEN: [(&str, &str, &str); 8] = [
    ("", "locks-1", "locks-1"),
    ("orders", "locks-2", "locks-2"),
    ("a/b", "locks-3", "locks-2"),
    ("4713", "locks-3", "locks-1"),
    ("Row 7, Seat 12", "locks-3", "locks-1"),
    ("Größe", "locks-2", "locks-2"),
    ("日本語", "locks-1", "locks-1"),
    ("nul \0 and del \u{7f}", "locks-3", "locks-1"),
];
/// What takes longer never happens. On a busy machine, 160 sets over three servers may take minutes.
const PATIENCE: Duration = Duration::from_secs(600);

async fn another(ensemble: &TestEnsemble) -> TestEnsemble {
    match ensemble {
        TestEnsemble::Memory(_) => TestEnsemble::in_memory(),
        TestEnsemble::Real(_) => test_rig::own::on_a_real_server().await,
        TestEnsemble::Etcd(_) => test_rig::own::on_etcd().await,
        TestEnsemble::Redis(_) => test_rig::own::on_redis().await,
        TestEnsemble::Postgres(_) => test_rig::own::on_postgres().await,
        TestEnsemble::MariaDb(_) => test_rig::own::on_mariadb().await,
    }
}

/// A factory with sessions of its own, as in another process.
async fn factory(ensembles: &[&TestEnsemble]) -> LockFactory {
    let mut sessions = Vec::new();
    for ensemble in ensembles {
        sessions.push(ensemble.session().await);
    }
    LockFactory::sharded(NAMES.into_iter().zip(&sessions), ROOT).unwrap()
}

/// Places keys, without ensembles that could hold them.
fn placing(names: &[String]) -> LockFactory {
    let session = MemoryEnsemble::new().session();
    let shards = names.iter().map(|name| (name, &session));
    LockFactory::sharded(shards, ROOT).unwrap()
}

fn names(count: usize) -> Vec<String> {
    (1..=count)
        .map(|number| format!("locks-{number}"))
        .collect()
}

fn keys() -> impl Iterator<Item = String> {
    (0..20_000).map(|number| format!("order-{number}"))
}

fn path(key: &str) -> String {
    format!("{ROOT}/{key}")
}

/// How many nodes each key has on each ensemble.
async fn nodes(ensembles: [&TestEnsemble; 2]) -> BTreeMap<&'static str, [usize; 2]> {
    let mut nodes = BTreeMap::new();
    for key in KEYS {
        let mut counts = [0; 2];
        for (count, ensemble) in counts.iter_mut().zip(ensembles) {
            *count = ensemble.children(&path(key)).await.len();
        }
        nodes.insert(key, counts);
    }
    nodes
}

on_ensembles_of_their_own!(
    key_is_one_lock_for_all_who_name_the_ensembles_alike,
    set_over_two_ensembles_is_all_or_nothing,
    sets_given_in_any_order_never_wait_in_a_circle,
    keys_move_to_a_new_shard_without_a_stop,
);

async fn key_is_one_lock_for_all_who_name_the_ensembles_alike(first: TestEnsemble) {
    let second = another(&first).await;
    let here = factory(&[&first, &second]).await;
    // The same names in another order, with sessions of its own.
    let (one, two) = (first.session().await, second.session().await);
    let there = LockFactory::sharded([(NAMES[1], &two), (NAMES[0], &one)], ROOT).unwrap();
    for key in KEYS {
        assert_eq!(here.shard_of(key), there.shard_of(key));
        let held = here.mutex(key).unwrap().acquire().await.unwrap();
        assert!(
            there
                .mutex(key)
                .unwrap()
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
        let at = usize::from(here.shard_of(key) == Some(NAMES[1]));
        let mut want = [0, 0];
        want[at] = 1;
        assert_eq!(nodes([&first, &second]).await[key], want);
        held.release().await.unwrap();
        let read = here
            .read_write_lock(&format!("{key}-shared"))
            .unwrap()
            .read()
            .await
            .unwrap();
        let shared = there.read_write_lock(&format!("{key}-shared")).unwrap();
        assert!(shared.try_write().await.unwrap().is_none());
        read.release().await.unwrap();
    }
}

async fn set_over_two_ensembles_is_all_or_nothing(first: TestEnsemble) {
    let second = another(&first).await;
    let (here, there) = (
        factory(&[&first, &second]).await,
        factory(&[&first, &second]).await,
    );
    let set = here.multi_lock(["e", "a", "c"]).unwrap();
    let nothing = nodes([&first, &second]).await;

    let guard = set.acquire().await.unwrap();
    let held: Vec<_> = guard.members().into_iter().map(|it| it.path).collect();
    assert_eq!(held, ["e", "a", "c"].map(path));
    let everywhere = nodes([&first, &second]).await;
    assert!(
        everywhere
            .values()
            .all(|counts| counts.iter().sum::<usize>() == 1)
    );
    assert_eq!(
        everywhere.values().collect::<BTreeSet<_>>().len(),
        2,
        "not on both"
    );
    guard.release().await.unwrap();
    assert_eq!(nodes([&first, &second]).await, nothing);

    for busy in KEYS {
        let held = there.mutex(busy).unwrap().acquire().await.unwrap();
        let with_busy = nodes([&first, &second]).await;
        assert!(set.try_acquire().await.unwrap().is_none());
        assert_eq!(nodes([&first, &second]).await, with_busy);
        let error = set
            .acquire()
            .timeout(Duration::from_millis(300))
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Acquire(AcquireError::TimedOut { .. })),
            "{error}"
        );
        for key in KEYS {
            let [left, left_there] = with_busy[key];
            first.await_children(&path(key), left).await;
            second.await_children(&path(key), left_there).await;
        }
        held.release().await.unwrap();
    }
    let error = here.multi_lock(["a", "c", "a"]).unwrap_err();
    assert!(
        matches!(&error, Error::Config(ConfigError::DuplicateMember { path }) if *path == self::path("a"))
    );
    let none: [&str; 0] = [];
    assert!(matches!(
        here.multi_lock(none),
        Err(Error::Config(ConfigError::EmptySet))
    ));
}

async fn sets_given_in_any_order_never_wait_in_a_circle(first: TestEnsemble) {
    let (second, third) = (another(&first).await, another(&first).await);
    let mut factories = Vec::new();
    for _ in 0..2 {
        factories.push(factory(&[&first, &second, &third]).await);
    }
    let keys: Vec<_> = (0..6).map(|key| format!("k{key}")).collect();
    let inside = Arc::new(Mutex::new(BTreeSet::new()));
    let contend = |owner: usize| {
        let (factory, inside) = (factories[owner % 2].clone(), Arc::clone(&inside));
        let mut keys = keys.clone();
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(owner as u64);
            for _ in 0..20 {
                random.shuffle(&mut keys);
                let wanted = &keys[..4];
                let guard = factory.multi_lock(wanted).unwrap().acquire().await.unwrap();
                for key in wanted {
                    assert!(
                        inside.lock().unwrap().insert(key.clone()),
                        "{key} is held twice"
                    );
                }
                tokio::task::yield_now().await;
                inside.lock().unwrap().retain(|key| !wanted.contains(key));
                guard.release().await.unwrap();
            }
        })
    };
    let owners: Vec<_> = (0..8).map(contend).collect();
    let done = tokio::time::timeout(PATIENCE, join_all(owners)).await;
    let done = done.unwrap_or_else(|_| panic!("locked up: {:?}", inside.lock().unwrap()));
    done.into_iter().for_each(Result::unwrap);
}

/// The migration from one list to another that `docs/scaling.md` describes. A process that
/// holds both locks excludes those that know only one of the lists.
async fn keys_move_to_a_new_shard_without_a_stop(first: TestEnsemble) {
    let second = another(&first).await;
    let (old, new) = (factory(&[&first]).await, factory(&[&first, &second]).await);
    let moved = KEYS
        .into_iter()
        .find(|key| old.shard_of(key) != new.shard_of(key))
        .unwrap();
    let both = |key: &str| {
        let (old, new) = (old.mutex(key).unwrap(), new.mutex(key).unwrap());
        let locks: Vec<Box<dyn DistributedLock>> = vec![Box::new(old), Box::new(new)];
        MultiLock::from_locks(locks).unwrap()
    };
    let with_old = old.mutex(moved).unwrap();
    let with_new = new.mutex(moved).unwrap();
    let held = both(moved).acquire().await.unwrap();
    assert!(with_old.try_acquire().await.unwrap().is_none());
    assert!(with_new.try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    for lock in [with_old, with_new] {
        let held = lock.acquire().await.unwrap();
        assert!(both(moved).try_acquire().await.unwrap().is_none());
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn keys_choose_their_shards_for_ever() {
    let three = placing(&names(3));
    let two = placing(&names(2));
    for (key, of_three, of_two) in GOLDEN {
        assert_eq!(three.shard_of(key), Some(of_three), "{key:?}");
        assert_eq!(two.shard_of(key), Some(of_two), "{key:?}");
    }
    let session = MemoryEnsemble::new().session();
    assert_eq!(
        LockFactory::new(&session, ROOT).unwrap().shard_of("orders"),
        None
    );
}

#[tokio::test]
async fn keys_are_spread_evenly() {
    // If keys are spread at random, chance exceeds this once in 10,000 times.
    for (shards, chi_square_max) in [(2, 15.1), (3, 18.4), (5, 23.5), (8, 29.9), (16, 44.3)] {
        let names = names(shards);
        let factory = placing(&names);
        let mut counts: BTreeMap<_, usize> = names.iter().map(|name| (name.as_str(), 0)).collect();
        for key in keys() {
            *counts.get_mut(factory.shard_of(&key).unwrap()).unwrap() += 1;
        }
        let expected = keys().count() as f64 / shards as f64;
        let off = counts
            .values()
            .map(|count| (*count as f64 - expected).powi(2) / expected);
        let chi_square: f64 = off.sum();
        assert!(
            chi_square < chi_square_max,
            "{shards}: {chi_square:.1}, {counts:?}"
        );
    }
}

#[tokio::test]
async fn a_new_shard_takes_its_part_and_moves_nothing_else() {
    for shards in [1, 2, 4, 9] {
        let (before, after) = (placing(&names(shards)), placing(&names(shards + 1)));
        let newcomer = format!("locks-{}", shards + 1);
        let is_moved = |key: &String| before.shard_of(key) != after.shard_of(key);
        let moved: Vec<_> = keys().filter(is_moved).collect();
        assert!(
            moved
                .iter()
                .all(|key| after.shard_of(key) == Some(&newcomer))
        );
        // If the shard is removed again, only its keys move: that is the same, read backwards.
        let (all, share) = (keys().count() as f64, 1.0 / (shards as f64 + 1.0));
        let deviation = (all * share * (1.0 - share)).sqrt();
        let off = (moved.len() as f64 - all * share).abs() / deviation;
        assert!(
            off < 4.0,
            "{shards}: {} moved, {off:.1} standard deviations off",
            moved.len()
        );
    }
}

#[tokio::test]
async fn order_of_the_list_means_nothing() {
    let names = names(5);
    let mut turned = names.clone();
    turned.rotate_left(2);
    let (one, other) = (placing(&names), placing(&turned));
    assert!(keys().all(|key| one.shard_of(&key) == other.shard_of(&key)));
}

#[tokio::test]
async fn lists_that_cannot_be_are_refused_before_anything_is_sent() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let none: [(&str, &Session); 0] = [];
    let error = LockFactory::sharded(none, ROOT).unwrap_err();
    assert!(
        matches!(error, Error::Config(ConfigError::NoShards)),
        "{error}"
    );
    let twice = [("a", &session), ("b", &session), ("a", &session)];
    let error = LockFactory::sharded(twice, ROOT).unwrap_err();
    assert!(
        matches!(&error, Error::Config(ConfigError::DuplicateShard { name }) if name == "a"),
        "{error}"
    );
    let error = LockFactory::sharded([("a", &session)], "by-key").unwrap_err();
    assert!(
        matches!(error, Error::Config(ConfigError::InvalidPath { .. })),
        "{error}"
    );
    assert_eq!(ensemble.requests().len(), 0);
}
