//! Znodes of the in-memory ensemble.

use std::time::Duration;

use recipes_core::NodeMode;
use test_rig::MemoryEnsemble;
use tokio::time::advance;

use crate::common::*;

#[tokio::test]
async fn created_node_is_read_with_its_data_and_stat() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let created = nodes.create(&persistent("/a")).await.unwrap();
    assert_eq!(created.path, "/a");
    let (data, stat) = nodes.read("/a").await.unwrap().unwrap();
    assert_eq!(data, b"data");
    assert_eq!(Some(stat.czxid), created.czxid);
    assert_eq!(
        (stat.mzxid, stat.version, stat.ephemeral_owner),
        (stat.czxid, 0, 0)
    );
}

#[tokio::test]
async fn each_transaction_has_a_higher_id() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let first = nodes.create(&persistent("/a")).await.unwrap().czxid;
    let second = nodes.create(&persistent("/b")).await.unwrap().czxid;
    assert!(first < second);
    assert_eq!(second, Some(ensemble.zxid()));
}

#[tokio::test]
async fn missing_node_reads_as_none_and_lists_as_no_node() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    assert!(nodes.read("/none").await.unwrap().is_none());
    assert_eq!(kind(nodes.list("/none").await), "no node");
    assert_eq!(kind(nodes.delete("/none").await), "no node");
}

#[tokio::test]
async fn create_without_parent_is_refused_with_no_node() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    for mode in [
        NodeMode::Persistent,
        NodeMode::Container,
        NodeMode::EphemeralSequential,
    ] {
        assert_eq!(kind(nodes.create(&new_node("/a/b", mode)).await), "no node");
    }
}

#[tokio::test]
async fn create_of_an_existing_node_is_refused() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes.create(&persistent("/a")).await.unwrap();
    let before = ensemble.tree();
    assert_eq!(kind(nodes.create(&ephemeral("/a")).await), "node exists");
    assert_eq!(ensemble.tree(), before);
}

#[tokio::test]
async fn node_with_children_is_not_deleted() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a/b", b"").unwrap();
    let nodes = connect(&ensemble).await;
    assert_eq!(kind(nodes.delete("/a").await), "refused");
    nodes.delete("/a/b").await.unwrap();
    nodes.delete("/a").await.unwrap();
    assert!(ensemble.children("/").is_empty());
}

#[tokio::test]
async fn malformed_paths_are_refused() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    for path in [
        "",
        "a",
        "/a/",
        "//a",
        "/../a",
        "/\u{1}",
        "/\u{85}",
        "/\u{fff0}",
    ] {
        assert_eq!(
            kind(nodes.create(&persistent(path)).await),
            "refused",
            "{path:?}"
        );
        assert_eq!(kind(nodes.read(path).await), "refused", "{path:?}");
    }
}

#[tokio::test]
async fn root_is_neither_created_nor_deleted() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    assert_eq!(kind(nodes.create(&persistent("/")).await), "refused");
    assert_eq!(kind(nodes.create(&sequential("/")).await), "refused");
    assert_eq!(kind(nodes.delete("/").await), "refused");
}

#[tokio::test]
async fn list_names_children_and_not_grandchildren() {
    let ensemble = MemoryEnsemble::new();
    for path in ["/a/b/c", "/a/d", "/ab/e", "/a-b/f"] {
        ensemble.create(path, b"").unwrap();
    }
    let nodes = connect(&ensemble).await;
    assert_eq!(sorted_list(&*nodes, "/a").await, ["b", "d"]);
    assert_eq!(sorted_list(&*nodes, "/").await, ["a", "a-b", "ab"]);
    assert_eq!(nodes.read("/a").await.unwrap().unwrap().1.children, 2);
}

#[tokio::test]
async fn sequences_count_all_creations_of_the_parent() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let mut paths = Vec::new();
    paths.push(nodes.create(&sequential("/a/x-")).await.unwrap().path);
    nodes.create(&persistent("/a/plain")).await.unwrap();
    paths.push(nodes.create(&sequential("/a/y-")).await.unwrap().path);
    nodes.delete("/a/y-0000000002").await.unwrap();
    paths.push(nodes.create(&sequential("/a/")).await.unwrap().path);
    assert_eq!(
        paths,
        ["/a/x-0000000000", "/a/y-0000000002", "/a/0000000003"]
    );
}

#[tokio::test]
async fn refused_create_uses_no_sequence_up() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a/b", b"").unwrap();
    let nodes = connect(&ensemble).await;
    assert_eq!(kind(nodes.create(&persistent("/a/b")).await), "node exists");
    assert_eq!(
        nodes.create(&sequential("/a/n-")).await.unwrap().path,
        "/a/n-0000000001"
    );
}

#[tokio::test]
async fn sequence_restarts_when_the_parent_is_created_anew() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let mut last = None;
    for _ in 0..2 {
        nodes.create(&persistent("/a")).await.unwrap();
        let created = nodes.create(&sequential("/a/n-")).await.unwrap();
        assert_eq!(created.path, "/a/n-0000000000");
        assert!(last < created.czxid, "the transaction id does not restart");
        last = created.czxid;
        nodes.delete("/a/n-0000000000").await.unwrap();
        nodes.delete("/a").await.unwrap();
    }
}

#[tokio::test]
async fn last_number_is_given_again_and_again() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    ensemble.set_sequence("/a", i32::MAX).unwrap();
    let nodes = connect(&ensemble).await;
    for prefix in ["/a/n-", "/a/m-"] {
        let created = nodes.create(&sequential(prefix)).await.unwrap();
        assert_eq!(created.path, format!("{prefix}2147483647"));
    }
    assert_eq!(kind(ensemble.set_sequence("/none", 0)), "no node");
}

#[tokio::test]
async fn ephemeral_node_names_its_session_and_has_no_children() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes.create(&ephemeral("/e")).await.unwrap();
    let stat = nodes.read("/e").await.unwrap().unwrap().1;
    assert_eq!(stat.ephemeral_owner, nodes.session());
    assert_eq!(kind(nodes.create(&persistent("/e/child")).await), "refused");
    assert_eq!(kind(ensemble.create("/e/child/below", b"")), "refused");
}

#[tokio::test]
async fn containers_are_reaped_once_their_last_child_is_gone() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    nodes
        .create(&new_node("/c", NodeMode::Container))
        .await
        .unwrap();
    nodes.create(&persistent("/p")).await.unwrap();
    assert!(
        ensemble.reap_containers().is_empty(),
        "it has had no child yet"
    );
    nodes
        .create(&new_node("/c/d", NodeMode::Container))
        .await
        .unwrap();
    nodes.create(&ephemeral("/c/d/e")).await.unwrap();
    assert!(ensemble.reap_containers().is_empty(), "both have a child");
    nodes.delete("/c/d/e").await.unwrap();
    assert_eq!(ensemble.reap_containers(), ["/c/d"]);
    assert_eq!(ensemble.reap_containers(), ["/c"]);
    assert_eq!(ensemble.children("/"), ["p"]);
}

#[tokio::test]
async fn containers_have_no_owner() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    nodes
        .create(&new_node("/c", NodeMode::Container))
        .await
        .unwrap();
    assert_eq!(
        nodes.read("/c").await.unwrap().unwrap().1.ephemeral_owner,
        0
    );
}

#[tokio::test]
async fn old_server_knows_no_containers() {
    let ensemble = MemoryEnsemble::builder().containers(false).build();
    let nodes = connect(&ensemble).await;
    let container = new_node("/c", NodeMode::Container);
    assert_eq!(kind(nodes.create(&container).await), "unsupported");
    assert!(!ensemble.exists("/c"));
}

#[tokio::test(start_paused = true)]
async fn wall_clock_follows_tokios_clock() {
    let ensemble = MemoryEnsemble::builder().start_ms(1_000).build();
    let nodes = connect(&ensemble).await;
    nodes.create(&persistent("/a")).await.unwrap();
    advance(Duration::from_millis(250)).await;
    nodes.create(&persistent("/b")).await.unwrap();
    assert_eq!(ensemble.stat("/a").unwrap().ctime_ms, 1_000);
    assert_eq!(ensemble.stat("/b").unwrap().ctime_ms, 1_250);
}

#[tokio::test]
async fn operator_sees_and_changes_nodes() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a/b", b"one").unwrap();
    ensemble.set_data("/a/b", b"two").unwrap();
    assert_eq!(ensemble.data("/a/b").as_deref(), Some(&b"two"[..]));
    assert_eq!(ensemble.stat("/a/b").unwrap().version, 1);
    assert_eq!(kind(ensemble.create("/a/b", b"")), "node exists");
    assert_eq!(kind(ensemble.set_data("/none", b"")), "no node");
    assert_eq!(kind(ensemble.delete("/a")), "refused");
    ensemble.delete("/a/b").unwrap();
    assert!(ensemble.exists("/a") && !ensemble.exists("/a/b"));
    assert_eq!(
        (ensemble.data("/a/b"), ensemble.children("/none")),
        (None, Vec::new())
    );
}

#[tokio::test]
async fn operator_creates_nodes_on_behalf_of_a_session() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let path = ensemble
        .create_as(nodes.session(), &sequential("/n-"))
        .unwrap();
    assert_eq!(path, "/n-0000000000");
    ensemble.expire(nodes.session());
    assert!(!ensemble.exists(&path));
    let late = ensemble.create_as(nodes.session(), &ephemeral("/late"));
    assert_eq!(kind(late), "session ended");
}
