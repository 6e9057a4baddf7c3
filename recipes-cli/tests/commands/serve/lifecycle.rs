//! Which requests are accepted or refused, and how it ends.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_rig::{Cut, Direction, FaultProxy, Opcode, TestEnsemble, ZooKeeperServer};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::time::{Instant, timeout};

use super::http::{Events, answer};
use super::{EVERY, Served, connect, lock, start};
use crate::lockctl::{PATIENCE, lockctl, output, said};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_is_confined_and_names_of_other_sites_are_refused() {
    let ensemble = start().await;
    let served = Served::start(&connect(&ensemble), &[]).await;
    let at = served.address.as_str();
    let page = answer(at, "GET /", at).await;
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    let (_, rest) = head.split_once("script-src 'nonce-").unwrap();
    let nonce = rest.split('\'').next().unwrap();
    assert!(head.contains("default-src 'none'"), "{head}");
    assert!(!head.contains("unsafe"), "{head}");
    assert!(
        body.contains(&format!("<script nonce=\"{nonce}\">")),
        "{body}"
    );
    assert!(!answer(at, "GET /", at).await.contains(nonce));
    for (request, host, status) in [
        ("GET /", "localhost", 200),
        ("GET /", "evil.example", 403),
        ("GET /events", "evil.example", 403),
        ("GET /locks", at, 404),
        ("POST /", at, 405),
        ("DELETE /events", at, 405),
    ] {
        let answer = answer(at, request, host).await;
        let expected = format!("HTTP/1.0 {status}");
        assert!(answer.starts_with(&expected), "{request} {host}: {answer}");
        assert!(answer.contains("nosniff"), "{request} {host}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_for_everybody_is_warned_of_and_is_not_for_every_name() {
    let ensemble = start().await;
    let arguments = ["--listen", "0.0.0.0:0", "--host", "locks.example"];
    let mut served = Served::start(&connect(&ensemble), &arguments).await;
    for (host, status) in [
        ("10.0.0.1", 200),
        ("localhost", 200),
        ("locks.example:8080", 200),
        ("evil.example", 403),
    ] {
        let answer = answer(&served.address, "GET /", host).await;
        let expected = format!("HTTP/1.0 {status}");
        assert!(answer.starts_with(&expected), "{host}: {answer}");
    }
    stop(&served, Signal::TERM);
    let mut said = String::new();
    let errors = served.process.stderr.as_mut().unwrap();
    let read = timeout(PATIENCE, errors.read_to_string(&mut said)).await;
    read.expect("goes on").unwrap();
    assert!(said.contains("anybody who reaches it can read"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensemble_that_does_not_answer_is_told_and_comes_back() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let _held = lock(&session, "/locks/a").acquire().await.unwrap();
    let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
    let served = Served::start(&proxy.connect_string(), &["/locks"]).await;
    let mut events = Events::of(&served.address).await;
    let first = events.until(|it| it["trouble"].is_null()).await;
    assert_eq!(first["changed"][0]["path"], "/locks/a");
    proxy.refuse_connections().await;
    proxy.cut_all(Cut::Reset);
    let trouble = events.until(|it| !it["trouble"].is_null()).await;
    assert_eq!(
        (&trouble["gone"], &trouble["full"]),
        (&json!([]), &json!(false))
    );
    // A new viewer gets it as well, with the latest snapshot.
    let other = Events::of(&served.address).await.next().await.unwrap();
    assert_eq!(other["changed"], first["changed"]);
    proxy.accept_connections().await.unwrap();
    events.until(|it| it["trouble"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensemble_that_was_never_there_is_told() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    server.stop().await.unwrap();
    let mut served = Served::start(&connect, &["--connect-timeout", "200ms"]).await;
    let mut said = String::new();
    let mut errors = BufReader::new(served.process.stderr.take().unwrap());
    let read = timeout(PATIENCE, errors.read_line(&mut said)).await;
    read.expect("nothing is said").unwrap();
    assert!(said.contains(&connect), "{said}");
    let event = Events::of(&served.address).await.next().await.unwrap();
    assert_eq!(
        (&event["seen_ms"], &event["changed"]),
        (&Value::Null, &json!([]))
    );
    assert!(
        event["trouble"].as_str().unwrap().contains(&connect),
        "{event}"
    );
}

/// Each scan begins with a `sync`, and nothing else here sends one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_share_their_scans_and_the_last_to_leave_ends_them() {
    let ensemble = start().await;
    let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
    let scans = || proxy.on(Direction::ToServer).opcode(Opcode::Sync).count();
    let served = Served::start(&proxy.connect_string(), &[]).await;
    let at = served.address.as_str();
    settled(&ensemble, scans).await;
    assert_eq!(scans(), 0, "before anybody looks");

    let mut viewers = [Events::of(at).await, Events::of(at).await];
    let mut told = BTreeSet::new();
    for _ in 0..10 {
        for viewer in &mut viewers {
            let event = viewer.until(|it| it["seen_ms"].is_u64()).await;
            told.insert(event["seen_ms"].as_u64().unwrap());
        }
    }
    // One may be in flight, and a slow viewer does not get each.
    assert!(told.len() < 15, "{told:?}");
    drop(viewers);
    settled(&ensemble, scans).await;
    let before = scans();
    let last = told.last().copied();
    let mut later = Events::of(at).await;
    later.until(|it| it["seen_ms"].as_u64() > last).await;
    assert!(scans() > before);
}

/// Waits until no scan was made for ten times as long as a scan takes.
pub(crate) async fn settled(ensemble: &TestEnsemble, scans: impl Fn() -> usize) {
    let mut last = (scans(), Instant::now());
    let is_quiet = async || {
        if scans() != last.0 {
            last = (scans(), Instant::now());
        }
        (last.1.elapsed() > 10 * EVERY).then_some(())
    };
    ensemble.until("no scan", is_quiet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_end_it_though_somebody_looks() {
    let ensemble = start().await;
    for signal in [Signal::INT, Signal::TERM] {
        let mut served = Served::start(&connect(&ensemble), &[]).await;
        let mut events = Events::of(&served.address).await;
        assert!(events.next().await.is_some());
        stop(&served, signal);
        let ended = timeout(PATIENCE, served.process.wait()).await;
        assert_eq!(ended.expect("goes on").unwrap().code(), Some(0));
        while events.next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_served_is_said_in_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, names) in [
        (&["serve", "no-slash"][..], 64, "no-slash"),
        (&["serve", "--listen", &taken], 70, &taken),
    ] {
        let ran = output(lockctl("127.0.0.1:1", arguments)).await;
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert!(said(&ran).contains(names), "{ran:?}");
    }
}

fn stop(served: &Served, signal: Signal) {
    let id = i32::try_from(served.process.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}
