//! A session that is closed in an outage waits for nothing that cannot come, and logs what it leaves.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, Session, SessionHealth, ZooKeeper};
use test_rig::{MemoryEnsemble, TestEnsemble, ZooKeeperServer};
use tokio::time::{Instant, sleep};

use crate::connection_news::becomes;
use crate::log::logging;

/// Shorter than any session timeout here, so a busy machine does not fail the test.
const SOON: Duration = Duration::from_secs(15);
const LEFT: &str = "session closed without a connection; its lock nodes stay";

fn mutex(session: &Session, number: usize) -> InterProcessMutex {
    InterProcessMutex::new(session, &format!("/locks/{number}")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn session_closed_in_an_outage_ends_soon_and_warns_once_of_its_nodes_in_memory() {
    closes_soon_and_warns_once_of_its_nodes(TestEnsemble::in_memory()).await;
}

/// On one thread, which logs to the test.
#[tokio::test]
async fn session_closed_in_an_outage_ends_soon_and_warns_once_of_its_nodes_on_a_real_server() {
    closes_soon_and_warns_once_of_its_nodes(test_rig::own::on_a_real_server().await).await;
}

#[tokio::test(start_paused = true)]
async fn session_without_nodes_closes_in_an_outage_without_a_warning_in_memory() {
    closes_soon_without_a_warning(TestEnsemble::in_memory()).await;
}

/// On one thread, which logs to the test.
#[tokio::test]
async fn session_without_nodes_closes_in_an_outage_without_a_warning_on_a_real_server() {
    closes_soon_without_a_warning(test_rig::own::on_a_real_server().await).await;
}

async fn closes_soon_and_warns_once_of_its_nodes(ensemble: TestEnsemble) {
    let (log, _logging) = logging();
    let session = ensemble.session().await;
    let held = mutex(&session, 0).acquire().await.unwrap();
    let id = session.session_id().unwrap();
    let dropped = mutex(&session, 1).acquire().await.unwrap();
    let waiter = tokio::spawn(mutex(&session, 0).acquire());
    ensemble.await_children("/locks/0", 2).await;
    ensemble.stop().await;
    becomes(&session, SessionHealth::Disconnected).await;
    let first = dropped.members().remove(0).node_path;
    // Its node is left to the clean-up before the close.
    drop(dropped);

    let closing = Instant::now();
    session.close().await;
    let took = closing.elapsed();
    assert!(took < SOON, "{took:?}");
    waiter.await.unwrap().unwrap_err();
    let warnings = log.lines(LEFT);
    assert_eq!(warnings.len(), 1, "{}", log.text());
    let session = format!("session={id:#x}");
    let first = format!("first=\"{first}\"");
    for part in ["WARN lock_recipes::session", "nodes=3", &session, &first] {
        assert!(warnings[0].contains(part), "{part} is not in {warnings:?}");
    }
    assert!(log.lines("before all lock nodes").is_empty());
    drop(held);
    ensemble.start_again().await;
}

async fn closes_soon_without_a_warning(ensemble: TestEnsemble) {
    let (log, _logging) = logging();
    let session = ensemble.session().await;
    let held = mutex(&session, 0).acquire().await.unwrap();
    held.release().await.unwrap();
    ensemble.stop().await;
    becomes(&session, SessionHealth::Disconnected).await;
    let closing = Instant::now();
    session.close().await;
    let took = closing.elapsed();
    assert!(took < SOON, "{took:?}");
    assert!(log.lines(LEFT).is_empty(), "{}", log.text());
    ensemble.start_again().await;
}

#[tokio::test(start_paused = true)]
async fn connection_that_is_back_soon_lets_a_close_delete_all() {
    let (log, _logging) = logging();
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    let _held = mutex(&session, 0).acquire().await.unwrap();
    let id = session.session_id().unwrap();
    memory.disconnect(id);
    becomes(&session, SessionHealth::Disconnected).await;
    let closing = tokio::spawn({
        let session = session.clone();
        async move { session.close().await }
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(memory.children("/locks/0").len(), 1);
    memory.reconnect(id);
    closing.await.unwrap();
    assert!(memory.children("/locks/0").is_empty());
    assert!(log.lines("session closed").is_empty(), "{}", log.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_without_a_server_does_not_wait_for_it_on_a_real_server() {
    let ensemble = test_rig::own::on_a_real_server().await;
    let session = ensemble.session().await;
    mutex(&session, 0)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    ensemble.stop().await;
    let mut health = session.watch_health();
    while session.health() == SessionHealth::Connected {
        health.changed().await;
    }
    let closing = Instant::now();
    session.close().await;
    assert!(closing.elapsed() < SOON, "{:?}", closing.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_a_session_from_a_client_that_goes_on_leaves_no_node_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let client = server.client().await.unwrap();
    let ensemble = TestEnsemble::Real(server.into());
    let holding = ensemble.session().await;
    let _held = mutex(&holding, 0).acquire().await.unwrap();
    let session = ZooKeeper::from_client(client.clone());
    let waiter = mutex(&session, 0);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children("/locks/0", 2).await;
    let closing = Instant::now();
    session.close().await;
    assert!(closing.elapsed() < SOON, "{:?}", closing.elapsed());
    assert!(waiter.await.unwrap().is_err());
    assert_eq!(client.list_children("/locks/0").await.unwrap().len(), 1);
}
