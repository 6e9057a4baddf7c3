//! Text of other programs in names and data of nodes, as it is printed.

use recipes_core::internal::is_text;
use recipes_multilock::Member;
use recipes_zookeeper::ZooKeeper;
use serde_json::json;

use super::{DEADLOCK, ended, held, json, json_ended, printed, queued, server, start};
use crate::lockctl::{lockctl, output};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_text_is_cut_in_tables_and_whole_in_json() {
    let ensemble = start().await;
    let path = "/locks/a";
    let identity = "10.0.0.7 ".repeat(100_000 / 9);
    let options = ZooKeeper::builder().identity(identity.as_str());
    let session = ensemble.session_with(options).await;
    let _held = held(&session, Member::mutex(path)).await;
    let other = ensemble.session().await;
    let _waits = queued(&ensemble, &other, Member::mutex(path), (path, 2)).await;
    for arguments in [&["ls"][..], &["inspect", path]] {
        let text = printed(&ensemble, arguments).await;
        assert!(text.contains("10.0.0.7 10.0.0.7"), "{text}");
        assert!(text.contains('…') && text.len() < 5_000, "{text}");
    }
    let shown = json(&ensemble, &["inspect", path]).await;
    assert_eq!(shown["contenders"][0]["data"], json!(identity));
}

/// A record whose owner contains control sequences for terminals.
fn record(owner: u8) -> Vec<u8> {
    let owner = format!("%1B%5B2J\u{202e}%C2%9B{owner}J");
    format!("recipes/1 kind=mutex host=\u{200f}a pid=1 app=%1B%5D0%0Ab since=0 owner={owner}")
        .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_is_given_no_orders() {
    let ensemble = start().await;
    let (a, b, c) = ("/locks/\u{202e}a", "/locks/b", "/locks/c");
    let mut sessions = Vec::new();
    for data in [
        record(1),
        record(2),
        "10.0.0.7\u{9b}2J\u{1b}[2J\u{2066}".into(),
    ] {
        let options = ZooKeeper::builder().identity(data);
        sessions.push(ensemble.session_with(options).await);
    }
    let _held = [
        held(&sessions[0], Member::mutex(a)).await,
        held(&sessions[1], Member::mutex(b)).await,
        held(&sessions[2], Member::mutex(c)).await,
    ];
    let _waiting = [
        queued(&ensemble, &sessions[0], Member::mutex(b), (b, 2)).await,
        queued(&ensemble, &sessions[1], Member::mutex(a), (a, 2)).await,
    ];
    let assert_text = |what: &[&str], printed: &str| {
        assert!(!printed.is_empty(), "{what:?}");
        let order = printed.chars().find(|c| *c != '\n' && !is_text(*c));
        assert_eq!(order, None, "{what:?}: {printed:?}");
    };
    for (arguments, code) in [
        (&["ls"][..], 0),
        (&["inspect", a], 0),
        (&["inspect", c], 0),
        (&["deadlocks"], DEADLOCK),
        (&["deadlocks", "--dot"], DEADLOCK),
        (&["--json", "ls"], 0),
        (&["--json", "deadlocks"], DEADLOCK),
    ] {
        assert_text(arguments, &ended(&ensemble, arguments, code).await);
    }
    assert_eq!(
        json(&ensemble, &["inspect", c]).await["contenders"][0]["data"],
        json!("10.0.0.7\u{9b}2J\u{1b}[2J\u{2066}")
    );
    let cycles = &json_ended(&ensemble, &["deadlocks"], DEADLOCK).await["cycles"];
    assert_eq!(cycles.as_array().unwrap().len(), 1, "{cycles}");
    // It is not confirmed.
    let ran = output(lockctl(&server(&ensemble).connect_string(), &["break", a])).await;
    assert_eq!(ran.status.code(), Some(64), "{ran:?}");
    let asked = String::from_utf8(ran.stderr).unwrap();
    assert!(asked.contains("Delete them?"), "{asked}");
    assert_text(&["break", a], &asked);
    for arguments in [&["revoke", a][..], &["break", "--yes", a]] {
        assert_text(arguments, &printed(&ensemble, arguments).await);
    }
}
