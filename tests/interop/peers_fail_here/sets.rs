//! A fault of Curator's `InterProcessMultiLock`.

use std::time::Duration;

use futures::future::join;
use lock_recipes::{AcquireError, Error, Member, MultiLock};
use test_rig::TestEnsemble;
use tokio::time::{Instant, sleep};

use super::curator::{SESSION_TIMEOUT, Stage};
use super::{OURS, PATIENCE, THEIRS, mutex};

/// D5: each member gets the whole timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_of_a_set_adds_up_where_ours_is_one_deadline() {
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    let limit = Duration::from_secs(10);

    let paths = members_of(THEIRS);
    for (lock, path) in ["first", "second"].into_iter().zip(&paths) {
        curator.mutex(lock, "c", path).await.unwrap();
    }
    let members = ["first", "second"];
    curator.multi_lock("set", &members).await.unwrap();
    let took = while_the_first_is_freed(ensemble, &paths, limit, async || {
        let late = curator.acquire("t", "set", Some(limit)).await;
        assert!(!late.unwrap());
    });
    assert!(took.await >= limit.mul_f64(1.5));

    let session = ensemble.session().await;
    let paths = members_of(OURS);
    let set = MultiLock::new(&session, paths.each_ref().map(Member::mutex)).unwrap();
    let took = while_the_first_is_freed(ensemble, &paths, limit, async || {
        let late = set.acquire().timeout(limit).await.unwrap_err();
        assert!(
            matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
            "{late}"
        );
    });
    assert!(took.await < limit.mul_f64(1.5));
}

fn members_of(set: &str) -> [String; 2] {
    ["first", "second"].map(|member| format!("{set}/{member}"))
}

/// Times an acquire of two locks that are held. The first is released meanwhile.
async fn while_the_first_is_freed(
    ensemble: &TestEnsemble,
    paths: &[String; 2],
    limit: Duration,
    acquire: impl AsyncFnOnce(),
) -> Duration {
    let holding = ensemble.session().await;
    let first = mutex(&holding, &paths[0]).acquire().await.unwrap();
    let second = mutex(&holding, &paths[1]).acquire().await.unwrap();
    let started = Instant::now();
    let freed = async {
        sleep(limit.mul_f64(0.6)).await;
        first.release().await.unwrap();
    };
    join(acquire(), freed).await;
    let took = started.elapsed();
    second.release().await.unwrap();
    took
}
