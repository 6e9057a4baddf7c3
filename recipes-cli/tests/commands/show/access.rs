//! Commands without permission report that, with its exit code, and change nothing.

use recipes_core::Session;
use recipes_multilock::Member;
use recipes_zookeeper::{Acl, Acls, AuthId, Permission, ZooKeeper};
use serde_json::json;
use test_rig::TestEnsemble;

use super::{held, json, node_of, printed, server, start};
use crate::lockctl::{lockctl, output, said};

const PATH: &str = "/locks/nightly";
const AUTH: &str = "digest:orders:secret";

/// A session that makes nodes with this ACL.
async fn owner(ensemble: &TestEnsemble, acl: Acls<'_>) -> Session {
    let options = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(acl);
    ensemble.session_with(options).await
}

/// All permissions for the owner, READ for everyone.
fn read_only() -> [Acl; 2] {
    [
        Acl::new(Permission::ALL, AuthId::authed()),
        Acl::new(Permission::READ, AuthId::anyone()),
    ]
}

async fn assert_refused(ensemble: &TestEnsemble, arguments: &[&str], names: &str) {
    let ran = output(lockctl(&server(ensemble).connect_string(), arguments)).await;
    assert_eq!(ran.status.code(), Some(77), "{arguments:?}: {ran:?}");
    assert_eq!(ran.stdout, b"", "{arguments:?}: {ran:?}");
    assert!(said(&ran).contains(names), "{arguments:?}: {ran:?}");
}

async fn assert_code_with_password(ensemble: &TestEnsemble, arguments: &[&str], code: i32) {
    let mut command = lockctl(&server(ensemble).connect_string(), arguments);
    command.env("LOCKCTL_AUTH", AUTH);
    let ran = output(command).await;
    assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_list_sees_nothing() {
    let ensemble = start().await;
    let session = owner(&ensemble, Acls::creator_all()).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let node = node_of(&guard);
    for arguments in [
        &["ls", PATH][..],
        &["deadlocks", PATH],
        &["inspect", PATH],
        &["revoke", PATH],
        &["break", "-y", PATH],
        // Neither the node nor its directory may be listed.
        &["revoke", &node],
        &["break", "-y", &node],
    ] {
        assert_refused(&ensemble, arguments, PATH).await;
    }
    assert!(guard.is_valid());
    assert_code_with_password(&ensemble, &["inspect", PATH], 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_listed_is_named_beside_what_may() {
    let ensemble = start().await;
    let open = ensemble.session().await;
    let _open = held(&open, Member::mutex("/locks/open")).await;
    let session = owner(&ensemble, Acls::creator_all()).await;
    let _closed = held(&session, Member::mutex("/locks/closed")).await;
    for task in ["ls", "deadlocks"] {
        let ran = output(lockctl(&server(&ensemble).connect_string(), &[task])).await;
        assert_eq!(ran.status.code(), Some(0), "{task}: {ran:?}");
        assert!(said(&ran).contains("\"/locks/closed\""), "{task}: {ran:?}");
        let shown = json(&ensemble, &[task]).await;
        let unreadable = &shown["unreadable"];
        assert_eq!(unreadable[0]["path"], "/locks/closed", "{task}: {shown}");
        assert_eq!(unreadable[1], serde_json::Value::Null, "{task}: {shown}");
    }
    let listed = printed(&ensemble, &["ls"]).await;
    assert!(
        listed.contains("/locks/open") && !listed.contains("/locks/closed"),
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_read_is_told_so_and_changes_nothing() {
    let ensemble = start().await;
    let session = owner(&ensemble, Acls::new(&read_only())).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let node = node_of(&guard);
    let before = ensemble.read(&node).await;
    printed(&ensemble, &["inspect", PATH]).await;
    for path in [PATH, &node] {
        assert_refused(&ensemble, &["revoke", path], &node).await;
        assert_refused(&ensemble, &["break", "-y", path], &node).await;
    }
    assert_eq!(ensemble.read(&node).await, before);
    assert!(guard.is_valid());
    assert_code_with_password(&ensemble, &["revoke", PATH], 0).await;
    assert_code_with_password(&ensemble, &["break", "-y", PATH], 0).await;
    guard.lost().await;
}

/// A node in a directory that not everyone may see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_list_the_directory_is_told_that_of_a_node_of_it() {
    let ensemble = start().await;
    let closed = |path: &str| (path == PATH).then(|| Acls::creator_all().to_vec());
    let options = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl_by_path(closed);
    let session = ensemble.session_with(options).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let node = node_of(&guard);
    for arguments in [&["revoke", &node][..], &["break", "-y", &node]] {
        assert_refused(&ensemble, arguments, "not authorized").await;
    }
    assert!(guard.is_valid());
}

/// ZooKeeper requires DELETE on the directory, and nothing on the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_may_not_be_read_can_be_deleted_by_its_name() {
    let ensemble = start().await;
    ensemble.create(PATH, b"").await;
    let session = owner(&ensemble, Acls::creator_all()).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let node = node_of(&guard);
    // Servers since 3.8.4 and 3.9.2 report nothing of it but its name.
    let operator = server(&ensemble).client_of_place().await;
    let is_described = operator.check_stat(&node).await.is_ok();
    let shown = &json(&ensemble, &["inspect", PATH]).await["contenders"][0];
    assert_eq!(
        (&shown["standing"], &shown["readable"]),
        (&json!("holds"), &json!(false))
    );
    for unknown in ["session", "created_ms"] {
        assert_eq!(shown[unknown].is_null(), !is_described, "{shown}");
    }
    let table = printed(&ensemble, &["inspect", PATH]).await;
    assert!(table.contains("(not readable)"), "{table}");
    let deleted = printed(&ensemble, &["break", "-y", &node]).await;
    assert_eq!(deleted, format!("deleted: {node}\n"));
    guard.lost().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_can_be_asked_are_asked_whoever_cannot() {
    let ensemble = start().await;
    ensemble.create(PATH, b"").await;
    let (open, closed) = (
        ensemble.session().await,
        owner(&ensemble, Acls::new(&read_only())).await,
    );
    // In this order: the first and the last may not be changed.
    let first = held(&closed, Member::read(PATH)).await;
    let asked = held(&open, Member::read(PATH)).await;
    let last = held(&closed, Member::read(PATH)).await;
    let mut ran = output(lockctl(
        &server(&ensemble).connect_string(),
        &["revoke", PATH],
    ))
    .await;
    assert_eq!(ran.status.code(), Some(77), "{ran:?}");
    let told = String::from_utf8(std::mem::take(&mut ran.stdout)).unwrap();
    assert_eq!(told, format!("asked: {}\n", node_of(&asked)));
    let failed = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(failed.lines().count(), 2, "{failed}");
    for guard in [&first, &last] {
        assert!(failed.contains(&node_of(guard)), "{failed}");
    }
    asked.revocation_requested().await;
    let ran = output(lockctl(
        &server(&ensemble).connect_string(),
        &["--json", "revoke", PATH],
    ));
    let view: serde_json::Value = serde_json::from_slice(&ran.await.stdout).unwrap();
    let paths: Vec<_> = view["failed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["path"])
        .collect();
    assert_eq!(paths, [&node_of(&first), &node_of(&last)]);
}
