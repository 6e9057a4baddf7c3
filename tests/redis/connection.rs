//! What survives a connection that is lost, and a server that stands still.

use std::time::Duration;

use lock_recipes::{GuardState, SessionHealth};
use test_rig::RedisServer;
use tokio::time::timeout;

use super::{PATIENCE, cut, mutex, session, until};

/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_and_waiters_keep_their_places_over_cuts() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, SESSION_TIMEOUT).await;
    let there = session(&server, SESSION_TIMEOUT).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let before = mutex(&there).participants().await.unwrap().len();
        let lock = mutex(&there);
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let token = guard.fencing_token();
            guard.release().await.unwrap();
            token
        }));
        until("a waiter", async || {
            let now = mutex(&here).participants().await.unwrap().len();
            (now > before).then_some(())
        })
        .await;
    }
    for _ in 0..3 {
        cut(&server).await;
        // An answer over the next connection.
        until("an answer", async || {
            mutex(&there).participants().await.ok()
        })
        .await;
    }
    until("the holder", async || {
        (guard.state() == GuardState::Held).then_some(())
    })
    .await;
    let first = guard.fencing_token();
    guard.release().await.unwrap();
    let mut tokens = vec![first];
    for waiter in waiters {
        tokens.push(timeout(PATIENCE, waiter).await.unwrap().unwrap());
    }
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!((here.epoch(), there.epoch()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_during_an_outage_is_heard_after_it() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, SESSION_TIMEOUT).await;
    let there = session(&server, SESSION_TIMEOUT).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the waiter", async || {
        let contenders = mutex(&here).participants().await.unwrap();
        (contenders.len() == 2).then_some(())
    })
    .await;
    // Nobody can connect. The operator is no exception, and the server has to be told beforehand.
    let id = there.session_id().unwrap();
    let channel = format!("{{locks}}:e:{id}");
    let deaf = ["ACL", "SETUSER", "default", "resetchannels"];
    let _ok: String = server.command(&deaf).await.unwrap();
    until("the cut", async || {
        let heard: (String, i64) = server
            .command(&["PUBSUB", "NUMSUB", &channel])
            .await
            .unwrap();
        (heard.1 == 0).then_some(())
    })
    .await;
    // Asked for while there is no connection; it leaves with the next.
    let released = tokio::spawn(guard.release());
    let hear = ["ACL", "SETUSER", "default", "allchannels"];
    let _ok: String = server.command(&hear).await.unwrap();
    timeout(PATIENCE, released).await.unwrap().unwrap().unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_stands_still_ends_no_session() {
    let server = RedisServer::start().await.unwrap();
    let timeout_of = Duration::from_secs(12);
    let here = session(&server, timeout_of).await;
    let there = session(&server, timeout_of).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the waiter", async || {
        let contenders = mutex(&here).participants().await.unwrap();
        (contenders.len() == 2).then_some(())
    })
    .await;
    server.pause().unwrap();
    // The holder must not believe in its lock for longer than half of the timeout.
    let lost = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, lock_recipes::LostReason::DeadlinePassed);
    // Its node goes when there is an answer again.
    drop(guard);
    tokio::time::sleep(timeout_of).await;
    server.resume().unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(guard.is_valid());
    assert_eq!((here.epoch(), there.epoch()), (1, 1), "no session ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_is_silent_ends_and_frees_its_lock() {
    let server = RedisServer::start().await.unwrap();
    // Has no runtime that would send anything: it is gone without a close.
    let url = server.url();
    let holder = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let guard = runtime.block_on(async {
            let options = super::options(Duration::from_secs(2));
            let session = options.connect(&url).await.unwrap();
            mutex(&session).acquire().await.unwrap()
        });
        std::mem::forget(guard);
        runtime.shutdown_background();
    });
    holder.join().unwrap();
    let session = session(&server, Duration::from_secs(6)).await;
    let guard = timeout(PATIENCE, mutex(&session).acquire()).await.unwrap();
    guard.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_frees_at_once_and_later_calls_are_refused() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, SESSION_TIMEOUT).await;
    let guard = mutex(&here).acquire().await.unwrap();
    here.close().await;
    assert!(!guard.is_valid());
    assert_eq!(here.health(), SessionHealth::Closed);
    let there = session(&server, SESSION_TIMEOUT).await;
    let free = timeout(PATIENCE, mutex(&there).acquire()).await.unwrap();
    free.unwrap().release().await.unwrap();
    assert!(mutex(&here).acquire().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_thousands_of_nodes_is_closed_in_parts() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, SESSION_TIMEOUT).await;
    let mut guards = Vec::new();
    for number in 0..2_000 {
        let path = format!("/seats/{number}");
        let lock = lock_recipes::InterProcessMutex::new(&here, &path).unwrap();
        guards.push(lock.acquire().await.unwrap());
    }
    here.close().await;
    let left: Vec<String> = server.command(&["KEYS", "{locks}:o:*"]).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    drop(guards);
}
