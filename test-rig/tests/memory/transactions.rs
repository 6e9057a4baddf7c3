//! Transactions of the in-memory ensemble.

use recipes_core::{MultiError, NodeEvent, NodeMode, NodeOp, NodeOpDone};
use recipes_zookeeper::Permission;
use test_rig::{Lost, MemoryEnsemble, Operation};

use crate::common::*;

fn delete(path: &str, version: Option<i32>) -> NodeOp {
    NodeOp::Delete {
        path: path.to_owned(),
        version,
    }
}

fn set(path: &str, data: &[u8], version: Option<i32>) -> NodeOp {
    NodeOp::Set {
        path: path.to_owned(),
        data: data.to_vec(),
        version,
    }
}

fn check(path: &str, version: Option<i32>) -> NodeOp {
    NodeOp::Check {
        path: path.to_owned(),
        version,
    }
}

fn failure<T>(result: Result<T, MultiError>) -> (Option<usize>, &'static str) {
    match result {
        Ok(_) => (None, "ok"),
        Err(error) => (error.index, kind::<T>(Err(error.source))),
    }
}

#[tokio::test]
async fn all_operations_take_effect_in_one_transaction() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    ensemble.create("/old", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let before = ensemble.zxid();
    let operations = [
        check("/a", Some(0)),
        set("/a", b"new", Some(0)),
        NodeOp::Create(sequential("/a/n-")),
        NodeOp::Create(sequential("/a/n-")),
        delete("/old", None),
    ];
    let done = nodes.multi(operations.to_vec()).await.unwrap();
    assert_eq!(ensemble.zxid(), before + 1);
    assert_eq!(done.len(), operations.len());
    assert_eq!(done[0], NodeOpDone::Checked);
    assert!(matches!(&done[1], NodeOpDone::Set(stat) if stat.version == 1));
    assert!(matches!(&done[2], NodeOpDone::Created(made) if made.path == "/a/n-0000000000"));
    assert!(matches!(&done[3], NodeOpDone::Created(made) if made.path == "/a/n-0000000001"));
    assert_eq!(done[4], NodeOpDone::Deleted);
    assert_eq!(ensemble.stat("/a/n-0000000001").unwrap().czxid, before + 1);
    assert!(!ensemble.exists("/old"));
}

#[tokio::test]
async fn later_operation_sees_the_earlier_ones() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let operations = [
        NodeOp::Create(persistent("/a")),
        NodeOp::Create(persistent("/a/b")),
        set("/a/b", b"", Some(0)),
        check("/a/b", Some(1)),
        delete("/a/b", Some(1)),
    ];
    nodes.multi(operations.to_vec()).await.unwrap();
    assert!(ensemble.children("/a").is_empty());
}

#[tokio::test]
async fn refused_operation_takes_everything_back() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a/b", b"data").unwrap();
    let nodes = connect(&ensemble).await;
    let (before, zxid) = (ensemble.tree(), ensemble.zxid());
    let mut watch = set_watch(&*nodes, "/a/b").await;
    let refused = nodes
        .multi(vec![
            NodeOp::Create(sequential("/a/n-")),
            set("/a/b", b"new", None),
            delete("/a/b", None),
            delete("/a/none", None),
            check("/also-none", None),
        ])
        .await;
    assert_eq!(failure(refused), (Some(3), "no node"));
    // A leader numbers a request before it checks it.
    assert_eq!((ensemble.tree(), ensemble.zxid()), (before, zxid + 1));
    assert!(is_pending(&mut watch));
    let created = nodes.create(&sequential("/a/n-")).await.unwrap();
    assert_eq!(
        created.path, "/a/n-0000000001",
        "the sequence was taken back as well"
    );
}

#[tokio::test]
async fn first_refused_operation_is_named() {
    let ensemble = MemoryEnsemble::builder().containers(false).build();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let ok = || check("/a", None);
    let cases = [
        (check("/a", Some(1)), "bad version"),
        (delete("/a", Some(1)), "bad version"),
        (set("/a", b"", Some(1)), "bad version"),
        (set("/none", b"", None), "no node"),
        (check("/none", None), "no node"),
        (NodeOp::Create(persistent("/a")), "node exists"),
        (NodeOp::Create(persistent("/none/b")), "no node"),
        (
            NodeOp::Create(new_node("/c", NodeMode::Container)),
            "unsupported",
        ),
        (delete("bad path", None), "refused"),
    ];
    for (operation, expected) in cases {
        let refused = nodes
            .multi(vec![ok(), operation.clone(), delete("/none", None)])
            .await;
        assert_eq!(failure(refused), (Some(1), expected), "{operation:?}");
    }
}

#[tokio::test]
async fn bad_input_is_named_before_any_refusal_of_the_server() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    let bad = nodes.multi(vec![delete("/none", None), delete("/bad/", None)]);
    assert_eq!(failure(bad.await), (Some(1), "refused"));
    let bad = nodes.multi(vec![delete("/none", None), delete("/", None)]);
    assert_eq!(failure(bad.await), (Some(1), "refused"));
}

#[tokio::test]
async fn version_of_minus_one_is_any() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    ensemble.set_data("/a", b"new").unwrap();
    let nodes = connect(&ensemble).await;
    let any = nodes.multi(vec![check("/a", Some(-1)), set("/a", b"", Some(-1))]);
    assert_eq!(failure(any.await), (None, "ok"));
    let other = nodes.multi(vec![delete("/a", Some(-2))]);
    assert_eq!(failure(other.await), (Some(0), "bad version"));
}

#[tokio::test]
async fn denied_operation_is_named_by_its_index() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    ensemble.create("/b", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let operations = [check("/a", None), NodeOp::Create(ephemeral("/b/n"))];
    for denied in [Operation::Create, Operation::Multi] {
        ensemble.deny("/b", denied);
        assert_eq!(
            failure(nodes.multi(operations.to_vec()).await),
            (Some(1), "no auth")
        );
        ensemble.allow_all();
    }
    nodes.multi(operations.to_vec()).await.unwrap();
}

#[tokio::test]
async fn watches_fire_after_the_whole_transaction() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    ensemble.create("/b", b"").unwrap();
    let nodes = connect(&ensemble).await;
    let (first, second) = (
        set_watch(&*nodes, "/a").await,
        set_watch(&*nodes, "/b").await,
    );
    nodes
        .multi(vec![
            set("/a", b"new", None),
            delete("/a", None),
            delete("/b", None),
        ])
        .await
        .unwrap();
    assert_eq!(
        first.await,
        NodeEvent::Changed,
        "one-shot: the first event of the transaction"
    );
    assert_eq!(fired(second), NodeEvent::Deleted);
}

#[tokio::test]
async fn ephemeral_nodes_of_a_transaction_go_with_the_session() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    let operations = [
        NodeOp::Create(ephemeral("/a")),
        NodeOp::Create(ephemeral("/b")),
    ];
    nodes.multi(operations.to_vec()).await.unwrap();
    drop(nodes);
    assert!(ensemble.children("/").is_empty());
}

#[tokio::test]
async fn lost_reply_of_a_transaction_names_no_operation() {
    let ensemble = MemoryEnsemble::new();
    let nodes = connect(&ensemble).await;
    for (lost, exists) in [(Lost::BeforeCommit, false), (Lost::AfterCommit, true)] {
        ensemble.lose_reply(None, Operation::Multi, lost);
        let reply = nodes.multi(vec![NodeOp::Create(ephemeral("/a"))]).await;
        assert_eq!(failure(reply), (None, "unknown"));
        assert_eq!(ensemble.exists("/a"), exists);
    }
}

#[tokio::test]
async fn empty_transaction_succeeds() {
    let nodes = connect(&MemoryEnsemble::new()).await;
    assert!(nodes.multi(vec![]).await.unwrap().is_empty());
}

#[tokio::test]
async fn refused_write_uses_up_a_number_and_a_read_or_sync_does_not() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    ensemble
        .create_with_acl("/closed", b"", &world(Permission::READ))
        .unwrap();
    let nodes = connect(&ensemble).await;
    let mut zxid = ensemble.zxid();
    let mut used = || ensemble.zxid() - std::mem::replace(&mut zxid, ensemble.zxid());
    assert_eq!(kind(nodes.delete("/none").await), "no node");
    assert_eq!(used(), 1);
    assert_eq!(kind(nodes.create(&persistent("/a")).await), "node exists");
    assert_eq!(used(), 1);
    let refused = nodes.create(&persistent("/closed/b")).await;
    assert_eq!(kind(refused), "no auth");
    assert_eq!(used(), 1);
    for version in [0, 1] {
        drop(nodes.multi(vec![check("/a", Some(version))]).await);
        assert_eq!(used(), 1, "a check of version {version}");
    }
    nodes.sync("/a").await.unwrap();
    nodes.read("/a").await.unwrap();
    assert_eq!(used(), 0);
}
