//! Whose session is silent: a holder that has crashed is shown with the time for which it was not heard.

use std::mem::forget;
use std::time::Duration;

use lock_recipes::{
    Contender, InterProcessMutex, Session, SessionOptions, connect_with, inspect, scan,
};
use test_rig::{MemoryEnsemble, TestEnsemble, on_every_ensemble};
use tokio::time::{Instant, advance, sleep};

use crate::crashed::{address, take_and_crash};

const PATH: &str = "/locks/orders";
const OTHER: &str = "/locks/other";
const T: Duration = Duration::from_secs(20);

on_every_ensemble!(nobody_is_silent_who_is_heard);

async fn contenders(session: &Session) -> Vec<Contender> {
    let seen = scan(session, "/").await.unwrap();
    let lock = inspect(session, PATH).await.unwrap();
    assert_eq!(seen.locks[0].contenders.len(), lock.contenders.len());
    lock.contenders
}

/// A holder that keeps its lock for longer than half of a session timeout.
async fn nobody_is_silent_who_is_heard(ensemble: TestEnsemble) {
    let timeout = Duration::from_secs(6);
    let options = || SessionOptions::new().session_timeout(timeout);
    let holder = ensemble.session_with(options()).await;
    let lock = InterProcessMutex::new(&holder, PATH).unwrap();
    let held = lock.acquire().await.unwrap();
    let observer = ensemble.session_with(options().read_only(true)).await;
    let other = ensemble.session_with(options()).await;
    let started = Instant::now();
    // On a machine that is very busy it may lose the lock.
    while started.elapsed() < timeout * 2 / 3 && held.is_valid() {
        for session in [&holder, &observer, &other] {
            for it in contenders(session).await {
                assert!(it.silent_for.is_none() || !held.is_valid(), "{it:?}");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

mod crashed_holder_is_shown_with_its_silence {
    use test_rig::own;

    use super::is_shown_with_its_silence;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_etcd() {
        is_shown_with_its_silence(own::on_etcd().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis() {
        is_shown_with_its_silence(own::on_redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_postgres() {
        is_shown_with_its_silence(own::on_postgres().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_mariadb() {
        is_shown_with_its_silence(own::on_mariadb().await).await;
    }
}

/// While nobody is connected but who only reads, the databases and Redis keep it for longer than its timeout.
async fn is_shown_with_its_silence(ensemble: TestEnsemble) {
    let url = address(&ensemble);
    take_and_crash(&url, PATH, T).await;
    let crashed = Instant::now();
    let observer = connect_with(&url, SessionOptions::new().read_only(true));
    let observer = observer.await.unwrap();
    let silent = ensemble
        .until("the silence is shown", async || {
            contenders(&observer).await[0].silent_for
        })
        .await;
    // What is known of a lease is whole seconds, and a beat may have been on its way.
    let (least, most) = (T / 2, crashed.elapsed() + T / 6);
    assert!(silent > least && silent <= most, "{silent:?} of {most:?}");
    // To a session that takes locks, too, and while it is there the store counts every moment.
    let options = SessionOptions::new().session_timeout(T);
    let other = connect_with(&url, options).await.unwrap();
    take_and_crash(&url, OTHER, T).await;
    let silent = ensemble.until("the silence is shown to others", async || {
        let lock = inspect(&other, OTHER).await.ok()?;
        lock.contenders[0].silent_for
    });
    assert!(silent.await > least);
    other.close().await;
}

/// The double, and a holder that has crashed.
async fn crashed_in_memory() -> (MemoryEnsemble, Session) {
    let memory = MemoryEnsemble::builder().on_redis(T).build();
    let holder = memory.session();
    let lock = InterProcessMutex::new(&holder, PATH).unwrap();
    forget(lock.acquire().await.unwrap());
    memory.disconnect(holder.session_id().unwrap());
    let observer = memory.session_with(SessionOptions::new().read_only(true));
    (memory, observer)
}

/// In exact time. The store's own clock counts T/4 of it.
#[tokio::test(start_paused = true)]
async fn time_in_which_nobody_was_connected_is_told_in_full() {
    let (_memory, observer) = crashed_in_memory().await;
    advance(T / 2).await;
    assert_eq!(contenders(&observer).await[0].silent_for, None);
    advance(T * 6 - T / 2).await;
    let silent = contenders(&observer).await[0].silent_for.unwrap();
    // A beat was on its way when it crashed, at most.
    assert!(silent <= T * 6 && silent > T * 6 - T / 6, "{silent:?}");
}

/// A session that takes locks asks over a connection of its own for that, which is closed again.
#[tokio::test(start_paused = true)]
async fn session_that_takes_locks_is_told_too() {
    let (memory, observer) = crashed_in_memory().await;
    let waiter = memory.session();
    let lock = InterProcessMutex::new(&waiter, PATH).unwrap();
    let waiting = tokio::spawn(lock.acquire());
    while contenders(&observer).await.len() < 2 {
        advance(Duration::from_millis(1)).await;
    }
    // The store ends it at T.
    sleep(T * 3 / 4).await;
    let seen = contenders(&waiter).await;
    let silent: Vec<_> = seen.iter().map(|it| it.silent_for.is_some()).collect();
    assert_eq!(silent, [true, false]);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
