//! Outages, which the page shows while nothing else happens.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_rig::{Direction, FaultProxy, Opcode};
use tokio::time::Instant;

use super::browser::Browser;
use super::http::Events;
use super::page::PATHS;
use super::{Served, connect, lock, start};

/// No scan is due, and no request is refused before the test has failed.
const ARGUMENTS: [&str; 3] = ["--session-timeout=40s", "--connect-timeout=10m", "/locks"];

/// Between a scan and the next one, during a scan, and before the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_store_is_told_long_before_a_scan_would_notice() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let _held = lock(&session, "/locks/a").acquire().await.unwrap();
    for every in ["1h", "50ms"] {
        let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
        let served = Served::start_every(every, &proxy.connect_string(), &ARGUMENTS).await;
        let mut events = Events::of(&served.address).await;
        let is_seen = |it: &Value| it["trouble"].is_null() && it["changed"] != json!([]);
        events.until(is_seen).await;
        let since = Instant::now();
        proxy.black_hole(Direction::ToServer);
        proxy.black_hole(Direction::FromServer);
        let trouble = events.until(|it| !it["trouble"].is_null()).await;
        println!("--every {every}: told after {:?}", since.elapsed());
        assert_eq!(trouble["trouble"], "no answer within 1.5 s");
        assert!(since.elapsed() < Duration::from_secs(20), "{trouble}");
        proxy.restore();
        proxy.cut_all(test_rig::Cut::Reset);
        events.until(|it| it["trouble"].is_null()).await;
    }
    let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
    proxy.black_hole(Direction::FromServer);
    let served = Served::start_every("1h", &proxy.connect_string(), &ARGUMENTS).await;
    let event = Events::of(&served.address).await.next().await.unwrap();
    let expected = format!("no server of {:?} has answered yet", proxy.connect_string());
    assert_eq!(event["trouble"], expected);
}

/// The first request without an answer is enough, and it comes by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_unanswered_probe_is_told() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let _held = lock(&session, "/locks/a").acquire().await.unwrap();
    let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
    let served = Served::start_every("1h", &proxy.connect_string(), &ARGUMENTS).await;
    let mut events = Events::of(&served.address).await;
    let is_seen = |it: &Value| it["trouble"].is_null() && it["changed"] != json!([]);
    events.until(is_seen).await;
    let probes = || {
        let requests = proxy.on(Direction::ToServer).opcode(Opcode::GetData);
        requests.path_contains("/locks")
    };
    proxy.clear_log();
    // They come each second while somebody looks, though no scan is due for an hour.
    for number in [1, 2] {
        probes().nth(number).seen().await;
    }
    let gate = probes().hold();
    gate.reached().await;
    let event = events.next().await.unwrap();
    assert_eq!(event["trouble"], "no answer within 1.5 s");
    gate.release();
    events.until(|it| it["trouble"].is_null()).await;
}

fn send(served: &Served, signal: Signal) {
    let id = i32::try_from(served.process.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_says_when_it_hears_nothing_from_a_connection_that_is_open() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let _held = lock(&session, "/locks/a").acquire().await.unwrap();
    let served = Served::start_every("1h", &connect(&ensemble), &["/locks"]).await;
    let mut browser = Browser::open(&served.address).await;
    browser.shows(PATHS, json!(["/locks/a"])).await;
    let trouble = "document.getElementById('trouble').textContent";
    browser.shows(trouble, json!("")).await;
    send(&served, Signal::STOP);
    let gone = "lockctl serve does not answer; trying again.";
    browser.shows(trouble, json!(gone)).await;
    send(&served, Signal::CONT);
    browser.shows(trouble, json!("")).await;
    browser.close().await;
}
