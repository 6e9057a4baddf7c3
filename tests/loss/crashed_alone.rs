//! Holders that crash while nobody else is connected, and callers who only come to try.

use std::mem::forget;
use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, Session, SessionOptions, connect_with};
use test_rig::{MemoryEnsemble, TestEnsemble};
use tokio::time::{Instant, sleep};

use crate::crashed::{address, take_and_crash};

const PATH: &str = "/locks/orders";
const T: Duration = Duration::from_secs(4);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

mod first_try_after_the_session_timeout_gets_the_lock_of_a_crashed_holder {
    use test_rig::own;

    use super::first_try_gets_the_lock;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_a_real_server() {
        first_try_gets_the_lock(own::on_a_real_server().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_redis() {
        first_try_gets_the_lock(own::on_redis().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_postgres() {
        first_try_gets_the_lock(own::on_postgres().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_mariadb() {
        first_try_gets_the_lock(own::on_mariadb().await).await;
    }
}

async fn first_try_gets_the_lock(ensemble: TestEnsemble) {
    let url = address(&ensemble);
    take_and_crash(&url, PATH, T).await;
    // Nobody is connected meanwhile.
    sleep(T + T / 4).await;
    let options = SessionOptions::new().session_timeout(T);
    let next = connect_with(&url, options).await.unwrap();
    let tried = mutex(&next).try_acquire().await.unwrap();
    assert!(tried.is_some(), "the holder has been dead for long");
}

/// The double, and a session on it that is opened when a holder has been dead for long.
async fn after_a_crash() -> (MemoryEnsemble, Session) {
    let memory = MemoryEnsemble::builder().on_redis(T).build();
    let holder = memory.session();
    forget(mutex(&holder).acquire().await.unwrap());
    memory.disconnect(holder.session_id().unwrap());
    sleep(T + T / 4).await;
    let next = memory.session();
    (memory, next)
}

/// As above, in exact time; and an acquire without time to wait is a try.
#[tokio::test(start_paused = true)]
async fn try_waits_until_the_dead_session_was_seen_to_be_silent() {
    let (_memory, next) = after_a_crash().await;
    let started = Instant::now();
    let at_once = mutex(&next).acquire().timeout(Duration::ZERO);
    drop(at_once.await.unwrap());
    // Timers are exact to the millisecond.
    let bound = T * 3 / 4 + T / 12 + Duration::from_millis(1);
    assert!(started.elapsed() <= bound, "{:?}", started.elapsed());
}

/// Also if it may wait for the dead session within it, and the store falls silent meanwhile.
#[tokio::test(start_paused = true)]
async fn time_for_answers_that_the_caller_gave_is_a_bound_of_the_wait_too() {
    let (memory, next) = after_a_crash().await;
    let started = Instant::now();
    let tried = tokio::spawn(mutex(&next).try_acquire().timeout(T));
    sleep(T / 4).await;
    memory.pause();
    tried.await.unwrap().unwrap_err();
    let bound = T + Duration::from_millis(2);
    assert!(started.elapsed() <= bound, "{:?}", started.elapsed());
}

/// It sees that the store has nothing to wait for.
#[tokio::test(start_paused = true)]
async fn try_for_the_lock_of_a_live_holder_waits_for_nothing() {
    let memory = MemoryEnsemble::builder().on_redis(T).build();
    let holder = memory.session();
    let held = mutex(&holder).acquire().await.unwrap();
    sleep(T * 5).await;
    let next = memory.session();
    let started = Instant::now();
    assert!(mutex(&next).try_acquire().await.unwrap().is_none());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(held.is_valid());
}

/// A clock that was set looks like a time without anybody. The holder is heard before its time is over.
#[tokio::test(start_paused = true)]
async fn try_after_a_clock_was_set_leaves_a_live_holder_its_lock() {
    let memory = MemoryEnsemble::builder().on_redis(T).build();
    let holder = memory.session();
    let held = mutex(&holder).acquire().await.unwrap();
    memory.set_clock_forward(Duration::from_secs(86_400));
    let next = memory.session();
    assert!(mutex(&next).try_acquire().await.unwrap().is_none());
    assert!(held.is_valid());
    held.verify().await.unwrap();
}

/// Who says how long, waits no longer.
#[tokio::test(start_paused = true)]
async fn time_that_the_caller_gave_is_a_bound() {
    let (_memory, next) = after_a_crash().await;
    let short = Duration::from_millis(200);
    let started = Instant::now();
    let tried = mutex(&next).try_acquire().timeout(short).await.unwrap();
    assert!(tried.is_none(), "it does not know");
    assert_eq!(started.elapsed(), Duration::ZERO);
    let waited = mutex(&next).acquire().timeout(short).await;
    assert!(matches!(
        waited,
        Err(Error::Acquire(AcquireError::TimedOut { .. }))
    ));
    assert!(started.elapsed() <= short * 2, "{:?}", started.elapsed());
}
