//! Sees when a server deletes a node, at the moment at which it does.

use futures::future::select_all;
use futures::{FutureExt as _, StreamExt as _};
use lock_recipes::Client;
use zookeeper_client::EventType;

use crate::store::{Operator, Servers};

pub(crate) enum Observer {
    /// One on each server, to notice a deletion as soon as any server shows it.
    ZooKeeper(Vec<Client>),
    /// And who reads a node.
    Redis(Box<redis::Client>, Operator),
}

impl Observer {
    pub(crate) async fn of(servers: &Servers) -> Self {
        match servers {
            Servers::One(server) => Self::ZooKeeper(vec![server.client().await.expect("a client")]),
            Servers::Three(servers) => {
                let mut clients = Vec::new();
                for server in servers.servers() {
                    clients.push(server.client().await.expect("a client"));
                }
                Self::ZooKeeper(clients)
            }
            Servers::Redis(server) => {
                let client = redis::Client::open(server.url()).expect("a URL");
                Self::Redis(Box::new(client), servers.operator().await)
            }
        }
    }

    /// Watches a node. The future that it returns completes when the node is deleted.
    pub(crate) async fn deletion(&self, node: &str) -> impl Future<Output = ()> + use<> {
        match self {
            Self::ZooKeeper(clients) => {
                let mut watchers = Vec::new();
                for client in clients {
                    // A follower may not know the node yet.
                    client.sync(node).await.expect("a server");
                    let (_, _, watcher) = client.get_and_watch_data(node).await.expect("a node");
                    watchers.push(watcher.changed().boxed());
                }
                let deleted = async move {
                    let (event, ..) = select_all(watchers).await;
                    assert_eq!(event.event_type, EventType::NodeDeleted);
                };
                deleted.boxed()
            }
            Self::Redis(client, operator) => {
                let mut news = client.get_async_pubsub().await.expect("a connection");
                let key = format!("__keyspace@0__:{{locks}}:n:{node}");
                news.subscribe(key).await.expect("news");
                // Otherwise it was deleted before.
                let there = operator.node(node).await.expect("a server");
                assert!(there.is_some(), "a node");
                let deleted = async move {
                    let event = news.on_message().next().await.expect("an event");
                    let event: String = event.get_payload().expect("a word");
                    assert_eq!(event, "del");
                };
                deleted.boxed()
            }
        }
    }
}
