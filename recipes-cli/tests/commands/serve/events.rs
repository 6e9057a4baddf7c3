//! The events that the page gets.

use std::time::Duration;

use recipes_zookeeper::{ZooKeeper, ZooKeeperBuilder};
use serde_json::{Value, json};

use super::{Served, connect, deadlock, lock, start};
use crate::lockctl::{lockctl, output};

/// Markup, and text that ends scripts and events.
pub(crate) const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\r\n\ndata: {}\u{2028}\0";

fn paths(event: &Value) -> Vec<&str> {
    let changed = event["changed"].as_array().unwrap().iter();
    changed.map(|it| it["path"].as_str().unwrap()).collect()
}

fn identity(of: &str) -> ZooKeeperBuilder {
    ZooKeeper::builder()
        .session_timeout(Duration::from_secs(40))
        .identity(of)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_event_has_what_the_commands_print_and_later_ones_what_has_changed() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let curator = ensemble.session_with(identity("10.0.0.7")).await;
    let _held = lock(&curator, "/locks/curator").acquire().await.unwrap();
    // A node as a script could create it: no protection id, no record.
    ensemble.create("/locks/hand/lock-0000000003", b"").await;
    let _deadlock = deadlock(&ensemble, [&session; 2], ["/locks/a", "/locks/b"]).await;

    let connect = connect(&ensemble);
    let served = Served::start(&connect, &[]).await;
    let (mut events, first) = served.viewed().await;
    assert_eq!(first["full"], true);
    let printed = async |task| -> Value {
        let ran = output(lockctl(&connect, &["--json", task])).await;
        serde_json::from_slice(&ran.stdout).unwrap()
    };
    assert_eq!(first["changed"], printed("ls").await["locks"]);
    assert_eq!(first["deadlocks"], printed("deadlocks").await);
    assert_eq!(first["deadlocks"]["cycles"].as_array().unwrap().len(), 1);
    assert!(paths(&first).contains(&"/locks/curator"), "{first}");

    let added = lock(&session, "/locks/new").acquire().await.unwrap();
    let event = events.until(|it| !paths(it).is_empty()).await;
    assert_eq!(paths(&event), ["/locks/new"]);
    assert_eq!(
        (&event["full"], &event["deadlocks"]),
        (&json!(false), &Value::Null)
    );
    added.release().await.unwrap();
    let event = events.until(|it| it["gone"] != json!([])).await;
    assert_eq!(
        (paths(&event), &event["gone"]),
        (vec![], &json!(["/locks/new"]))
    );

    assert_eq!(served.viewed().await.1["changed"], first["changed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_and_data_stay_data() {
    let ensemble = start().await;
    let session = ensemble.session_with(identity(HOSTILE)).await;
    let path = "/locks/<img src=x onerror=alert(1)>";
    let _held = lock(&session, path).acquire().await.unwrap();
    let served = Served::start(&connect(&ensemble), &[]).await;
    let (_, event) = served.viewed().await;
    assert_eq!(paths(&event), [path]);
    assert_eq!(event["changed"][0]["contenders"][0]["data"], HOSTILE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_no_lock_needs_is_cut() {
    let ensemble = start().await;
    let session = ensemble.session_with(identity(&"é".repeat(100_000))).await;
    let _held = lock(&session, "/locks/a").acquire().await.unwrap();
    let served = Served::start(&connect(&ensemble), &[]).await;
    let (_, event) = served.viewed().await;
    let data = event["changed"][0]["contenders"][0]["data"]
        .as_str()
        .unwrap();
    assert_eq!(data, "é".repeat(1000) + "…");
}
