//! Helpers that the tests of the in-memory ensemble share.

use std::sync::Arc;

use futures::FutureExt as _;
use recipes_core::{NewNode, NodeEvent, NodeMode, NodeWatch, Nodes, NodesError, SessionOptions};
use recipes_zookeeper::{Acl, AuthId, Permission, ZooKeeper};
use test_rig::MemoryEnsemble;

pub(crate) async fn connect(ensemble: &MemoryEnsemble) -> Arc<dyn Nodes> {
    ensemble.store().connect().await.unwrap()
}

pub(crate) async fn connect_as(ensemble: &MemoryEnsemble, user: &str) -> Arc<dyn Nodes> {
    let store = ensemble.store_with(Some(user), SessionOptions::new());
    store.connect().await.unwrap()
}

/// A session whose nodes have this access control list.
pub(crate) async fn connect_with(
    ensemble: &MemoryEnsemble,
    user: Option<&str>,
    acl: &[Acl],
) -> Arc<dyn Nodes> {
    let acl = acl.to_vec();
    let options = ZooKeeper::builder().acl_by_path(move |_| Some(acl.clone()));
    let store = ensemble.store_with(user, options);
    store.connect().await.unwrap()
}

pub(crate) fn new_node(path: &str, mode: NodeMode) -> NewNode {
    NewNode {
        path: path.to_owned(),
        data: Arc::from(*b"data"),
        mode,
    }
}

pub(crate) fn persistent(path: &str) -> NewNode {
    new_node(path, NodeMode::Persistent)
}

pub(crate) fn ephemeral(path: &str) -> NewNode {
    new_node(path, NodeMode::Ephemeral)
}

pub(crate) fn sequential(path: &str) -> NewNode {
    new_node(path, NodeMode::EphemeralSequential)
}

pub(crate) fn world(permission: Permission) -> Arc<[Acl]> {
    Arc::from([Acl::new(permission, AuthId::anyone())])
}

pub(crate) async fn sorted_list(nodes: &dyn Nodes, path: &str) -> Vec<String> {
    let mut names = nodes.list(path).await.unwrap();
    names.sort_unstable();
    names
}

pub(crate) async fn set_watch(nodes: &dyn Nodes, path: &str) -> NodeWatch {
    nodes.watch(path).await.unwrap().unwrap().2
}

pub(crate) fn is_pending(watch: &mut NodeWatch) -> bool {
    watch.now_or_never().is_none()
}

/// The event of a watch, which must have arrived.
pub(crate) fn fired(watch: NodeWatch) -> NodeEvent {
    watch.now_or_never().unwrap()
}

/// The kind of an error, without its source.
pub(crate) fn kind<T>(result: Result<T, NodesError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(NodesError::NoNode) => "no node",
        Err(NodesError::NodeExists) => "node exists",
        Err(NodesError::BadVersion) => "bad version",
        Err(NodesError::NoAuth) => "no auth",
        Err(NodesError::Unsupported) => "unsupported",
        Err(NodesError::NotSent(_) | NodesError::Refused(_)) => "refused",
        Err(NodesError::Unknown(_)) => "unknown",
        Err(NodesError::SessionEnded) => "session ended",
        Err(_) => "other",
    }
}
