//! Locks that are released while a transaction has no answer yet.

use std::time::Duration;

use lock_recipes::ZooKeeper;
use test_rig::{Direction, FaultProxy, Opcode, TestEnsemble, ZooKeeperServer};

use super::{PATH, mutex, waiters};

const NODE: &str = "/data";
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the next contender is granted while the transaction is held in flight.
async fn release_with_a_transaction_on_its_way(handoffs: u32) {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
    let options = ZooKeeper::builder().session_timeout(Duration::from_secs(40));
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    let ensemble = TestEnsemble::Real(server.into());
    ensemble.create(NODE, b"before").await;
    let lock = mutex(&session, handoffs);
    let held = lock.acquire().await.unwrap();
    let mut next = waiters(&lock, 1).await.remove(0);

    let way = proxy.on(Direction::ToServer).opcode(Opcode::Multi).hold();
    let late = async {
        let commit = held.transaction().set(NODE, "late").commit();
        tokio::select! {
            biased;
            () = way.reached() => {}
            done = commit => panic!("{done:?}"),
        }
    };
    late.await;
    let release = tokio::spawn(held.release());
    let granted = async {
        let granted = next.as_mut().await.unwrap();
        (ensemble.read(NODE).await.unwrap().0, granted)
    };
    let mut granted = std::pin::pin!(granted);
    // Everything happens that may happen before the transaction arrives. Nothing else is in flight.
    let released = tokio::time::timeout(Duration::from_millis(300), granted.as_mut()).await;
    assert!(
        released.is_err(),
        "granted before the transaction is decided"
    );
    way.release();
    let (data, granted) = tokio::time::timeout(PATIENCE, granted).await.unwrap();
    assert_eq!(data, b"late", "decided before the next holder looks");
    release.await.unwrap().unwrap();
    assert_eq!(granted.fencing_token().handoff(), 0);
    granted.release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test]
async fn lock_is_not_handed_on_before_a_transaction_under_it_is_decided_on_a_real_server() {
    release_with_a_transaction_on_its_way(9).await;
}

#[tokio::test]
async fn lock_is_not_released_before_a_transaction_under_it_is_decided_on_a_real_server() {
    release_with_a_transaction_on_its_way(0).await;
}

/// A transaction that was answered makes no contender wait.
#[tokio::test(start_paused = true)]
async fn lock_is_handed_on_after_a_transaction_that_was_answered() {
    let ensemble = TestEnsemble::in_memory();
    let session = ensemble.session().await;
    ensemble.create(NODE, b"before").await;
    let lock = mutex(&session, 9);
    let held = lock.acquire().await.unwrap();
    let next = waiters(&lock, 1).await.remove(0);
    held.transaction().set(NODE, "1").commit().await.unwrap();
    let refused = held.transaction().set("/none", "1").commit();
    refused.await.unwrap_err();
    held.release().await.unwrap();
    assert_eq!(next.await.unwrap().fencing_token().handoff(), 1);
}
