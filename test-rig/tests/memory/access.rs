//! Access control of the in-memory ensemble.

use recipes_core::NodeOp;
use recipes_zookeeper::{Acl, AuthId, Permission};
use test_rig::{MemoryEnsemble, Operation};

use crate::common::*;

fn creator() -> Vec<Acl> {
    vec![Acl::new(Permission::ALL, AuthId::authed())]
}

#[tokio::test]
async fn create_needs_the_permission_of_the_parent() {
    let ensemble = MemoryEnsemble::new();
    ensemble
        .create_with_acl("/a", b"", &world(Permission::READ))
        .unwrap();
    ensemble
        .create_with_acl("/b", b"", &world(Permission::CREATE))
        .unwrap();
    let nodes = connect(&ensemble).await;
    assert_eq!(kind(nodes.create(&sequential("/a/n-")).await), "no auth");
    nodes.create(&sequential("/b/n-")).await.unwrap();
}

#[tokio::test]
async fn delete_needs_the_permission_of_the_parent_and_not_of_the_node() {
    let ensemble = MemoryEnsemble::new();
    ensemble
        .create_with_acl("/a", b"", &world(Permission::DELETE))
        .unwrap();
    ensemble
        .create_with_acl("/a/b", b"", &world(Permission::READ))
        .unwrap();
    ensemble
        .create_with_acl("/c", b"", &world(Permission::READ | Permission::WRITE))
        .unwrap();
    ensemble.create("/c/d", b"").unwrap();
    let nodes = connect(&ensemble).await;
    nodes.delete("/a/b").await.unwrap();
    assert_eq!(kind(nodes.delete("/c/d").await), "no auth");
}

#[tokio::test]
async fn delete_without_permission_does_not_tell_whether_the_node_exists() {
    let ensemble = MemoryEnsemble::new();
    ensemble
        .create_with_acl("/a", b"", &world(Permission::READ))
        .unwrap();
    let nodes = connect(&ensemble).await;
    assert_eq!(kind(nodes.delete("/a/none").await), "no auth");
    assert_eq!(kind(nodes.delete("/none/none").await), "no node");
}

#[tokio::test]
async fn create_checks_the_permission_before_the_name() {
    let ensemble = MemoryEnsemble::new();
    ensemble
        .create_with_acl("/a", b"", &world(Permission::READ))
        .unwrap();
    ensemble.create("/a/b", b"").unwrap();
    let nodes = connect(&ensemble).await;
    assert_eq!(kind(nodes.create(&persistent("/a/b")).await), "no auth");
}

#[tokio::test]
async fn read_list_and_watch_need_read() {
    let ensemble = MemoryEnsemble::new();
    let hidden = world(Permission::CREATE | Permission::DELETE | Permission::WRITE);
    ensemble.create_with_acl("/hidden", b"", &hidden).unwrap();
    ensemble
        .create_with_acl("/shown", b"", &world(Permission::READ))
        .unwrap();
    let nodes = connect(&ensemble).await;
    assert_eq!(kind(nodes.read("/hidden").await), "no auth");
    assert_eq!(kind(nodes.list("/hidden").await), "no auth");
    assert_eq!(kind(nodes.watch("/hidden").await), "no auth");
    assert_eq!(ensemble.watch_count(), 0);
    assert_eq!(kind(nodes.read("/shown").await), "ok");
    assert_eq!(kind(nodes.list("/shown").await), "ok");
    assert_eq!(kind(nodes.watch("/shown").await), "ok");
    assert_eq!(kind(nodes.sync("/hidden").await), "ok");
    assert!(nodes.read("/hidden/none").await.unwrap().is_none());
}

#[tokio::test]
async fn set_needs_write_and_check_needs_read() {
    let ensemble = MemoryEnsemble::new();
    ensemble
        .create_with_acl("/r", b"", &world(Permission::READ))
        .unwrap();
    ensemble
        .create_with_acl("/w", b"", &world(Permission::WRITE))
        .unwrap();
    let nodes = connect(&ensemble).await;
    let set = |path: &str| NodeOp::Set {
        path: path.to_owned(),
        data: Vec::new(),
        version: None,
    };
    let check = |path: &str| NodeOp::Check {
        path: path.to_owned(),
        version: None,
    };
    nodes.multi(vec![set("/w"), check("/r")]).await.unwrap();
    for operation in [set("/r"), check("/w")] {
        let error = nodes.multi(vec![operation]).await.unwrap_err();
        assert_eq!(kind::<()>(Err(error.source)), "no auth");
    }
}

#[tokio::test]
async fn creator_may_do_what_others_may_not() {
    let ensemble = MemoryEnsemble::new();
    let owner = connect_with(&ensemble, Some("alice:secret"), &creator()).await;
    owner.create(&persistent("/a")).await.unwrap();
    for (user, expected) in [
        ("alice:secret", "ok"),
        ("alice:guess", "no auth"),
        ("bob:", "no auth"),
    ] {
        let nodes = connect_as(&ensemble, user).await;
        assert_eq!(kind(nodes.read("/a").await), expected, "{user}");
    }
    assert_eq!(kind(connect(&ensemble).await.read("/a").await), "no auth");
}

#[tokio::test]
async fn list_that_is_empty_or_names_nobody_is_refused() {
    let ensemble = MemoryEnsemble::new();
    for acl in [creator(), Vec::new()] {
        let nodes = connect_with(&ensemble, None, &acl).await;
        assert_eq!(kind(nodes.create(&persistent("/a")).await), "refused");
    }
    assert_eq!(
        kind(ensemble.create_with_acl("/a", b"", &creator())),
        "refused"
    );
    assert!(!ensemble.exists("/a"));
}

#[tokio::test]
async fn denied_operation_is_refused_on_the_node_and_below() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a/b", b"").unwrap();
    ensemble.create("/ab", b"").unwrap();
    let nodes = connect(&ensemble).await;
    ensemble.deny("/a", Operation::List);
    assert_eq!(kind(nodes.list("/a").await), "no auth");
    assert_eq!(kind(nodes.list("/a/b").await), "no auth");
    assert_eq!(kind(nodes.list("/ab").await), "ok");
    assert_eq!(kind(nodes.read("/a").await), "ok");
    ensemble.allow_all();
    assert_eq!(kind(nodes.list("/a").await), "ok");
}

#[tokio::test]
async fn every_operation_can_be_denied() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create("/a", b"").unwrap();
    let nodes = connect(&ensemble).await;
    for operation in [
        Operation::Create,
        Operation::Delete,
        Operation::List,
        Operation::Read,
        Operation::Watch,
        Operation::Sync,
        Operation::Multi,
    ] {
        ensemble.deny("/a", operation);
    }
    assert_eq!(kind(nodes.create(&persistent("/a/b")).await), "no auth");
    assert_eq!(kind(nodes.delete("/a").await), "no auth");
    assert_eq!(kind(nodes.list("/a").await), "no auth");
    assert_eq!(kind(nodes.read("/a").await), "no auth");
    assert_eq!(kind(nodes.watch("/a").await), "no auth");
    assert_eq!(kind(nodes.sync("/a").await), "no auth");
    let check = NodeOp::Check {
        path: "/a".to_owned(),
        version: None,
    };
    assert_eq!(nodes.multi(vec![check]).await.unwrap_err().index, Some(0));
    ensemble.delete("/a").unwrap();
}
