//! Showing locks.

use std::process::Stdio;

use recipes_core::Owner;
use recipes_multilock::Member;
use recipes_zookeeper::ZooKeeper;
use serde_json::{Value, json};

use super::{
    DEADLOCK, ended, held, json, json_ended, lock, node_of, printed, queued, server, start,
};
use crate::lockctl::{lockctl, output, said};

fn contenders(lock: &Value) -> Vec<(&str, &str, &str)> {
    let all = lock["contenders"].as_array().unwrap().iter();
    all.map(|it| {
        (
            it["path"].as_str().unwrap(),
            it["standing"].as_str().unwrap(),
            it["mode"].as_str().unwrap(),
        )
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_is_shown_in_the_order_of_the_grants_that_follow() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let path = "/locks/report";
    let reader = held(&session, Member::read(path)).await;
    let writer = queued(&ensemble, &session, Member::write(path), (path, 2)).await;
    let last = queued(&ensemble, &session, Member::read(path), (path, 3)).await;

    let shown = json(&ensemble, &["inspect", path]).await;
    assert_eq!(
        (&shown["path"], &shown["recipe"]),
        (&json!(path), &json!("read/write"))
    );
    let queue = contenders(&shown);
    let kinds: Vec<_> = queue.iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(
        kinds,
        [("holds", "read"), ("waits", "write"), ("waits", "read")]
    );
    let first = &shown["contenders"][0];
    assert_eq!(first["identity"]["pid"], json!(std::process::id()));
    assert_eq!(shown["contenders"][1]["waits_for"], json!([queue[0].0]));
    let session_id = format!("{:#x}", session.session_id().unwrap());
    assert_eq!(first["session"], json!(session_id));

    let text = printed(&ensemble, &["inspect", path]).await;
    assert_eq!(text.lines().count(), 4, "{text}");
    let summary = printed(&ensemble, &["ls"]).await;
    let line = summary.lines().find(|it| it.contains(path)).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[1..4], ["read/write", "1", "2"], "{summary}");

    assert_eq!(node_of(&reader), queue[0].0);
    reader.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert_eq!(node_of(&writer), queue[1].0);
    writer.release().await.unwrap();
    assert_eq!(node_of(&last.await.unwrap()), queue[2].0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_others_are_shown_as_they_are() {
    let ensemble = start().await;
    let options = ZooKeeper::builder().identity("10.0.0.7\u{1b}[2J");
    let session = ensemble.session_with(options).await;
    let _held = held(&session, Member::mutex("/locks/a")).await;
    let shown = json(&ensemble, &["inspect", "/locks/a"]).await;
    assert_eq!(shown["contenders"][0]["identity"], Value::Null);
    assert_eq!(shown["contenders"][0]["data"], json!("10.0.0.7\u{1b}[2J"));
    // Data of a node must not control the terminal.
    let text = printed(&ensemble, &["inspect", "/locks/a"]).await;
    assert!(text.contains("10.0.0.7 [2J"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_nothing_is_empty_and_a_root_limits_it() {
    let ensemble = start().await;
    assert_eq!(
        json(&ensemble, &["ls"]).await,
        json!({"locks": [], "unreadable": []})
    );
    let session = ensemble.session().await;
    let _held = [
        held(&session, Member::mutex("/a/one")).await,
        held(&session, Member::mutex("/b/two")).await,
    ];
    let paths = |list: &Value| -> Vec<String> {
        let locks = list["locks"].as_array().unwrap().iter();
        locks
            .map(|it| it["path"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(paths(&json(&ensemble, &["ls"]).await), ["/a/one", "/b/two"]);
    assert_eq!(paths(&json(&ensemble, &["ls", "/b"]).await), ["/b/two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_is_found_and_named() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let (one, other) = (Owner::new(), Owner::new());
    let (a, b) = ["/locks/a", "/locks/b"]
        .map(|it| lock(&session, Member::mutex(it)))
        .into();
    let _first = a.acquire().owner(&one).await.unwrap();
    let _second = b.acquire().owner(&other).await.unwrap();
    let text = printed(&ensemble, &["deadlocks"]).await;
    assert!(text.starts_with("no deadlock"), "{text}");
    let ids = [one.id(), other.id()].map(|id| id.to_string());
    tokio::spawn(async move { b.acquire().owner(&one).await.map(drop) });
    tokio::spawn(async move { a.acquire().owner(&other).await.map(drop) });
    ensemble.await_children("/locks/a", 2).await;
    ensemble.await_children("/locks/b", 2).await;
    let found = json_ended(&ensemble, &["deadlocks"], DEADLOCK).await;
    assert_eq!(found["cycles"].as_array().unwrap().len(), 1, "{found}");
    let cycle = found["cycles"][0].as_array().unwrap();
    let locks: Vec<_> = cycle
        .iter()
        .map(|it| it["lock"].as_str().unwrap())
        .collect();
    assert_eq!(locks, ["/locks/a", "/locks/b"]);
    let waiters: Vec<_> = cycle
        .iter()
        .map(|it| it["waiter"]["owner"].as_str())
        .collect();
    assert_eq!(waiters, [Some(ids[1].as_str()), Some(&ids[0])]);
    assert!(cycle.iter().all(|it| it["basis"] == "owner"), "{found}");
    assert_eq!(found["waits"].as_array().unwrap().len(), 2);
    let text = ended(&ensemble, &["deadlocks"], DEADLOCK).await;
    assert!(text.starts_with("deadlock 1 of 1:\n"), "{text}");
    assert!(
        text.contains("/locks/a") && text.contains("/locks/b"),
        "{text}"
    );
    let dot = ended(&ensemble, &["deadlocks", "--dot"], DEADLOCK).await;
    assert!(dot.starts_with("digraph") && dot.contains("red"), "{dot}");
    // Only one of the two locks is below it.
    let part = printed(&ensemble, &["deadlocks", "/locks/a"]).await;
    assert!(part.starts_with("no deadlock"), "{part}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_holds_a_lock_for_is_shown_while_it_runs() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let run = |path, purpose: &str| {
        let arguments = ["run", "--purpose", purpose, path, "--", "cat"];
        let mut command = lockctl(&connect, &arguments);
        command.stdin(Stdio::piped());
        command
    };
    for (path, purpose, shown) in [
        (
            "/locks/a",
            "nightly export, für alle",
            "\"nightly export, für alle\"",
        ),
        (
            "/locks/b",
            "a=1 \"b\"\n\u{1b}[2J",
            r#""a=1 \"b\"\n\u{1b}[2J""#,
        ),
        ("/locks/c", &"x".repeat(256), &"x".repeat(256)),
    ] {
        // It goes on until its input ends.
        let mut command = run(path, purpose).spawn().unwrap();
        ensemble.await_children(path, 1).await;
        let who = format!(" pid {} ", command.id().unwrap());
        let lock = json(&ensemble, &["inspect", path]).await;
        let listed = json(&ensemble, &["ls", path]).await;
        assert_eq!(listed["locks"], json!([lock]));
        assert_eq!(lock["contenders"][0]["identity"]["purpose"], json!(purpose));
        let application = &lock["contenders"][0]["identity"]["application"];
        assert_eq!(application, &json!("lockctl(cat)"));
        for task in ["ls", "inspect"] {
            let text = printed(&ensemble, &[task, path]).await;
            let line = text.lines().find(|it| it.contains(&who)).unwrap();
            assert!(line.contains(shown), "{text}");
            assert!(line.contains("lockctl(cat) "), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        drop(command.stdin.take());
        assert_eq!(command.wait().await.unwrap().code(), Some(0));
        ensemble.await_children(path, 0).await;
    }
    let ran = output(run("/locks/d", &"x".repeat(257))).await;
    assert_eq!(ran.status.code(), Some(64), "{ran:?}");
    assert!(said(&ran).contains("256"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_are_printed_without_an_ensemble() {
    for (shell, sign) in [
        ("bash", "complete"),
        ("zsh", "#compdef lockctl"),
        ("fish", "complete"),
    ] {
        let mut command = lockctl("", &["completions", shell]);
        command.env_remove("LOCKCTL_CONNECT");
        let ran = output(command).await;
        assert_eq!(ran.status.code(), Some(0));
        let script = String::from_utf8(ran.stdout).unwrap();
        assert!(
            script.contains(sign) && script.contains("deadlocks"),
            "{shell}"
        );
        assert!(!script.contains("supervise"), "{shell}");
    }
}
