//! Taking locks away.

use std::process::Stdio;

use recipes_core::LostReason;
use recipes_multilock::Member;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::zklock::{output, said, zklock};
use crate::{held, json, node_of, printed, queued, server, start};

const PATH: &str = "/locks/nightly";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_is_asked_to_let_go_and_the_queue_says_so() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let _waits = queued(&ensemble, &session, Member::mutex(PATH), (PATH, 2)).await;
    let asked = json(&ensemble, &["revoke", PATH]).await;
    let expected = json!({"path": PATH, "asked": [node_of(&guard)], "gone": []});
    assert_eq!(asked, expected);
    guard.revocation_requested().await;
    let shown = json(&ensemble, &["inspect", PATH]).await;
    let requested: Vec<_> = (0..2)
        .map(|it| shown["contenders"][it]["revocation_requested"].as_bool())
        .collect();
    assert_eq!(requested, [Some(true), Some(false)]);
    let text = printed(&ensemble, &["inspect", PATH]).await;
    assert!(
        text.contains("revocation requested, record unknown"),
        "{text}"
    );
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_lock_goes_to_the_next_and_its_holder_is_told() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let next = queued(&ensemble, &session, Member::mutex(PATH), (PATH, 2)).await;
    let deleted = printed(&ensemble, &["break", "--yes", PATH]).await;
    assert_eq!(deleted, format!("deleted: {}\n", node_of(&guard)));
    let reason = guard.lost().await.reason;
    assert_eq!(reason, LostReason::NodeRemoved);
    assert!(next.await.unwrap().is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_of_a_queue_can_be_deleted() {
    let ensemble = start().await;
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    let guard = held(&session, Member::mutex(PATH)).await;
    let _waits = queued(&ensemble, &other, Member::mutex(PATH), (PATH, 2)).await;
    let shown = json(&ensemble, &["inspect", PATH]).await;
    let second = shown["contenders"][1]["path"].as_str().unwrap().to_owned();
    let deleted = json(&ensemble, &["break", "-y", &second]).await;
    assert_eq!(deleted["deleted"], json!([second]));
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_without_a_yes() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let connect = server(&ensemble).connect_string();
    for (answer, code) in [("", 64), ("n\n", 64), ("what?\n", 64), ("y\n", 0)] {
        let mut command = zklock(&connect, &["break", PATH]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let mut input = run.stdin.take().unwrap();
        input.write_all(answer.as_bytes()).await.unwrap();
        drop(input);
        let ran = run.wait_with_output().await.unwrap();
        let asked = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{answer:?}: {asked}");
        assert!(
            asked.contains(&node_of(&guard)),
            "names what it would delete: {asked}"
        );
        assert_eq!(
            guard.is_valid() && ensemble.children(PATH).await.len() == 1,
            code == 64
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_so_and_changes_nothing() {
    use recipes_core::{Acls, Session};

    let ensemble = start().await;
    let options = Session::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all());
    let session = ensemble.session_with(options).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let connect = server(&ensemble).connect_string();
    for arguments in [
        vec!["inspect", PATH],
        vec!["revoke", PATH],
        vec!["break", "-y", PATH],
    ] {
        let ran = output(zklock(&connect, &arguments)).await;
        assert_eq!(ran.status.code(), Some(77), "{arguments:?}: {ran:?}");
        assert!(said(&ran).contains(PATH), "{ran:?}");
    }
    assert!(guard.is_valid());
    // With the password it may.
    let mut command = zklock(&connect, &["inspect", PATH]);
    command.env("ZKLOCK_AUTH", "digest:orders:secret");
    assert_eq!(output(command).await.status.code(), Some(0));
}
