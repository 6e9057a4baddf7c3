//! The mutex shared with Curator, and what all locks have in common.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use lock_recipes::{InterProcessMutex, LostReason};
use test_rig::{Grant, check_grants};

use super::{PATH, PATIENCE, SESSION_TIMEOUT, Stage, count};
use crate::foreign::contend;

const COUNTER: &str = "/counter";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_of_ours_and_eight_of_curators_share_one_queue() {
    const ROUNDS: u32 = 256;
    let stage = Stage::set_up().await;
    let store = stage.counter(COUNTER).await;
    // The server would delete a container between two grants, and count from 0 again.
    stage.ensemble.create(PATH, b"").await;

    // The lock is held until all contenders are in the queue.
    let held = stage.mutex().acquire().await.unwrap();
    let theirs = stage.curator.contend("c", PATH, COUNTER, ROUNDS, 8);
    let ours = (0..8).map(|_| {
        let rounds = usize::try_from(ROUNDS / 8).unwrap();
        tokio::spawn(contend(stage.mutex(), store.clone(), rounds))
    });
    let ours: Vec<_> = ours.collect();
    stage.ensemble.await_children(PATH, 17).await;
    held.release().await.unwrap();

    let ours: Vec<Grant> = try_join_all(ours)
        .await
        .unwrap()
        .into_iter()
        .flatten()
        .collect();
    let theirs = theirs.await.unwrap();
    let all = [ours.clone(), theirs.clone()].concat();
    assert_eq!(all.len(), 512);
    check_grants(0, &all).unwrap();
    assert_eq!(count(&store, COUNTER).await, 512);

    // They did contend: grants of the two kinds alternate.
    let mut turns: Vec<_> = ours.iter().map(|it| (it.sequence, true)).collect();
    turns.extend(theirs.iter().map(|it| (it.sequence, false)));
    turns.sort_unstable();
    let changes = turns
        .windows(2)
        .filter(|pair| pair[0].1 != pair[1].1)
        .count();
    assert!(changes > 40, "{changes} changes of turn");
    assert!(stage.ensemble.children(PATH).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other_and_both_see_the_same_queue() {
    let stage = Stage::set_up().await;
    let lock = stage.mutex();
    let held = lock.acquire().await.unwrap();
    let first = stage.curator.acquire("t1", "m", None);
    stage.ensemble.await_children(PATH, 2).await;
    let second = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 3).await;
    let third = stage.curator.acquire("t2", "m", None);
    stage.ensemble.await_children(PATH, 4).await;
    stage
        .ensemble
        .create(&format!("{PATH}/zstranger"), b"")
        .await;
    stage
        .ensemble
        .create(&format!("{PATH}/-stranger"), b"")
        .await;

    let theirs = stage.curator.participants("m").await.unwrap();
    let ours: Vec<_> = lock
        .participants()
        .await
        .unwrap()
        .into_iter()
        .map(|it| it.path)
        .collect();
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 6);
    assert!(!stage.curator.held("m").await.unwrap());
    stage.ensemble.delete(&format!("{PATH}/zstranger")).await;
    stage.ensemble.delete(&format!("{PATH}/-stranger")).await;

    // They are granted in the order of the queue, one after the other.
    held.release().await.unwrap();
    assert!(first.await.unwrap());
    assert!(!second.is_finished());
    assert!(lock.try_acquire().await.unwrap().is_none());
    stage.curator.release("t1", "m").await.unwrap();
    let held = second.await.unwrap().unwrap();
    let refused = stage
        .curator
        .acquire("t3", "m", Some(Duration::from_millis(50)));
    assert!(!refused.await.unwrap());
    held.release().await.unwrap();
    assert!(third.await.unwrap());
    stage.curator.release("t2", "m").await.unwrap();
    assert!(stage.ensemble.children(PATH).await.is_empty());
}

/// A name with its random and counted parts made equal.
fn form(name: &str) -> String {
    name.chars()
        .scan(0_usize, |at, c| {
            *at += 1;
            // The uuid stands between `_c_` and the marker.
            let in_uuid = (4..=39).contains(at);
            Some(match c {
                _ if in_uuid && c.is_ascii_hexdigit() && !c.is_ascii_uppercase() => 'x',
                '0'..='9' => '9',
                c => c,
            })
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_have_the_form_that_curator_gives_them() {
    let stage = Stage::set_up().await;
    let ours = InterProcessMutex::new(&stage.ours, "/ours/a")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    stage
        .curator
        .mutex("theirs", "c", "/theirs/a")
        .await
        .unwrap();
    assert!(stage.curator.acquire("t", "theirs", None).await.unwrap());

    let our_path = ours.members()[0].node_path.clone();
    let their_path = stage
        .curator
        .lock_path("t", "theirs")
        .await
        .unwrap()
        .unwrap();
    let (our_name, their_name) = (
        &our_path["/ours/a/".len()..],
        &their_path["/theirs/a/".len()..],
    );
    assert_eq!(
        form(our_name),
        "_c_xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx-lock-9999999999"
    );
    assert_eq!(form(our_name), form(their_name));
    for (ours, theirs) in [
        (&our_path[..], &their_path[..]),
        ("/ours/a", "/theirs/a"),
        ("/ours", "/theirs"),
    ] {
        let (ours, theirs) = (
            stage.curator.acl("c", ours).await,
            stage.curator.acl("c", theirs).await,
        );
        assert_eq!(ours.unwrap(), theirs.unwrap());
    }
    let stats = [
        stage.curator.stat("c", &our_path),
        stage.curator.stat("c", &their_path),
    ];
    for stat in join_all(stats).await {
        assert_ne!(stat.unwrap().unwrap().ephemeral_owner, 0);
    }

    // Both kinds of parents are containers: the server removes them.
    ours.release().await.unwrap();
    stage.curator.release("t", "theirs").await.unwrap();
    for path in ["/ours", "/theirs"] {
        stage.ensemble.await_reaper(path).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_locks_pass_from_one_to_the_other() {
    let stage = Stage::set_up().await;
    // Curator's session ends while we wait.
    assert!(stage.curator.acquire("t", "m", None).await.unwrap());
    let lock = stage.mutex();
    let waiter = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 2).await;
    stage.curator.expire_session("c").await.unwrap();
    let held = waiter.await.unwrap().unwrap();

    // Ours ends while a new Curator client waits.
    stage
        .curator
        .open("d", &stage.connect_string(), SESSION_TIMEOUT)
        .await
        .unwrap();
    stage.curator.mutex("n", "d", PATH).await.unwrap();
    let theirs = stage.curator.acquire("u", "n", Some(PATIENCE));
    assert!(
        stage
            .curator
            .await_children("d", PATH, 2, PATIENCE)
            .await
            .unwrap()
    );
    stage.ensemble.expire(&stage.ours).await;
    // It is expired explicitly, so news of the node's deletion may arrive before the end of the
    // session.
    let reason = held.lost().await.reason;
    assert!(
        matches!(reason, LostReason::SessionExpired | LostReason::NodeRemoved),
        "{reason}"
    );
    assert!(theirs.await.unwrap());
    assert!(stage.mutex().try_acquire().await.unwrap().is_none());
    stage.curator.release("u", "n").await.unwrap();
    stage
        .mutex()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_curator_thread_leaves_the_queue_to_us() {
    let stage = Stage::set_up().await;
    let held = stage.mutex().acquire().await.unwrap();
    let theirs = stage.curator.acquire("t", "m", None);
    stage.ensemble.await_children(PATH, 2).await;
    let lock = stage.mutex();
    let ours = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 3).await;
    stage.curator.interrupt("t").await.unwrap();
    assert_eq!(
        theirs.await.unwrap_err().class(),
        Some("InterruptedException")
    );
    // The node between is gone, and the one in front is not.
    stage.ensemble.await_children(PATH, 2).await;
    assert!(held.is_valid() && !ours.is_finished());
    held.release().await.unwrap();
    ours.await.unwrap().unwrap().release().await.unwrap();
}
