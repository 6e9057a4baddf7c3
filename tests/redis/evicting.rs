//! A server that is set to evict keys while a lock is held, and back.

use std::time::Duration;

use lock_recipes::MutexGuard;
use test_rig::RedisServer;
use tokio::time::{sleep, timeout};

use super::{PATH, PATIENCE, mutex, session, take_and_give_back, waiting};

async fn evicts(server: &RedisServer, policy: &str) {
    let set = ["CONFIG", "SET", "maxmemory-policy", policy];
    let _ok: String = server.command(&set).await.unwrap();
}

/// The functions have noticed: its holder is refused, and gives its connection up.
async fn refused(guard: &MutexGuard) {
    // They ask every tenth of a second, in which a server carries out some twenty of these.
    for _ in 0..2_000 {
        if guard.verify().await.is_err() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody is refused");
}

/// As a server does whose memory is full.
async fn evict_the_queue(server: &RedisServer) {
    let queue = format!("{{locks}}:c:{PATH}");
    let _: i64 = server.command(&["DEL", &queue]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_learns_before_the_next_is_granted() {
    let server = RedisServer::start().await.unwrap();
    let t = Duration::from_secs(12);
    let (here, there) = (session(&server, t).await, session(&server, t).await);
    take_and_give_back(&here).await;
    let guard = mutex(&here).acquire().await.unwrap();
    evicts(&server, "allkeys-random").await;
    refused(&guard).await;
    let lock = mutex(&there);
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    evict_the_queue(&server).await;
    timeout(PATIENCE, guard.lost()).await.unwrap();
    assert!(!next.is_finished(), "granted by a server that evicts");
    evicts(&server, "noeviction").await;
    let next = timeout(PATIENCE, next).await.unwrap().unwrap();
    assert!(next.is_valid() && !guard.is_valid());
    next.release().await.unwrap();
}

/// The holder is in contact again before it has given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_was_evicted_meanwhile_is_lost() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(600)).await;
    let guard = mutex(&here).acquire().await.unwrap();
    evicts(&server, "allkeys-random").await;
    refused(&guard).await;
    evict_the_queue(&server).await;
    evicts(&server, "noeviction").await;
    timeout(PATIENCE, guard.lost()).await.unwrap();
    // Another may not have noticed.
    let until: i64 = server.command(&["HGET", "{locks}:x", "q"]).await.unwrap();
    let now = server.store_clock("locks").await.unwrap().own;
    assert!(until > now, "no quarantine");
    waiting(&server, 0).await;
}
