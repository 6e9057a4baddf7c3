//! [`Nodes`] on a real ensemble, through `zookeeper-client`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future;
use futures::stream::{self, BoxStream, StreamExt};
use futures::{FutureExt, TryFutureExt};
use recipes_core::{
    Connection, Created, Listing, MultiError, NewNode, NodeMode, NodeOp, NodeOpDone, NodeStat,
    NodeWatch, Nodes, NodesError, Reply, RequestLimit, list_each,
};
use zookeeper_client::{Acl, Acls, Client, CreateMode, CreateOptions, Error, MultiWriter};

use crate::acl::AclSource;
use crate::answers::{
    connection, listing, multi_error, node_stat, node_watch, op_done, present, refusal,
};
use crate::link::Link;
use crate::no_delay::NoDelay;

/// What a service sets for the nodes that its sessions create.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeOptions {
    pub(crate) acl: AclSource,
    pub(crate) limit: RequestLimit,
}

/// The operations of one ZooKeeper session.
#[derive(Debug)]
pub(crate) struct ClientNodes {
    client: Client,
    options: NodeOptions,
    /// How to reach the servers, and what switches off delays. `None` if they are not known.
    servers: Option<(Arc<Link>, NoDelay)>,
    /// Servers before 3.6 refuse it, and close the connection too.
    refuses_multi_read: AtomicBool,
}

impl ClientNodes {
    pub(crate) fn new(
        client: Client,
        options: NodeOptions,
        servers: Option<(Arc<Link>, NoDelay)>,
    ) -> Self {
        Self {
            client,
            options,
            servers,
            refuses_multi_read: AtomicBool::new(false),
        }
    }
}

impl Nodes for ClientNodes {
    fn session(&self) -> i64 {
        self.client.session_id().0
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(self.client.session_timeout())
    }

    fn granted(&self) -> Reply<'static, Option<Duration>> {
        let timeout = self.client.session_timeout();
        // A client that the service has made does not tell its servers.
        let Some((link, _)) = &self.servers else {
            return future::ready(Ok(Some(timeout))).boxed();
        };
        let link = Arc::clone(link);
        async move { link.granted(timeout).await.map(Some) }.boxed()
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        let watcher = self.client.state_watcher();
        // The watcher does not report the state that it starts with, even if that is the last one.
        let first =
            Some(connection(watcher.peek_state())).filter(|it| *it != Connection::Connected);
        let is_over = matches!(first, Some(Connection::Ended(_)));
        let changes = stream::unfold((!is_over).then_some(watcher), async |watcher| {
            let mut watcher = watcher?;
            let connection = connection(watcher.changed().await);
            let is_over = matches!(connection, Connection::Ended(_));
            Some((connection, (!is_over).then_some(watcher)))
        });
        stream::iter(first).chain(changes).boxed()
    }

    fn reconnected(&self) {
        if let Some((_, no_delay)) = &self.servers {
            no_delay.apply();
        }
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        let acl = self.options.acl.of(node);
        if let Err(too_large) = self.options.limit.check_create(node, words(&acl)) {
            return future::ready(Err(NodesError::NotSent(Arc::new(too_large)))).boxed();
        }
        let options = create_options(node, &acl);
        let created = self.client.create(&node.path, &node.data, &options);
        let is_sequential = node.mode == NodeMode::EphemeralSequential;
        created
            .map_ok(move |(stat, sequence)| {
                let path = match is_sequential {
                    true => format!("{}{sequence}", node.path),
                    false => node.path.clone(),
                };
                Created {
                    path,
                    czxid: (!stat.is_invalid()).then_some(stat.czxid),
                }
            })
            .map_err(refusal)
            .boxed()
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        self.client.delete(path, None).map_err(refusal).boxed()
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        self.client.list_children(path).map_err(refusal).boxed()
    }

    fn list_all(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        if paths.len() < 2 || self.refuses_multi_read.load(Ordering::Relaxed) {
            return list_each(self, paths);
        }
        let mut reader = self.client.new_multi_reader();
        for path in paths {
            if let Err(error) = reader.add_get_children(path) {
                return future::ready(Err(refusal(error))).boxed();
            }
        }
        let listings = reader
            .commit()
            .map_ok(|read| read.into_iter().map(listing).collect());
        let refused = |error| {
            let error = refusal(error);
            if let NodesError::Unsupported = error {
                self.refuses_multi_read.store(true, Ordering::Relaxed);
            }
            error
        };
        listings.map_err(refused).boxed()
    }

    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>> {
        let read = self
            .client
            .get_data(path)
            .map_ok(|(data, stat)| (data, node_stat(&stat)));
        read.map(present).boxed()
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        let stat = self.client.check_stat(path);
        stat.map_ok(|stat| stat.as_ref().map(node_stat))
            .map_err(refusal)
            .boxed()
    }

    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>> {
        // A read, not `exists`: that would leave a watch on an absent node.
        let watched = self
            .client
            .get_and_watch_data(path)
            .map_ok(|(data, stat, watcher)| (data, node_stat(&stat), node_watch(watcher)));
        watched.map(present).boxed()
    }

    fn others_see(&self, paths: Vec<String>) -> Reply<'static, Vec<bool>> {
        let Some((link, _)) = &self.servers else {
            return future::pending().boxed();
        };
        let (link, session) = (Arc::clone(link), self.session());
        let timeout = self.client.session_timeout();
        async move { link.others_see(session, timeout, &paths).await }.boxed()
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        self.client.sync(path).map_err(refusal).boxed()
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        let acls = self.options.acl.of_each(&operations);
        let refused = |index, source| future::ready(Err(MultiError { index, source })).boxed();
        if let Err(too_large) = self
            .options
            .limit
            .check(&operations, acls.iter().flat_map(|it| words(it)))
        {
            return refused(None, NodesError::NotSent(Arc::new(too_large)));
        }
        let mut writer = self.client.new_multi_writer();
        for (index, (operation, acl)) in operations.iter().zip(&acls).enumerate() {
            if let Err(error) = add(&mut writer, operation, acl) {
                return refused(Some(index), refusal(error));
            }
        }
        let done = writer
            .commit()
            .map_ok(|done| done.into_iter().filter_map(op_done).collect());
        done.map_err(multi_error).boxed()
    }
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
