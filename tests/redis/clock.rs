//! No session ends because a clock was set, and no token falls.
//!
//! The scripts remember the server's clock at the last of them. To change what they remember is to
//! set the clock.

use std::time::Duration;

use test_rig::{RedisServer, StoreClock};

use super::{mutex, session, until};

const YEARS: i64 = 3 * 365 * 24 * 3_600 * 1_000_000;

/// Sets the server's clock forward, or back.
async fn set_clock(server: &RedisServer, by_us: i64) {
    let by = StoreClock {
        last: -by_us,
        ..StoreClock::default()
    };
    server.change_store_clock("locks", by).await.unwrap();
}

async fn number(server: &RedisServer) -> i64 {
    server.store_clock("locks").await.unwrap().number
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_is_set_forward_ends_no_session() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(20)).await;
    let there = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&here).acquire().await.unwrap();
    set_clock(&server, YEARS).await;
    // Any script could sweep.
    assert!(mutex(&there).try_acquire().await.unwrap().is_none());
    guard.verify().await.unwrap();
    assert_eq!((here.epoch(), there.epoch()), (1, 1));
}

/// The store's own clock goes on, and tokens rise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_that_is_set_back_neither_holds_up_nor_repeats() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(20)).await;
    let first = mutex(&here).acquire().await.unwrap().fencing_token();
    // As if all that happened so far had happened three years later.
    let later = StoreClock {
        number: YEARS,
        last: YEARS,
        ..StoreClock::default()
    };
    let ahead = server.change_store_clock("locks", later).await.unwrap();
    let second = mutex(&here).acquire().await.unwrap();
    assert!(second.fencing_token() > first);
    assert!(number(&server).await > ahead.number);
    // A holder that is not heard of any more loses the lock: time goes on.
    let id = here.session_id().unwrap().to_string();
    let sessions = ["ZRANGE", "{locks}:s", "0", "-1"];
    let sessions: Vec<String> = server.command(&sessions).await.unwrap();
    let name = sessions.iter().find(|it| it.starts_with(&id)).unwrap();
    let before: f64 = server
        .command(&["ZSCORE", "{locks}:s", name])
        .await
        .unwrap();
    until("a later deadline", async || {
        let after: f64 = server
            .command(&["ZSCORE", "{locks}:s", name])
            .await
            .unwrap();
        (after > before).then_some(())
    })
    .await;
    second.release().await.unwrap();
}
