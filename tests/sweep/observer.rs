//! Sees when a server deletes a node, at the moment at which it does.

use std::collections::HashSet;
use std::time::Duration;

use etcd_client::{Event, EventType as EtcdEvent, WatchOptions};
use futures::future::select_all;
use futures::{FutureExt as _, StreamExt as _};
use lock_recipes::Client;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use zookeeper_client::{Error, EventType};

use crate::operator::{Operator, key_of};
use crate::store::Servers;

/// Between two looks at the nodes of a database.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(crate) enum Observer {
    /// One on each server, to notice a deletion as soon as any server shows it.
    ZooKeeper(Vec<Client>),
    Etcd(Box<etcd_client::Client>, Operator),
    /// And who reads a node.
    Redis(Box<redis::Client>, Operator),
    Database(Looks),
}

/// Looks at all nodes of a database, again and again.
pub(crate) struct Looks {
    nodes: watch::Receiver<HashSet<String>>,
    looking: AbortHandle,
}

impl Looks {
    fn by(operator: Operator) -> Self {
        let (sender, nodes) = watch::channel(HashSet::new());
        let looking = tokio::spawn(async move {
            // Ends with the server, or when this is dropped.
            while let Ok(nodes) = operator.owned().await {
                sender.send_replace(nodes);
                sleep(LOOK_EVERY).await;
            }
        });
        Self {
            nodes,
            looking: looking.abort_handle(),
        }
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.looking.abort();
    }
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
            Servers::Etcd(server) => {
                let client = etcd_client::Client::connect([server.address()], None).await;
                Self::Etcd(
                    Box::new(client.expect("a client")),
                    Operator::of(servers).await,
                )
            }
            Servers::Redis(server) => {
                let client = redis::Client::open(server.url()).expect("a URL");
                Self::Redis(Box::new(client), Operator::of(servers).await)
            }
            Servers::Postgres(_) | Servers::MariaDb(_) => {
                Self::Database(Looks::by(Operator::of(servers).await))
            }
        }
    }

    /// Watches a node. The future that it returns completes when the node is deleted. `None` if there is none. On a
    /// database, this waits until there is one.
    pub(crate) async fn deletion(&self, node: &str) -> Option<impl Future<Output = ()> + use<>> {
        Some(match self {
            Self::ZooKeeper(clients) => {
                let mut watchers = Vec::new();
                for client in clients {
                    // A follower may not know the node yet.
                    client.sync(node).await.expect("a server");
                    let watched = match client.get_and_watch_data(node).await {
                        Err(Error::NoNode) => return None,
                        watched => watched.expect("a server"),
                    };
                    let (_, _, watcher) = watched;
                    watchers.push(watcher.changed().boxed());
                }
                let deleted = async move {
                    let (event, ..) = select_all(watchers).await;
                    assert_eq!(event.event_type, EventType::NodeDeleted);
                };
                deleted.boxed()
            }
            Self::Etcd(client, operator) => {
                let there = operator.node(node).await.expect("a server")?;
                // From its creation on, so nothing is missed in between.
                let after = WatchOptions::new().with_start_revision(there.created + 1);
                let news = client.watch_client().watch(key_of(node), Some(after)).await;
                let mut news = news.expect("news");
                let deleted = async move {
                    let is_deletion = |it: &Event| it.event_type() == EtcdEvent::Delete;
                    // The first answer only says that it is watched.
                    loop {
                        let said = news.message().await.expect("a server").expect("news");
                        if said.events().iter().any(is_deletion) {
                            break;
                        }
                    }
                };
                deleted.boxed()
            }
            Self::Redis(client, operator) => {
                let mut news = client.get_async_pubsub().await.expect("a connection");
                let key = format!("__keyspace@0__:{{locks}}:n:{node}");
                news.subscribe(key).await.expect("news");
                // Otherwise it was deleted before.
                operator.node(node).await.expect("a server")?;
                let deleted = async move {
                    let event = news.on_message().next().await.expect("an event");
                    let event: String = event.get_payload().expect("a word");
                    assert_eq!(event, "del");
                };
                deleted.boxed()
            }
            Self::Database(looks) => {
                let (mut nodes, node) = (looks.nodes.clone(), node.to_owned());
                let there = nodes.wait_for(|it| it.contains(&node)).await;
                drop(there.expect("a node"));
                let deleted = async move {
                    let deleted = nodes.wait_for(|it| !it.contains(&node)).await;
                    drop(deleted.expect("looks"));
                };
                deleted.boxed()
            }
        })
    }
}
