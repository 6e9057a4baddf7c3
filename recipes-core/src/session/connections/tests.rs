use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::stream;
use tokio::sync::mpsc;

use super::*;
use crate::scripted::{Scripted, T};
use crate::store::nodes::EndReason;

/// Uses up the budget of the task, after which tokio makes it yield.
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
    // The connection is lost and comes back between two looks.
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

/// A client may report changes one by one, and the caller needs the present state.
#[tokio::test]
async fn all_changes_that_nobody_has_looked_at_count_at_once() {
    let changes = [
        Connection::Connected,
        Connection::Disconnected,
        Connection::Connected,
        Connection::Disconnected,
    ];
    for count in 1..=changes.len() {
        let told = stream::iter(changes).take(count).chain(stream::pending());
        let connections = Connections(Mutex::new(Seen {
            changes: told.boxed(),
            number: 1,
            is_up: true,
        }));
        let is_up = changes[count - 1] == Connection::Connected;
        let number = connections.current();
        assert_eq!(number.is_some(), is_up, "{count}");
        assert!(number.is_none_or(|it| it > 1));
        assert_eq!(connections.current(), number, "nothing new");
    }
}

#[tokio::test]
async fn change_is_seen_by_a_task_that_has_had_its_share() {
    let (nodes, connections) = connections();
    nodes.connection_is(Connection::Disconnected);
    exhaust().await;
    assert_eq!(connections.current(), None);
}
