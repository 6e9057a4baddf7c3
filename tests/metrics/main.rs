//! The metrics of a scripted run are as the script implies.
//!
//! | file | question it answers |
//! |---|---|
//! | this | are counts and times right? |
//! | `gauges` | do gauges show what goes on at this moment? |
//! | `family` | do semaphores and elections have their own? |
//! | `monitoring` | do the dashboard and the alerts use what is exported? |
//! | `example` | does the example print what a Prometheus server gets? |
//!
//! Recorders belong to a thread here, so every test runs on one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod example;
#[path = "../support/executable.rs"]
mod executable;
mod family;
mod gauges;
#[path = "../support/log.rs"]
mod log;
mod monitoring;

use std::collections::BTreeMap;
use std::time::Duration;

use lock_recipes::{
    AcquireError, Error, InterProcessMutex, InterProcessReadWriteLock, LockOptions, Member,
    MultiLock, MutexGuard, Owner, ReleaseError, ReleaseOutcome, Session, SessionHealth,
};
use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use test_rig::{MemoryEnsemble, TestEnsemble};
use tokio::task::JoinHandle;

use crate::log::logging;

const ORDERS: &str = "/locks/orders";
const CONFIG: &str = "/locks/config";
const SHARED: &str = "/locks/shared";

const PREFIX: &str = "lock_recipes_";

/// A recorder whose output a Prometheus server can read, with a bucket for each length of a queue.
fn recorder() -> PrometheusRecorder {
    let lengths = Matcher::Full("lock_recipes_queue_length".into());
    let times = Matcher::Suffix("_seconds".into());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(lengths, &[0., 1., 2., 3., 4.]);
    let builder = builder.unwrap().set_buckets_for_metric(times, &[1., 10.]);
    builder.unwrap().build_recorder()
}

fn series(metrics: &PrometheusHandle) -> BTreeMap<String, f64> {
    let text = metrics.render();
    let lines = text
        .lines()
        .filter(|it| !it.is_empty() && !it.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let name = name.trim_start_matches(PREFIX);
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// Every series that does not depend on how long anything took.
fn counts(metrics: &PrometheusHandle) -> Vec<(String, u64)> {
    let is_time = |name: &str| name.contains("_seconds_bucket") || name.contains("_seconds_sum");
    let series = series(metrics).into_iter();
    series
        .filter(|(name, _)| !is_time(name))
        .map(|(name, value)| (name, format!("{value}").parse().unwrap()))
        .collect()
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, ORDERS).unwrap()
}

fn waiter(lock: &InterProcessMutex) -> JoinHandle<Result<MutexGuard, Error>> {
    let lock = lock.clone();
    tokio::spawn(lock.acquire())
}

/// Three are granted, one after the other. Two give up while four and five are in the queue.
async fn queue(ensemble: &TestEnsemble, session: &Session) {
    let lock = mutex(session);
    let held = lock.acquire().await.unwrap();
    let mut waiters = Vec::new();
    for contenders in 2..=4 {
        waiters.push(waiter(&lock));
        ensemble.await_children(ORDERS, contenders).await;
    }
    assert!(lock.try_acquire().await.unwrap().is_none());
    // Its node is listed before that on a busy machine too, and so it is counted in the queue.
    let late = lock.acquire().timeout(Duration::from_secs(5)).await;
    assert!(matches!(
        late,
        Err(Error::Acquire(AcquireError::TimedOut { .. }))
    ));
    ensemble.await_children(ORDERS, 4).await;
    waiters.pop().unwrap().abort();
    ensemble.await_children(ORDERS, 3).await;
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Two readers at a time, then a writer that also reads and re-enters its own lock.
async fn read_and_write(ensemble: &TestEnsemble, session: &Session) {
    let lock = InterProcessReadWriteLock::new(session, CONFIG).unwrap();
    let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
    let owner = Owner::new();
    let (writing, writer) = (lock.clone(), owner.clone());
    let writer = tokio::spawn(writing.write().owner(&writer));
    ensemble.await_children(CONFIG, 3).await;
    for reader in readers {
        reader.release().await.unwrap();
    }
    let writer = writer.await.unwrap().unwrap();
    let again = lock.write().owner(&owner).await.unwrap();
    let beside = writer.read().await.unwrap();
    beside.release().await.unwrap();
    again.release().await.unwrap();
    writer.release().await.unwrap();
}

async fn set(session: &Session) {
    let members = [Member::mutex("/locks/a"), Member::mutex("/locks/b")];
    let lock = MultiLock::new(session, members).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Five contenders of a process share a node that is handed on twice, then another.
async fn hand_on(ensemble: &TestEnsemble, session: &Session) {
    let options = LockOptions::new().local_handoffs(2);
    let lock = InterProcessMutex::with_options(session, SHARED, &options).unwrap();
    let held = lock.acquire().await.unwrap();
    let contenders: Vec<_> = (0..4).map(|_| waiter(&lock)).collect();
    // They wait within the process, which has one node.
    tokio::task::yield_now().await;
    ensemble.await_children(SHARED, 1).await;
    held.release().await.unwrap();
    for contender in contenders {
        contender.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A node that is removed, one that is gone when it is released, and sessions that end.
async fn lose(ensemble: &TestEnsemble, session: &Session) {
    for is_told_by_the_release in [false, true] {
        let held = mutex(session).acquire().await.unwrap();
        let node = held.members().remove(0).node_path;
        ensemble.delete(&node).await;
        if !is_told_by_the_release {
            held.lost().await;
        }
        let released = held.release().await;
        assert!(matches!(
            released,
            Err(Error::Release(ReleaseError::Lost(_)))
        ));
    }

    let expiring = ensemble.session().await;
    let held = mutex(&expiring).acquire().await.unwrap();
    ensemble.expire(&expiring).await;
    held.lost().await;
    // This one is of the new session.
    mutex(&expiring)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(held);

    let held = mutex(&expiring).acquire().await.unwrap();
    expiring.close().await;
    held.lost().await;
}

/// A lock that is dropped during an outage is deleted when the ensemble is back.
async fn clean_up(ensemble: &TestEnsemble, session: &Session, metrics: &PrometheusHandle) {
    let pending = |count: f64| {
        let is_so = move || series(metrics).get("cleanups_pending") == Some(&count);
        async move || is_so().then_some(())
    };
    let held = mutex(session).acquire().await.unwrap();
    ensemble.until("no clean-up", pending(0.)).await;
    ensemble.stop().await;
    let mut health = session.watch_health();
    while session.health() == SessionHealth::Connected {
        health.changed().await;
    }
    drop(held);
    ensemble.until("a clean-up", pending(1.)).await;
    ensemble.start_again().await;
    ensemble.until("no clean-up", pending(0.)).await;
}

/// Shown before anything is counted, because alerts read them.
const ZEROS: [(&str, u64); 29] = [
    (r#"losses_total{kind="mutex",reason="deadline_passed"}"#, 0),
    (r#"losses_total{kind="read",reason="deadline_passed"}"#, 0),
    (r#"losses_total{kind="read",reason="node_removed"}"#, 0),
    (r#"losses_total{kind="read",reason="session_closed"}"#, 0),
    (r#"losses_total{kind="read",reason="session_expired"}"#, 0),
    (r#"losses_total{kind="write",reason="deadline_passed"}"#, 0),
    (r#"losses_total{kind="write",reason="node_removed"}"#, 0),
    (r#"losses_total{kind="write",reason="session_closed"}"#, 0),
    (r#"losses_total{kind="write",reason="session_expired"}"#, 0),
    (r#"losses_total{kind="permit",reason="deadline_passed"}"#, 0),
    (r#"losses_total{kind="permit",reason="node_removed"}"#, 0),
    (r#"losses_total{kind="permit",reason="session_closed"}"#, 0),
    (r#"losses_total{kind="permit",reason="session_expired"}"#, 0),
    (r#"losses_total{kind="latch",reason="deadline_passed"}"#, 0),
    (r#"losses_total{kind="latch",reason="node_removed"}"#, 0),
    (r#"losses_total{kind="latch",reason="session_closed"}"#, 0),
    (r#"losses_total{kind="latch",reason="session_expired"}"#, 0),
    (r#"releases_total{kind="permit",outcome="lost"}"#, 0),
    (r#"releases_total{kind="permit",outcome="refused"}"#, 0),
    (r#"releases_total{kind="latch",outcome="lost"}"#, 0),
    (r#"releases_total{kind="latch",outcome="refused"}"#, 0),
    (r#"releases_total{kind="mutex",outcome="refused"}"#, 0),
    (r#"releases_total{kind="read",outcome="lost"}"#, 0),
    (r#"releases_total{kind="read",outcome="refused"}"#, 0),
    (r#"releases_total{kind="write",outcome="lost"}"#, 0),
    (r#"releases_total{kind="write",outcome="refused"}"#, 0),
    (r#"sessions_lost_total{reason="auth_failed"}"#, 0),
    (r#"sessions_lost_total{reason="closed"}"#, 0),
    (r#"sessions_lost_total{reason="store_forgot"}"#, 0),
];

const COUNTS: [(&str, u64); 63] = [
    (r#"acquires_pending{kind="mutex"}"#, 0),
    (r#"acquires_pending{kind="read"}"#, 0),
    (r#"acquires_pending{kind="set"}"#, 0),
    (r#"acquires_pending{kind="write"}"#, 0),
    // 3 in the queue, 5 that share, 2 of the node that is removed, 3 of the session, 1 clean-up.
    (r#"acquires_total{kind="mutex",outcome="granted"}"#, 14),
    (r#"acquires_total{kind="mutex",outcome="busy"}"#, 1),
    (r#"acquires_total{kind="mutex",outcome="dropped"}"#, 1),
    (r#"acquires_total{kind="mutex",outcome="timed_out"}"#, 1),
    (r#"acquires_total{kind="read",outcome="granted"}"#, 3),
    (r#"acquires_total{kind="set",outcome="granted"}"#, 1),
    (r#"acquires_total{kind="write",outcome="granted"}"#, 1),
    (r#"acquires_total{kind="write",outcome="reentered"}"#, 1),
    ("cleanups_pending", 0),
    // As granted, and the two of the set.
    (r#"grants_total{kind="mutex"}"#, 16),
    (r#"grants_total{kind="read"}"#, 3),
    (r#"grants_total{kind="write"}"#, 1),
    (r#"hold_seconds_count{kind="mutex"}"#, 16),
    (r#"hold_seconds_count{kind="read"}"#, 3),
    (r#"hold_seconds_count{kind="write"}"#, 1),
    (r#"local_handoffs_total{kind="mutex"}"#, 3),
    (r#"losses_total{kind="mutex",reason="node_removed"}"#, 2),
    (r#"losses_total{kind="mutex",reason="session_closed"}"#, 1),
    (r#"losses_total{kind="mutex",reason="session_expired"}"#, 1),
    // After 1, 2, 3 and 4 others in the queue. Of the five that share, two have made a node.
    (r#"queue_length_bucket{kind="mutex",le="0"}"#, 11),
    (r#"queue_length_bucket{kind="mutex",le="1"}"#, 12),
    (r#"queue_length_bucket{kind="mutex",le="2"}"#, 13),
    (r#"queue_length_bucket{kind="mutex",le="3"}"#, 14),
    (r#"queue_length_bucket{kind="mutex",le="4"}"#, 15),
    (r#"queue_length_bucket{kind="mutex",le="+Inf"}"#, 15),
    (r#"queue_length_sum{kind="mutex"}"#, 10),
    (r#"queue_length_count{kind="mutex"}"#, 15),
    // The reader next to its writer does not queue.
    (r#"queue_length_bucket{kind="read",le="0"}"#, 1),
    (r#"queue_length_bucket{kind="read",le="1"}"#, 2),
    (r#"queue_length_bucket{kind="read",le="2"}"#, 2),
    (r#"queue_length_bucket{kind="read",le="3"}"#, 2),
    (r#"queue_length_bucket{kind="read",le="4"}"#, 2),
    (r#"queue_length_bucket{kind="read",le="+Inf"}"#, 2),
    (r#"queue_length_sum{kind="read"}"#, 1),
    (r#"queue_length_count{kind="read"}"#, 2),
    (r#"queue_length_bucket{kind="write",le="0"}"#, 0),
    (r#"queue_length_bucket{kind="write",le="1"}"#, 0),
    (r#"queue_length_bucket{kind="write",le="2"}"#, 1),
    (r#"queue_length_bucket{kind="write",le="3"}"#, 1),
    (r#"queue_length_bucket{kind="write",le="4"}"#, 1),
    (r#"queue_length_bucket{kind="write",le="+Inf"}"#, 1),
    (r#"queue_length_sum{kind="write"}"#, 2),
    (r#"queue_length_count{kind="write"}"#, 1),
    // As granted, without what was dropped: one after its loss, one with its session, one clean-up.
    (r#"releases_total{kind="mutex",outcome="released"}"#, 11),
    (r#"releases_total{kind="mutex",outcome="lost"}"#, 2),
    (r#"releases_total{kind="read",outcome="released"}"#, 3),
    (r#"releases_total{kind="write",outcome="released"}"#, 1),
    (r#"sessions{health="connected"}"#, 0),
    (r#"sessions{health="connecting"}"#, 0),
    (r#"sessions{health="disconnected"}"#, 0),
    (r#"sessions_lost_total{reason="expired"}"#, 1),
    (r#"wait_seconds_count{kind="mutex",outcome="granted"}"#, 14),
    (r#"wait_seconds_count{kind="mutex",outcome="busy"}"#, 1),
    (r#"wait_seconds_count{kind="mutex",outcome="dropped"}"#, 1),
    (r#"wait_seconds_count{kind="mutex",outcome="timed_out"}"#, 1),
    (r#"wait_seconds_count{kind="read",outcome="granted"}"#, 3),
    (r#"wait_seconds_count{kind="set",outcome="granted"}"#, 1),
    (r#"wait_seconds_count{kind="write",outcome="granted"}"#, 1),
    (r#"wait_seconds_count{kind="write",outcome="reentered"}"#, 1),
];

async fn script(ensemble: &TestEnsemble, metrics: &PrometheusHandle) {
    let session = ensemble.session().await;
    queue(ensemble, &session).await;
    read_and_write(ensemble, &session).await;
    set(&session).await;
    hand_on(ensemble, &session).await;
    lose(ensemble, &session).await;
    clean_up(ensemble, &session, metrics).await;
    session.close().await;
}

async fn scripted_run(ensemble: TestEnsemble) {
    let recorder = recorder();
    let metrics = recorder.handle();
    let _recording = set_default_local_recorder(&recorder);
    script(&ensemble, &metrics).await;

    let expected = COUNTS.into_iter().chain(ZEROS);
    let mut expected: Vec<_> = expected
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    expected.sort();
    let counted = counts(&metrics);
    let missing: Vec<_> = expected.iter().filter(|it| !counted.contains(it)).collect();
    let surplus: Vec<_> = counted.iter().filter(|it| !expected.contains(it)).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "expected {missing:?}, counted {surplus:?}"
    );
    let text = metrics.render();
    let described = expected
        .iter()
        .filter_map(|(name, _)| name.split('{').next());
    for name in described.filter(|it| !it.contains("_bucket")) {
        let name = name.trim_end_matches("_count").trim_end_matches("_sum");
        let help = format!("# HELP {PREFIX}{name} ");
        assert!(text.contains(&help), "{help:?} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_of_a_scripted_run_equal_its_counts_in_memory() {
    scripted_run(TestEnsemble::in_memory()).await;
}

#[tokio::test]
async fn metrics_of_a_scripted_run_equal_its_counts_on_a_real_server() {
    scripted_run(test_rig::own::on_a_real_server().await).await;
}

#[tokio::test(start_paused = true)]
async fn waits_and_holds_last_as_long_as_the_clock_says() {
    let recorder = recorder();
    let metrics = recorder.handle();
    let _recording = set_default_local_recorder(&recorder);
    let ensemble = TestEnsemble::Memory(MemoryEnsemble::new());
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let held = lock.acquire().await.unwrap();
    let waiting = waiter(&lock);
    ensemble.await_children(ORDERS, 2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    held.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    held.release().await.unwrap();

    let series = series(&metrics);
    let waited = series[r#"wait_seconds_sum{kind="mutex",outcome="granted"}"#];
    let held = series[r#"hold_seconds_sum{kind="mutex"}"#];
    assert!((5.0..5.1).contains(&waited), "{waited}");
    assert!((7.0..7.1).contains(&held), "{held}");
}

/// It fails no work, so the log and a metric must tell who looks for what others wait for.
#[tokio::test(start_paused = true)]
async fn release_without_an_answer_is_counted_and_logged() {
    let (recorder, (log, _logging)) = (recorder(), logging());
    let metrics = recorder.handle();
    let _recording = set_default_local_recorder(&recorder);
    let mortal = MemoryEnsemble::builder().session_timeout(Duration::from_secs(12));
    let ensemble = TestEnsemble::Memory(mortal.build());
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.stop().await;
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Pending);
    let pending = r#"releases_total{kind="mutex",outcome="pending"}"#;
    assert_eq!(
        series(&metrics).get(pending),
        Some(&1.),
        "{:?}",
        series(&metrics)
    );
    let lines = log.lines("INFO lock_recipes::cleanup");
    let told = |line: &&String| {
        let parts = ["release not confirmed yet", ORDERS];
        parts.iter().all(|it| line.contains(it))
    };
    assert_eq!(lines.iter().filter(told).count(), 1, "{lines:?}");
}
