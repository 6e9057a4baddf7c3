use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::mpsc;

use super::*;
use crate::nodes::EndReason;
use crate::scripted::{Scripted, T};

/// Uses up what the task may do before others have their turn.
pub(crate) async fn exhaust() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    (0..1_000).for_each(|it| sender.send(it).unwrap());
    poll_fn(|cx| {
        while receiver.poll_recv(cx).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

fn connections() -> (Arc<Scripted>, Connections) {
    let nodes = Scripted::new(Some(T));
    let connections = Connections::of(&*nodes);
    (nodes, connections)
}

#[tokio::test]
async fn each_connection_has_a_number_of_its_own() {
    let (nodes, connections) = connections();
    assert_eq!(connections.current(), Some(1));
    assert_eq!(connections.current(), Some(1));
    nodes.connection_is(Connection::Disconnected);
    assert_eq!(connections.current(), None);
    assert_eq!(connections.current(), None);
    nodes.connection_is(Connection::Connected);
    let second = connections.current().unwrap();
    assert!(second > 1);
    // Nobody looked while it was down.
    nodes.reconnect();
    let third = connections.current().unwrap();
    assert!(third > second);
    nodes.connection_is(Connection::Ended(EndReason::Expired));
    assert_eq!(connections.current(), None);
    drop(nodes);
    assert_eq!(connections.current(), None);
}

#[tokio::test]
async fn connection_that_is_down_from_the_start_is_none() {
    let nodes = Scripted::new(Some(T));
    nodes.connection_is(Connection::Disconnected);
    assert_eq!(Connections::of(&*nodes).current(), None);
}

#[tokio::test]
async fn change_is_seen_by_a_task_that_has_had_its_share() {
    let (nodes, connections) = connections();
    nodes.connection_is(Connection::Disconnected);
    exhaust().await;
    assert_eq!(connections.current(), None);
}
