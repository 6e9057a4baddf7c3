//! What the deletion of a node tells of those ahead of it.

use std::sync::Arc;
use std::time::Duration;

use recipes_core::{NodeEvent, NodeMode, Nodes};
use test_rig::RedisServer;
use tokio::time::timeout;

use super::{SOON, node, options};

/// One session, in whose directory are as many numbered nodes.
async fn queue(server: &RedisServer, length: usize) -> (Arc<dyn Nodes>, Vec<String>) {
    let store = options(Duration::from_secs(40)).store(&server.url());
    let nodes = store.unwrap().connect().await.unwrap();
    let directory = node("/d", NodeMode::Persistent);
    nodes.create(&directory).await.unwrap();
    let mut paths = Vec::new();
    for _ in 0..length {
        let next = node("/d/lock-", NodeMode::EphemeralSequential);
        paths.push(nodes.create(&next).await.unwrap().path);
    }
    (nodes, paths)
}

async fn deleted(nodes: &dyn Nodes, path: &str) -> NodeEvent {
    let (_, _, watch) = nodes.watch(path).await.unwrap().unwrap();
    nodes.delete(path).await.unwrap();
    timeout(SOON, watch).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_first_is_reported_as_such() {
    let server = RedisServer::start().await.unwrap();
    let (nodes, paths) = queue(&server, 5).await;
    // Its number is that of nodes without one.
    assert_eq!(deleted(&*nodes, &paths[0]).await, NodeEvent::Deleted);
    assert_eq!(deleted(&*nodes, &paths[2]).await, NodeEvent::Deleted);
    assert_eq!(deleted(&*nodes, &paths[4]).await, NodeEvent::Deleted);
    assert_eq!(deleted(&*nodes, &paths[1]).await, NodeEvent::DeletedAsFirst);
    assert_eq!(deleted(&*nodes, &paths[3]).await, NodeEvent::DeletedAsFirst);
}

/// A reader next to its writer has the writer's number in its name, and none of the store's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_the_first_while_a_node_without_a_number_is_there() {
    let server = RedisServer::start().await.unwrap();
    let (nodes, paths) = queue(&server, 3).await;
    let beside = node("/d/read-0000000001", NodeMode::Ephemeral);
    nodes.create(&beside).await.unwrap();
    nodes.delete(&paths[0]).await.unwrap();
    assert_eq!(deleted(&*nodes, &paths[1]).await, NodeEvent::Deleted);
    assert_eq!(deleted(&*nodes, &beside.path).await, NodeEvent::Deleted);
    assert_eq!(deleted(&*nodes, &paths[2]).await, NodeEvent::DeletedAsFirst);
}
