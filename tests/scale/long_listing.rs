//! A queue whose listing is larger than `jute.maxbuffer`, which a Java client cannot read.

use std::time::Duration;

use futures::future::try_join_all;
use lock_recipes::InterProcessMutex;
use test_rig::{TestEnsemble, ZooKeeperServer};
use zookeeper_client::{Acls, CreateMode};

const PATH: &str = "/locks/long";
/// A name of a mutex takes 55 bytes, and its length 4. 59 x 17,772 is the last that fits.
const CONTENDERS: usize = 18_000;
/// The default of `jute.maxbuffer`.
const JUTE_MAX_BYTES: usize = 0xf_ffff;
/// A grant that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// In memory there is no limit that a listing could exceed.
#[tokio::test]
async fn queue_that_is_too_long_for_java_clients_is_joined_and_drained() {
    let ensemble = TestEnsemble::Real(ZooKeeperServer::start().await.unwrap().into());
    let TestEnsemble::Real(server) = &ensemble else {
        unreachable!("it was made so")
    };
    ensemble.create("/locks", b"").await;
    ensemble.create(PATH, b"").await;
    let operator = server.client().await.unwrap();
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let paths: Vec<_> = (0..CONTENDERS)
        .map(|number| format!("{PATH}/_c_00000000-0000-0000-0000-{number:012}-lock-"))
        .collect();
    try_join_all(paths.iter().map(|path| operator.create(path, b"", &mode)))
        .await
        .unwrap();
    let names = operator.list_children(PATH).await.unwrap();
    let bytes: usize = names.iter().map(|name| 4 + name.len()).sum();
    assert!(bytes > JUTE_MAX_BYTES, "{bytes}");

    let session = ensemble.session().await;
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn(lock.acquire());
    let joined = async || {
        let (_, stat) = session.read(PATH).await.unwrap()?;
        (usize::try_from(stat.children) == Ok(CONTENDERS + 1)).then_some(())
    };
    ensemble.until("one more contender", joined).await;
    assert!(!waiter.is_finished());
    let paths: Vec<_> = names.iter().map(|name| format!("{PATH}/{name}")).collect();
    try_join_all(paths.iter().map(|path| operator.delete(path, None)))
        .await
        .unwrap();
    let granted = tokio::time::timeout(PATIENCE, waiter)
        .await
        .unwrap()
        .unwrap();
    granted.unwrap().release().await.unwrap();
}
