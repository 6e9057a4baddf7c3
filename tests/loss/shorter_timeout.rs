//! Servers whose operator has lowered the session timeout that they grant. A reconnect negotiates it
//! anew, and the client goes on with that of its first connection.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, LostReason, ZooKeeper};
use test_rig::{MemoryEnsemble, ZooKeeperServer};
use tokio::time::{sleep, timeout};

const PATH: &str = "/locks/orders";
const T: Duration = Duration::from_secs(12);
/// So long that a server is back before a lock is lost.
const LONG: Duration = Duration::from_secs(60);
const SHORTER: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(120);

/// The ensemble ends the session 4 s after the second cut, when the first holder would have trusted its
/// lock for 6 s.
#[tokio::test(start_paused = true)]
async fn no_second_holder_after_a_reconnect_under_a_shorter_timeout() {
    let memory = MemoryEnsemble::builder().session_timeout(T).build();
    let (first, second) = (memory.session(), memory.session());
    let held = InterProcessMutex::new(&first, PATH).unwrap();
    let held = held.acquire().await.unwrap();
    let id = first.session_id().unwrap();
    memory.grant_session_timeout(SHORTER);
    memory.disconnect(id);
    memory.reconnect(id);
    // A heartbeat is answered, and proves nothing about the new timeout.
    sleep(T / 4).await;
    memory.disconnect(id);
    let next = InterProcessMutex::new(&second, PATH).unwrap();
    let granted = next.acquire().await.unwrap();
    assert!(granted.is_valid() && !held.is_valid());
    assert_eq!(held.lost().await.reason, LostReason::SessionExpired);
}

/// A session that is opened again counts on what it gets.
#[tokio::test(start_paused = true)]
async fn session_goes_on_with_the_timeout_that_it_gets() {
    let memory = MemoryEnsemble::builder().session_timeout(T).build();
    let session = memory.session();
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let held = lock.acquire().await.unwrap();
    memory.grant_session_timeout(SHORTER);
    memory.stop();
    memory.restart();
    held.lost().await;
    let again = lock.acquire().await.unwrap();
    let id = session.session_id().unwrap();
    memory.disconnect(id);
    sleep(SHORTER * 7 / 12).await;
    assert!(!again.is_valid());
}

/// The same timeout, or a longer one, takes nothing away.
#[tokio::test(start_paused = true)]
async fn reconnect_under_the_same_timeout_or_a_longer_one_keeps_the_lock() {
    let memory = MemoryEnsemble::builder().session_timeout(T).build();
    let session = memory.session();
    let held = InterProcessMutex::new(&session, PATH).unwrap();
    let held = held.acquire().await.unwrap();
    let id = session.session_id().unwrap();
    for granted in [T, 2 * T] {
        memory.grant_session_timeout(granted);
        memory.disconnect(id);
        memory.reconnect(id);
        sleep(2 * T).await;
        held.verify().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_lost_when_its_server_grants_less_after_a_restart_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let builder = ZooKeeper::builder().session_timeout(LONG);
    let session = builder.connect(&server.connect_string()).await.unwrap();
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let mut granted = LONG;
    // A server that takes half a minute to start again has taken the lock already.
    for _ in 0..5 {
        let held = lock.acquire().await.unwrap();
        granted = granted * 2 / 3;
        let granted = granted.as_millis().to_string();
        server.configure("maxSessionTimeout", &granted).unwrap();
        server.restart().await.unwrap();
        let lost = timeout(PATIENCE, held.lost()).await;
        let lost = lost.expect("the lock is trusted as before");
        if lost.reason == LostReason::SessionExpired {
            return;
        }
    }
    panic!("each restart took longer than the lock was trusted");
}
