//! Taking locks from their holders.

use std::process::Stdio;

use recipes_core::{LockGuard, LostReason};
use recipes_multilock::Member;
use serde_json::json;
use test_rig::{Direction, Fault, FaultProxy, Opcode};
use tokio::io::AsyncWriteExt as _;

use super::{held, json, node_of, printed, queued, server, start};
use crate::lockctl::{lockctl, output, said};

const PATH: &str = "/locks/nightly";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_is_asked_to_let_go_and_the_queue_says_so() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let _waits = queued(&ensemble, &session, Member::mutex(PATH), (PATH, 2)).await;
    let asked = json(&ensemble, &["revoke", PATH]).await;
    let expected = json!({"path": PATH, "asked": [node_of(&guard)], "gone": [], "failed": []});
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
        let mut command = lockctl(&connect, &["break", PATH]);
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

/// A configuration may be next to the nodes of a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_contends_by_is_left_as_it_is() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let config = format!("{PATH}/zconfig");
    ensemble.create(&config, b"limit=5").await;
    for arguments in [&["revoke", &config][..], &["break", "-y", &config]] {
        let ran = output(lockctl(&server(&ensemble).connect_string(), arguments)).await;
        assert_eq!(ran.status.code(), Some(66), "{ran:?}");
        assert_eq!(ran.stdout, b"", "{ran:?}");
        assert!(said(&ran).contains(&config), "{ran:?}");
    }
    let (data, _) = ensemble.read(&config).await.unwrap();
    assert_eq!(data, b"limit=5");
    assert!(guard.is_valid());
}

/// Curator waits for it too, so it has to be deleted. But a request would have no reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_nobody_that_is_waited_for_is_not_asked_and_can_be_deleted() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let stranger = format!("{PATH}/-config");
    ensemble.create(&stranger, b"limit=5").await;
    let waits = queued(&ensemble, &session, Member::mutex(PATH), (PATH, 2)).await;
    let connect = server(&ensemble).connect_string();
    for path in [PATH, &stranger] {
        let ran = output(lockctl(&connect, &["revoke", path])).await;
        assert_eq!(ran.status.code(), Some(66), "{ran:?}");
        assert!(said(&ran).contains(&stranger), "{ran:?}");
    }
    let (data, _) = ensemble.read(&stranger).await.unwrap();
    assert_eq!(data, b"limit=5");
    let deleted = printed(&ensemble, &["break", "-y", PATH]).await;
    assert_eq!(deleted, format!("deleted: {stranger}\n"));
    assert!(waits.await.unwrap().is_valid());
}

/// The ensemble stops answering at the first change. The outcome of that one is unknown, and the
/// others are not tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_without_an_answer_is_told_in_time_and_as_what_it_is() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guards = [
        held(&session, Member::read(PATH)).await,
        held(&session, Member::read(PATH)).await,
    ];
    for (arguments, opcode) in [
        (&["break", "-y", PATH][..], Opcode::Delete),
        (&["revoke", PATH], Opcode::Multi),
    ] {
        let proxy = FaultProxy::start(&server(&ensemble).connect_string())
            .await
            .unwrap();
        let changes = proxy.on(Direction::ToServer).opcode(opcode);
        let silence = changes.each().then(Fault::BlackHole);
        let mut command = lockctl(&proxy.connect_string(), arguments);
        command.env("LOCKCTL_CONNECT_TIMEOUT", "5s");
        // The server grants 40 s. The client asks over another connection after a quarter of it.
        command.env("LOCKCTL_SESSION_TIMEOUT", "1h");
        let ran = output(command).await;
        assert_eq!(ran.status.code(), Some(69), "{arguments:?}: {ran:?}");
        let told = String::from_utf8(ran.stderr).unwrap();
        let nodes = [node_of(&guards[0]), node_of(&guards[1])];
        let line = |node: &str| told.lines().find(|it| it.contains(node)).unwrap();
        assert!(line(&nodes[0]).contains("may or may not"), "{told}");
        assert!(line(&nodes[1]).contains("left as it is"), "{told}");
        assert_eq!(told.lines().count(), 2, "{told}");
        assert_eq!(silence.count(), 1);
    }
    assert!(guards.iter().all(LockGuard::is_valid));
}

/// This is not the same as a node that is no lock's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_about_the_directory_of_a_node_is_no_connection() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let proxy = FaultProxy::start(&server(&ensemble).connect_string())
        .await
        .unwrap();
    let lists = proxy.on(Direction::ToServer).opcode(Opcode::GetChildren);
    let silence = lists.nth(2).then(Fault::BlackHole);
    let node = node_of(&guard);
    let mut command = lockctl(&proxy.connect_string(), &["revoke", &node]);
    command.env("LOCKCTL_CONNECT_TIMEOUT", "5s");
    command.env("LOCKCTL_SESSION_TIMEOUT", "1h");
    let ran = output(command).await;
    assert_eq!(ran.status.code(), Some(69), "{ran:?}");
    assert!(said(&ran).contains("no answer"), "{ran:?}");
    assert_eq!(silence.count(), 1);
}
