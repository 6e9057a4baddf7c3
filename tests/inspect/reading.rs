//! A session that only reads: it sees what others see, takes no lock, and opens nothing on a server of ours.

use std::time::Duration;

use lock_recipes::{
    AcquireError, Error, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore,
    QueryError, SessionOptions, inspect, scan,
};
use test_rig::{TestEnsemble, on_every_ensemble};

use crate::enqueue;

fn reading() -> SessionOptions {
    SessionOptions::new().read_only(true)
}

on_every_ensemble!(it_sees_what_others_see_and_takes_no_lock);

async fn it_sees_what_others_see_and_takes_no_lock(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let orders = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let held = orders.acquire().await.unwrap();
    let (_, waiting) = enqueue(&ensemble, "/locks/orders", orders.acquire()).await;
    let settings = InterProcessReadWriteLock::new(&session, "/locks/settings").unwrap();
    let read = settings.read().await.unwrap();
    let pool = InterProcessSemaphore::new(&session, "/locks/pool", 2).unwrap();
    let permit = pool.acquire().await.unwrap();

    // Its mutex is given back in the background.
    ensemble.await_children("/locks/pool/locks", 0).await;

    let reader = ensemble.session_with(reading()).await;
    let seen = scan(&reader, "/").await.unwrap();
    assert_eq!(seen.locks.len(), 3, "{seen:?}");
    let others = scan(&session, "/").await.unwrap();
    assert_eq!(format!("{seen:?}"), format!("{others:?}"));
    let lock = inspect(&reader, "/locks/orders").await.unwrap();
    assert_eq!(lock.contenders.len(), 2);
    let missing = inspect(&reader, "/locks/none").await.unwrap_err();
    assert!(
        matches!(&missing, Error::Query(QueryError::NoSuchNode { .. })),
        "{missing}"
    );

    let ours = InterProcessMutex::new(&reader, "/locks/orders").unwrap();
    assert_eq!(ours.participants().await.unwrap().len(), 2);
    let theirs = InterProcessReadWriteLock::new(&reader, "/locks/other").unwrap();
    for refused in [
        ours.acquire().await.map(drop),
        ours.try_acquire().await.map(drop),
        theirs.read().await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, Error::Acquire(AcquireError::ReadOnly { .. })),
            "{refused}"
        );
    }
    assert_eq!(
        ours.try_acquire().await.unwrap_err().to_string(),
        "lock \"/locks/orders\" not acquired: the session only reads (SessionOptions::read_only)"
    );
    reader.close().await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    read.release().await.unwrap();
    permit.release().await.unwrap();
}

/// Of whatever has children, data and a history.
async fn everything_is_told_as_to_a_session(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let rest = Duration::from_secs(60);
    let others = ensemble.store_at(None, SessionOptions::new(), rest);
    let reads = ensemble.store_at(None, reading(), rest);
    let (others, reads) = (
        others.connect().await.unwrap(),
        reads.connect().await.unwrap(),
    );
    let mutex = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let held = mutex.acquire().await.unwrap();
    ensemble.create("/data", b"first").await;
    ensemble.set("/data", b"second").await;
    ensemble.create("/data/below", b"").await;
    ensemble.create("/data/gone", b"").await;
    ensemble.delete("/data/gone").await;
    let node = held.members()[0].node_path.clone();
    for path in [
        "/",
        "/locks",
        "/locks/orders",
        &node,
        "/data",
        "/data/below",
        "/none",
        "/none/x",
    ] {
        let (told, wanted) = (
            reads.stat(path).await.unwrap(),
            others.stat(path).await.unwrap(),
        );
        assert_eq!(told, wanted, "{path}");
        let (told, wanted) = (
            reads.read(path).await.unwrap(),
            others.read(path).await.unwrap(),
        );
        assert_eq!(told, wanted, "{path}");
        let sorted = |listed: Result<Vec<String>, _>| {
            listed.map(|mut names| {
                names.sort();
                names
            })
        };
        let (told, wanted) = (
            sorted(reads.list(path).await),
            sorted(others.list(path).await),
        );
        assert_eq!(format!("{told:?}"), format!("{wanted:?}"), "{path}");
    }
    reads.sync("/").await.unwrap();
    for refused in [
        reads.delete("/data/below").await.unwrap_err(),
        reads.watch("/data").await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refused.to_string(), "refused by the server");
    }
    assert!(others.stat("/data/below").await.unwrap().is_some());
    held.release().await.unwrap();
}

mod on_a_server_of_ours {
    use test_rig::shared;

    use super::everything_is_told_as_to_a_session;

    #[tokio::test]
    async fn on_redis() {
        everything_is_told_as_to_a_session(shared::on_redis().await).await;
    }

    #[tokio::test]
    async fn on_postgres() {
        everything_is_told_as_to_a_session(shared::on_postgres().await).await;
    }

    #[tokio::test]
    async fn on_mariadb() {
        everything_is_told_as_to_a_session(shared::on_mariadb().await).await;
    }
}
