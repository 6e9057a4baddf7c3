//! Ways around the quarantine.

use std::time::Duration;

use futures::future::select;
use lock_recipes::{Redis, Session};
use test_rig::{RedisServer, StoreClock};
use tokio::time::{Instant, sleep, timeout};

use super::absent::Absent;
use super::{PATH, PATIENCE, SOON, mutex, opened, waiting};

const LONG: Duration = Duration::from_secs(600);
const HALF_OF_LONG_US: i64 = 300_000_000;

async fn forgetful() -> RedisServer {
    RedisServer::builder()
        .setting("appendonly", "no")
        .start()
        .await
        .unwrap()
}

async fn granted_after(absent: Absent, session: &Session) {
    let guard = timeout(PATIENCE, mutex(session).acquire())
        .await
        .unwrap()
        .unwrap();
    let early = absent.until.saturating_duration_since(Instant::now());
    let (mine, theirs) = (guard.is_valid(), absent.believes_after_all());
    assert!(
        !(mine && theirs),
        "two valid guards of one lock, for {early:?} more"
    );
}

/// A new run waits for the holders that may notice last, whoever came after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longest_timeout_decides_also_if_a_short_one_came_last() {
    let server = RedisServer::start().await.unwrap();
    let long = super::session(&server, Duration::from_secs(600)).await;
    let short = super::session(&server, Duration::from_secs(4)).await;
    super::take_and_give_back(&long).await;
    super::take_and_give_back(&short).await;
    // What is known of the run before is as after a restart.
    let another = ["HSET", "{locks}:x", "r", "another"];
    let _: i64 = server.command(&another).await.unwrap();
    let third = super::session(&server, Duration::from_secs(4)).await;
    let until = ["HGET", "{locks}:x", "q"];
    let until: i64 = server.command(&until).await.unwrap();
    let now = server.store_clock("locks").await.unwrap().own;
    // The clock went on by some seconds at most, and a holder gives up after half of its timeout.
    let left = Duration::from_micros((until - now).try_into().unwrap());
    assert!(left > Duration::from_secs(300), "{left:?}");
    drop(third);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_that_is_flushed() {
    let server = RedisServer::start().await.unwrap();
    let session_timeout = Duration::from_secs(4);
    // It knows that there was a store.
    let here = Redis::builder().session_timeout(session_timeout);
    let here = here.connect(&server.url()).await.unwrap();
    sleep(Duration::from_secs(7)).await;
    let absent = Absent::holding(session_timeout, server.url());
    let _ok: String = server.command(&["FLUSHALL"]).await.unwrap();
    granted_after(absent, &here).await;
}

/// Its node is removed (`lockctl break`) while it waits for the end of the quarantine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_goes_during_the_quarantine_is_not_granted() {
    let server = forgetful().await;
    let session_timeout = Duration::from_secs(12);
    let builder = || Redis::builder().session_timeout(session_timeout);
    let first = builder().connect(&server.url()).await.unwrap();
    let second = builder().connect(&server.url()).await.unwrap();
    let contend = |session: &Session| {
        let lock = mutex(session);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let one = contend(&first);
    waiting(&server, 1).await;
    let children = format!("{{locks}}:c:{PATH}");
    let names: Vec<String> = server
        .command(&["ZRANGE", &children, "0", "-1"])
        .await
        .unwrap();
    let operator = builder().store(&server.url()).unwrap();
    let operator = opened(&*operator).await;
    operator
        .delete(&format!("{PATH}/{}", names[0]))
        .await
        .unwrap();
    let two = contend(&second);
    let granted = timeout(SOON, select(one, two)).await.unwrap();
    let (one, other) = granted.factor_first();
    // It waits for the one that was granted, whose guard is valid meanwhile.
    let Ok(two) = timeout(2 * session_timeout, other).await else {
        return;
    };
    let (one, two) = (one.unwrap(), two.unwrap());
    let both = one.is_valid() && two.is_valid();
    let granted = Instant::now();
    tokio::select! { _ = one.lost() => {}, _ = two.lost() => {} }
    assert!(
        !both,
        "two valid guards of one lock, for {:?} more",
        granted.elapsed()
    );
}

/// A server that evicts keys, or an operator, has deleted what it knows of its run. A session that goes on then has to
/// assume that the run is new: it may be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_of_the_run_that_is_deleted_begins_a_quarantine() {
    let server = RedisServer::start().await.unwrap();
    let here = super::session(&server, LONG).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let _: i64 = server.command(&["DEL", "{locks}:x"]).await.unwrap();
    super::cut(&server).await;
    super::verified(&guard).await;
    let until: i64 = server.command(&["HGET", "{locks}:x", "q"]).await.unwrap();
    let now = server.store_clock("locks").await.unwrap().own;
    assert!(until - now > HALF_OF_LONG_US, "{until} {now}");
    guard.release().await.unwrap();
}

/// The store's clock has been running for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_is_told_as_the_time_that_is_left() {
    let server = RedisServer::start().await.unwrap();
    let builder = Redis::builder().session_timeout(LONG);
    let here = builder.clone().connect(&server.url()).await.unwrap();
    let later = StoreClock {
        own: 1_000 * HALF_OF_LONG_US,
        ..StoreClock::default()
    };
    server.change_store_clock("locks", later).await.unwrap();
    let another = ["HSET", "{locks}:x", "r", "another"];
    let _: i64 = server.command(&another).await.unwrap();
    let store = builder.store(&server.url()).unwrap();
    let nodes = store.connect().await.unwrap();
    let left = nodes.grants_from().unwrap() - Instant::now();
    assert!(left > LONG / 2 && left <= LONG * 3 / 4, "{left:?}");
    here.close().await;
}
