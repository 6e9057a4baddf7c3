//! [`Nodes`] on a real ensemble, through `zookeeper-client`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future;
use futures::stream::{self, BoxStream, StreamExt};
use futures::{FutureExt, TryFutureExt};
use recipes_core::{
    Connection, Created, Listing, MultiError, NewNode, NodeEvent, NodeMode, NodeOp, NodeOpDone,
    NodeStat, NodeWatch, Nodes, NodesError, Reliant, Reply, RequestLimit, connection_changes,
    list_each,
};
use tokio::sync::oneshot;
use zookeeper_client::{
    Acl, Acls, Client, CreateMode, CreateOptions, Error, MultiWriter, OneshotWatcher,
};

use crate::acl::AclSource;
use crate::answers::{
    connection, listing, multi_error, node_event, node_stat, op_done, present, refusal,
};
use crate::kept::{Kept, Seen, sent};
use crate::wire::Watcher;

/// The least session timeout that a server grants by its defaults: two of its ticks.
const GRANTED_MIN: Duration = Duration::from_secs(4);

/// What a service sets for the nodes that its sessions create.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeOptions {
    pub(crate) acl: AclSource,
    pub(crate) limit: RequestLimit,
}

/// The operations of one ZooKeeper session.
#[derive(Debug)]
pub(crate) struct ClientNodes {
    way: ClientWay,
    options: NodeOptions,
    /// Servers before 3.6 refuse it, and close the connection too.
    refuses_multi_read: Arc<AtomicBool>,
}

/// How requests reach the servers.
enum ClientWay {
    /// Over the connections of a keeper, which closes the session when the sender is dropped.
    Kept(
        Arc<Kept>,
        #[expect(dead_code, reason = "dropped")] oneshot::Sender<()>,
    ),
    /// Through one client, which connects again by itself.
    One(Client, Arc<OnceLock<Weak<dyn Reliant>>>),
}

impl fmt::Debug for ClientWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(kept, _) => kept.fmt(f),
            Self::One(client, _) => client.fmt(f),
        }
    }
}

impl ClientNodes {
    pub(crate) fn kept(kept: Arc<Kept>, used: oneshot::Sender<()>, options: NodeOptions) -> Self {
        Self::new(ClientWay::Kept(kept, used), options)
    }

    /// Through one client.
    pub(crate) fn of_one(client: Client) -> Self {
        Self::new(
            ClientWay::One(client, Arc::default()),
            NodeOptions::default(),
        )
    }

    fn new(way: ClientWay, options: NodeOptions) -> Self {
        Self {
            way,
            options,
            refuses_multi_read: Arc::default(),
        }
    }

    /// Sends a request now, or as soon as there is a connection.
    fn ask<T, F>(&self, send: impl FnOnce(Client) -> F + Send + 'static) -> Reply<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, NodesError>> + Send + 'static,
    {
        match &self.way {
            ClientWay::Kept(kept, _) => {
                let answer = kept.ask(|up| send(up.client.clone()));
                let answer = answer.map(|it| it.unwrap_or(Err(NodesError::SessionEnded)));
                answer.boxed()
            }
            ClientWay::One(client, _) => sent(send(client.clone())),
        }
    }
}

impl Nodes for ClientNodes {
    fn session(&self) -> i64 {
        match &self.way {
            ClientWay::Kept(kept, _) => kept.id,
            ClientWay::One(client, _) => client.session_id().0,
        }
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(match &self.way {
            ClientWay::Kept(kept, _) => kept.timeout(),
            ClientWay::One(client, _) => client.session_timeout(),
        })
    }

    fn relied_on_by(&self, reliant: Weak<dyn Reliant>) {
        match &self.way {
            ClientWay::Kept(kept, _) => kept.relied_on_by(reliant),
            ClientWay::One(_, it) => drop(it.set(reliant)),
        }
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        match &self.way {
            ClientWay::Kept(kept, _) => connection_changes(kept.link.subscribe()),
            ClientWay::One(client, reliant) => {
                let reliant = Arc::clone(reliant);
                let changes = client_changes(client).inspect(move |change| {
                    let reliant = reliant.get().and_then(Weak::upgrade);
                    if let (Connection::Disconnected, Some(reliant)) = (change, reliant) {
                        reliant.shortened(GRANTED_MIN);
                    }
                });
                changes.boxed()
            }
        }
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        let acl = self.options.acl.of(node);
        if let Err(too_large) = self.options.limit.check_create(node, words(&acl)) {
            return future::ready(Err(NodesError::NotSent(Arc::new(too_large)))).boxed();
        }
        let node = node.clone();
        self.ask(|client| async move {
            let options = create_options(&node, &acl);
            let created = client.create(&node.path, &node.data, &options);
            let (stat, sequence) = created.await.map_err(refusal)?;
            let path = match node.mode == NodeMode::EphemeralSequential {
                true => format!("{}{sequence}", node.path),
                false => node.path.clone(),
            };
            let czxid = (!stat.is_invalid()).then_some(stat.czxid);
            Ok(Created { path, czxid })
        })
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        let path = path.to_owned();
        self.ask(move |client| client.delete(&path, None).map_err(refusal))
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        let path = path.to_owned();
        self.ask(|client| async move { client.list_children(&path).await.map_err(refusal) })
    }

    fn list_all(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        if paths.len() < 2 || self.refuses_multi_read.load(Ordering::Relaxed) {
            return list_each(self, paths);
        }
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        let refuses = Arc::clone(&self.refuses_multi_read);
        self.ask(|client| async move {
            let mut reader = client.new_multi_reader();
            for path in &paths {
                reader.add_get_children(path).map_err(refusal)?;
            }
            let read = reader.commit().await.map_err(refusal);
            if let Err(NodesError::Unsupported) = read {
                refuses.store(true, Ordering::Relaxed);
            }
            Ok(read?.into_iter().map(listing).collect())
        })
    }

    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>> {
        let path = path.to_owned();
        self.ask(move |client| {
            let read = client.get_data(&path);
            let read = read.map_ok(|(data, stat)| (data, node_stat(&stat)));
            read.map(present)
        })
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        let path = path.to_owned();
        self.ask(move |client| {
            let stat = client.check_stat(&path).map_err(refusal);
            stat.map_ok(|stat| stat.as_ref().map(node_stat))
        })
    }

    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>> {
        // A read, not `exists`: that would leave a watch on an absent node.
        let path = path.to_owned();
        let kept = match &self.way {
            ClientWay::One(client, _) => {
                let watched = client
                    .get_and_watch_data(&path)
                    .map_ok(|(data, stat, it)| (data, node_stat(&stat), of_one(it)));
                return watched.map(present).boxed();
            }
            ClientWay::Kept(kept, _) => Arc::clone(kept),
        };
        let on_server = path.clone();
        let asked = kept.ask(move |up| {
            let (client, open) = (up.client.clone(), Arc::clone(&up.open));
            async move {
                let watched = client.get_and_watch_data(&on_server).await;
                watched.map(|(data, stat, it)| (data, node_stat(&stat), Watcher::new(&open, it)))
            }
        });
        let watched = async move {
            let answer = asked.await.unwrap_or(Err(Error::SessionExpired));
            let Some((data, stat, watcher)) = present(answer)? else {
                return Ok(None);
            };
            let watch = kept.watch(path, Seen::from(&stat), watcher);
            let watch = watch.ok_or_else(|| refusal(Error::ConnectionLoss))?;
            Ok(Some((data, stat, watch.boxed())))
        };
        watched.boxed()
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        let path = path.to_owned();
        self.ask(|client| async move { client.sync(&path).await.map_err(refusal) })
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        if operations.is_empty() {
            return future::ready(Ok(Vec::new())).boxed();
        }
        let acls = self.options.acl.of_each(&operations);
        let refused = |index, source| future::ready(Err(MultiError { index, source })).boxed();
        if let Err(too_large) = self
            .options
            .limit
            .check(&operations, acls.iter().flat_map(|it| words(it)))
        {
            return refused(None, NodesError::NotSent(Arc::new(too_large)));
        }
        let done = self.ask(|client| async move {
            let mut writer = client.new_multi_writer();
            for (index, (operation, acl)) in operations.iter().zip(&acls).enumerate() {
                if let Err(error) = add(&mut writer, operation, acl) {
                    let (index, source) = (Some(index), refusal(error));
                    return Ok(Err(MultiError { index, source }));
                }
            }
            let done = writer.commit().await.map_err(multi_error);
            Ok(done.map(|done| done.into_iter().filter_map(op_done).collect()))
        });
        let whole = |source| {
            Err(MultiError {
                index: None,
                source,
            })
        };
        done.map(move |done| done.unwrap_or_else(whole)).boxed()
    }
}

/// The changes of the connection of a client that connects again by itself.
fn client_changes(client: &Client) -> BoxStream<'static, Connection> {
    let watcher = client.state_watcher();
    // The watcher does not report the state that it starts with, even if that is the last one.
    let first = Some(connection(watcher.peek_state())).filter(|it| *it != Connection::Connected);
    let is_over = matches!(first, Some(Connection::Ended(_)));
    let changes = stream::unfold((!is_over).then_some(watcher), async |watcher| {
        let mut watcher = watcher?;
        let connection = connection(watcher.changed().await);
        let is_over = matches!(connection, Connection::Ended(_));
        Some((connection, (!is_over).then_some(watcher)))
    });
    stream::iter(first).chain(changes).boxed()
}

/// A watch of a client that sets it again by itself.
fn of_one(watcher: OneshotWatcher) -> NodeWatch {
    let event = watcher.changed();
    event
        .map(|event| node_event(&event).unwrap_or(NodeEvent::SessionEnded))
        .boxed()
}

fn add(writer: &mut MultiWriter<'_>, operation: &NodeOp, acl: &[Acl]) -> Result<(), Error> {
    match operation {
        NodeOp::Create(node) => {
            writer.add_create(&node.path, &node.data, &create_options(node, acl))
        }
        NodeOp::Delete { path, version } => writer.add_delete(path, *version),
        NodeOp::Set {
            path,
            data,
            version,
        } => writer.add_set_data(path, data, *version),
        NodeOp::Check { path, version } => writer.add_check_version(path, version.unwrap_or(-1)),
    }
}

fn create_options<'a>(node: &NewNode, acl: &'a [Acl]) -> CreateOptions<'a> {
    let mode = match node.mode {
        NodeMode::Persistent => CreateMode::Persistent,
        NodeMode::Container => CreateMode::Container,
        NodeMode::Ephemeral => CreateMode::Ephemeral,
        NodeMode::EphemeralSequential => CreateMode::EphemeralSequential,
    };
    mode.with_acls(Acls::new(acl))
}

/// Scheme and identity of each entry.
fn words(acl: &[Acl]) -> impl Iterator<Item = (&str, &str)> {
    acl.iter().map(|entry| (entry.scheme(), entry.id()))
}
