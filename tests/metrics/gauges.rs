//! Gauges show what goes on at this moment, for alerts on what does not end.

use lock_recipes::{AcquireError, Error};
use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::PrometheusHandle;
use test_rig::{MemoryEnsemble, TestEnsemble};

use crate::{ORDERS, mutex, recorder, series, waiter};

/// Waits until a series has this value.
async fn await_value(ensemble: &TestEnsemble, metrics: &PrometheusHandle, name: &str, value: f64) {
    let has_it = async || (series(metrics).get(name) == Some(&value)).then_some(());
    ensemble.until(name, has_it).await;
}

async fn waiters_and_sessions_are_counted_while_they_last(ensemble: TestEnsemble) {
    let recorder = recorder();
    let metrics = recorder.handle();
    let _recording = set_default_local_recorder(&recorder);
    let session = ensemble.session().await;
    let lock = mutex(&session);
    let held = lock.acquire().await.unwrap();
    let shown = async |name: &str, value| await_value(&ensemble, &metrics, name, value).await;
    shown(r#"acquires_pending{kind="mutex"}"#, 0.).await;
    shown(r#"sessions{health="connected"}"#, 1.).await;

    let waiters = [waiter(&lock), waiter(&lock)];
    ensemble.await_children(ORDERS, 3).await;
    shown(r#"acquires_pending{kind="mutex"}"#, 2.).await;
    let [waiting, abandoned] = waiters;
    abandoned.abort();
    shown(r#"acquires_pending{kind="mutex"}"#, 1.).await;

    ensemble.stop().await;
    shown(r#"sessions{health="disconnected"}"#, 1.).await;
    shown(r#"sessions{health="connected"}"#, 0.).await;
    ensemble.start_again().await;
    shown(r#"sessions{health="connected"}"#, 1.).await;
    shown(r#"sessions{health="disconnected"}"#, 0.).await;

    drop(held);
    // The outage may have lost the lock of a slow machine, but not the waiter.
    drop(waiting.await.unwrap().unwrap());
    shown(r#"acquires_pending{kind="mutex"}"#, 0.).await;
    session.close().await;
    shown(r#"sessions{health="connected"}"#, 0.).await;
}

#[tokio::test(start_paused = true)]
async fn waiters_and_sessions_are_counted_while_they_last_in_memory() {
    waiters_and_sessions_are_counted_while_they_last(TestEnsemble::in_memory()).await;
}

#[tokio::test]
async fn waiters_and_sessions_are_counted_while_they_last_on_a_real_server() {
    waiters_and_sessions_are_counted_while_they_last(test_rig::own::on_a_real_server().await).await;
}

/// The ensemble of a session that has seen high numbers loses its data.
#[tokio::test(start_paused = true)]
async fn store_that_forgets_is_counted_and_its_session_is_not() {
    let recorder = recorder();
    let metrics = recorder.handle();
    let _recording = set_default_local_recorder(&recorder);
    let memory = MemoryEnsemble::new();
    let ensemble = TestEnsemble::Memory(memory.clone());
    let session = ensemble.session().await;
    let lock = mutex(&session);
    for _ in 0..20 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    memory.wipe();
    let refused = lock.acquire().await;
    assert!(
        matches!(
            refused,
            Err(Error::Acquire(AcquireError::StoreForgot { .. }))
        ),
        "{refused:?}"
    );
    let forgot = r#"sessions_lost_total{reason="store_forgot"}"#;
    await_value(&ensemble, &metrics, forgot, 1.).await;
    for health in ["connecting", "connected", "disconnected"] {
        let name = format!("sessions{{health=\"{health}\"}}");
        await_value(&ensemble, &metrics, &name, 0.).await;
    }
}
