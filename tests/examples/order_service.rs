//! The example service: several processes, many clients, every code once.

mod client;
mod load;
mod service;

use axum::http::StatusCode;
use futures::future::join_all;
use lock_recipes::InterProcessMutex;
use rustix::process::Signal;
use serde_json::Value;
use test_rig::{TestEnsemble, ZooKeeperServer, asked_for};
use tokio::time::Instant;

use client::Http;
use load::Load;
use service::Service;

const LOCK: &str = "/demo/locks/order-codes";
const COUNTER: &str = "/demo/order-counter";

/// Long enough that a busy machine loses no session.
const LONG_SESSION: [&str; 2] = ["--session-timeout-ms", "20000"];
/// Survives a restart. A client waits two fifths of it for a server that accepts a connection while
/// it starts and never answers.
const MEDIUM_SESSION: [&str; 2] = ["--session-timeout-ms", "5000"];
const SHORT_SESSION: [&str; 2] = ["--session-timeout-ms", "2000"];

#[tokio::test]
async fn every_code_is_handed_out_once_and_in_order_by_three_processes_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let address = server.connect_string();
    every_code_is_handed_out_once_and_in_order(TestEnsemble::Real(server.into()), &address).await;
}

#[tokio::test]
async fn every_code_is_handed_out_once_and_in_order_by_three_processes_on_redis() {
    on_a_server(test_rig::own::on_redis().await).await;
}

#[tokio::test]
async fn every_code_is_handed_out_once_and_in_order_by_three_processes_on_postgres() {
    on_a_server(test_rig::own::on_postgres().await).await;
}

#[tokio::test]
async fn every_code_is_handed_out_once_and_in_order_by_three_processes_on_mariadb() {
    on_a_server(test_rig::own::on_mariadb().await).await;
}

async fn on_a_server(ensemble: TestEnsemble) {
    let address = ensemble.url();
    // It says that nobody held a lock before.
    ensemble.session().await.close().await;
    every_code_is_handed_out_once_and_in_order(ensemble, &address).await;
}

async fn every_code_is_handed_out_once_and_in_order(ensemble: TestEnsemble, address: &str) {
    let timeouts = [&LONG_SESSION; 3].map(|it| &it[..]);
    let services = Service::start_on(address, timeouts).await;
    let codes = asked_for("ORDER_CODES", 300);
    let load = Load::new(&services, codes);
    let start = Instant::now();
    for client in load.start(24) {
        client.await.unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{codes} codes in {seconds:.1} s");
    assert_eq!(load.checked(), Vec::from_iter(1..=codes));
    assert_eq!(ensemble.children(LOCK).await, [""; 0]);
    let (counter, _) = ensemble.read(COUNTER).await.unwrap();
    let counter: Value = serde_json::from_slice(&counter).unwrap();
    assert_eq!(counter["last"], codes);
    join_all(services.into_iter().map(Service::stop)).await;
}

#[tokio::test]
async fn survivors_go_on_after_the_holder_was_killed_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let address = server.connect_string();
    survivors_go_on(TestEnsemble::Real(server.into()), &address).await;
}

#[tokio::test]
async fn survivors_go_on_after_the_holder_was_killed_on_redis() {
    let ensemble = test_rig::own::on_redis().await;
    let address = ensemble.url();
    survivors_go_on(ensemble, &address).await;
}

#[tokio::test]
async fn survivors_go_on_after_the_holder_was_killed_on_postgres() {
    let ensemble = test_rig::own::on_postgres().await;
    let address = ensemble.url();
    survivors_go_on(ensemble, &address).await;
}

#[tokio::test]
async fn survivors_go_on_after_the_holder_was_killed_on_mariadb() {
    let ensemble = test_rig::own::on_mariadb().await;
    let address = ensemble.url();
    survivors_go_on(ensemble, &address).await;
}

async fn survivors_go_on(ensemble: TestEnsemble, address: &str) {
    // It says that nobody held a lock before.
    let session = ensemble.session().await;
    let timeouts = [&SHORT_SESSION[..], &LONG_SESSION[..], &LONG_SESSION[..]];
    let mut services = Service::start_on(address, timeouts).await;
    let mut victim = services.remove(0);
    let lock = InterProcessMutex::new(&session, LOCK).unwrap();

    // Enough are left for many looks at who holds the lock.
    let all = asked_for("ORDER_CODES", 1_500);
    let load = Load::new(std::iter::once(&victim).chain(&services), all);
    let clients = load.start(12);
    load.has_handed_out(all / 5).await;
    let pid = victim.process.id();
    // Paused while it is inspected, so that the process that holds the lock still holds it when it
    // is killed.
    ensemble
        .until("the victim holds the lock", async || {
            victim.signal(Signal::STOP);
            let contenders = lock.participants().await.unwrap();
            let holder = contenders.first().and_then(|holder| holder.identity());
            if holder.map(|it| it.pid) == pid {
                victim.signal(Signal::KILL);
                return Some(());
            }
            victim.signal(Signal::CONT);
            None
        })
        .await;
    for client in clients {
        client.await.unwrap();
    }
    victim.process.wait().await.unwrap();

    let codes = load.checked();
    assert_eq!(codes.len(), all);
    let died = *load.died.lock().unwrap();
    assert!(died > 0, "the victim was answering nobody");
    let gaps = codes.last().unwrap() - codes.len();
    assert!(
        gaps <= died,
        "{gaps} codes are missing, {died} died with the process"
    );
    ensemble.await_children(LOCK, 0).await;
    join_all(services.into_iter().map(Service::stop)).await;
}

#[tokio::test]
async fn crash_of_the_server_makes_no_duplicate_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let timeouts = [&MEDIUM_SESSION; 3].map(|it| &it[..]);
    let services = Service::start_on(&server.connect_string(), timeouts).await;
    let load = Load::new(&services, 300);
    let clients = load.start(12);
    load.has_handed_out(100).await;
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    for client in clients {
        client.await.unwrap();
    }
    // A process that reconnects slowly loses the lock, and with it the codes that it had allocated.
    assert_eq!(load.checked().len(), 300);
    let ensemble = TestEnsemble::Real(server.into());
    ensemble.await_children(LOCK, 0).await;
    join_all(services.into_iter().map(Service::stop)).await;
}

#[tokio::test]
async fn busy_lock_is_answered_with_come_back_later_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let patience = ["--patience-ms", "1"];
    let services = Service::start_on(&server.connect_string(), [&patience]).await;
    let [service] = <[Service; 1]>::try_from(services).ok().unwrap();
    let ensemble = TestEnsemble::Real(server.into());
    let session = ensemble.session().await;
    let lock = InterProcessMutex::new(&session, LOCK).unwrap();
    let http = Http::new();

    let held = lock.acquire().await.unwrap();
    for path in ["orders", "orders/batch/2"] {
        let refused = http
            .send("POST", &format!("{}/{path}", service.url))
            .await
            .unwrap();
        assert_eq!(
            refused.status,
            StatusCode::SERVICE_UNAVAILABLE,
            "{refused:?}"
        );
        assert_eq!(refused.headers["retry-after"], "1");
    }
    let health = http
        .send("GET", &format!("{}/health", service.url))
        .await
        .unwrap();
    assert_eq!(health.status, StatusCode::OK, "{health:?}");
    let health = health.json();
    assert_eq!(health["session"], "Connected");
    assert_eq!(health["epoch"], 1);
    assert_eq!(health["holder"]["node"], held.members()[0].node_path);
    assert_eq!(health["holder"]["pid"], std::process::id());
    held.release().await.unwrap();
    assert_eq!(ensemble.read(COUNTER).await, None);
    service.stop().await;
}

#[tokio::test]
async fn without_a_server_it_counts_in_memory() {
    let service = Service::start(&[]).await;
    let http = Http::new();
    let batch = http
        .send("POST", &format!("{}/orders/batch/3", service.url))
        .await
        .unwrap();
    let numbers: Vec<_> = batch.orders().iter().map(|order| order.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let one = http
        .send("POST", &format!("{}/orders", service.url))
        .await
        .unwrap();
    assert_eq!(one.orders()[0].number, 4);
    for count in ["0", "101", "x"] {
        let uri = format!("{}/orders/batch/{count}", service.url);
        let refused = http.send("POST", &uri).await.unwrap();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
    }
    service.stop().await;
}
