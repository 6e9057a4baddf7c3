//! Failures that the page reports while it goes on, because they may soon be over.

use recipes_zookeeper::{Acls, ZooKeeper};
use serde_json::{Value, json};
use test_rig::{Direction, FaultProxy, Opcode};
use tokio::time::timeout;

use super::http::Events;
use super::{Served, connect, lock, start};
use crate::lockctl::PATIENCE;

const PATH: &str = "/locks/a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_that_does_not_exist_is_told_until_it_does() {
    let ensemble = start().await;
    let served = Served::start(&connect(&ensemble), &["/locks"]).await;
    let mut events = Events::of(&served.address).await;
    let told = "\"/locks\" does not exist";
    events.until(|it| it["trouble"] == told).await;
    let session = ensemble.session().await;
    let _held = lock(&session, PATH).acquire().await.unwrap();
    let event = events.until(|it| it["changed"] != json!([])).await;
    assert_eq!(event["changed"][0]["path"], PATH);
    assert!(event["trouble"].is_null(), "{event}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_closed_is_told_and_does_not_hide_the_rest() {
    let ensemble = start().await;
    let options = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all());
    let open = ensemble.session().await;
    let _open = lock(&open, "/locks/open").acquire().await.unwrap();
    let session = ensemble.session_with(options).await;
    let _closed = lock(&session, PATH).acquire().await.unwrap();
    let first = async |arguments: &[&str]| {
        let served = Served::start(&connect(&ensemble), arguments).await;
        served.viewed().await.1
    };
    let served = Served::start(&connect(&ensemble), &[PATH]).await;
    let mut events = Events::of(&served.address).await;
    let told = "not authorized to use \"/locks/a\"";
    let closed = events.until(|it| it["trouble"] == told).await;
    assert_eq!(closed["changed"], json!([]));
    let rest = first(&["/locks"]).await;
    assert!(rest["trouble"].is_null(), "{rest}");
    assert_eq!(rest["changed"][0]["path"], "/locks/open");
    assert_eq!(rest["deadlocks"]["unreadable"][0]["path"], PATH);
    let known = first(&["--auth", "digest:orders:secret", PATH]).await;
    assert_eq!(known["changed"][0]["path"], PATH);
}

/// Held at the proxy between the list and the read of a listed node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_vanishes_while_it_is_read_is_not_shown() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let held = lock(&session, PATH).acquire().await.unwrap();
    let proxy = FaultProxy::start(&connect(&ensemble)).await.unwrap();
    let reads = proxy.on(Direction::ToServer).opcode(Opcode::GetData);
    let gate = reads.path_contains("lock-").hold();
    let served = Served::start(&proxy.connect_string(), &["/locks"]).await;
    let mut events = Events::of(&served.address).await;
    let reached = timeout(PATIENCE, gate.reached()).await;
    reached.expect("nothing is read");
    held.release().await.unwrap();
    gate.release();
    let is_seen = |it: &Value| it["seen_ms"].is_u64() && it["trouble"].is_null();
    let first = events.until(is_seen).await;
    let contenders = first["changed"][0]["contenders"].clone();
    assert!(contenders.is_null() || contenders == json!([]), "{first}");
}
