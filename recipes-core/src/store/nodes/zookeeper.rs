//! [`Nodes`] on a real ensemble, through `zookeeper-client`.
//!
//! The only file that knows the client's errors. The client reports a lost connection in three ways
//! (`ConnectionLoss`, an I/O error, "no response"). So every error that is not a definite refusal
//! by the server counts as an unknown outcome.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream, StreamExt};
use futures::{FutureExt, TryFutureExt};
use uuid::Uuid;
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error, EventType, MultiReadResult, MultiWriteError,
    MultiWriteResult, MultiWriter, OneshotWatcher, SessionState, Stat,
};

use crate::store::backend::Backend;
use crate::store::nodes::no_delay::NoDelay;
use crate::store::nodes::{
    Acl, Connection, Created, EndReason, Listing, MultiError, NewNode, NodeEvent, NodeMode, NodeOp,
    NodeOpDone, NodeStat, NodeWatch, Nodes, NodesError, Reply, list_each,
};
use crate::sync::{Mutex, lock};

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) session_timeout: Duration,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<zookeeper_client::TlsOptions>,
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    pub(crate) sasl: Option<zookeeper_client::SaslOptions>,
}

impl Transport {
    pub(crate) fn new(session_timeout: Duration) -> Self {
        Self {
            session_timeout,
            auth: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
            sasl: None,
        }
    }
}

/// Shows no secrets.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes: Vec<_> = self.auth.iter().map(|(scheme, _)| scheme).collect();
        f.debug_struct("Transport")
            .field("session_timeout", &self.session_timeout)
            .field("auth", &schemes)
            .finish_non_exhaustive()
    }
}

/// The servers of a connect string.
#[derive(Debug)]
pub(crate) struct Ensemble {
    connect_string: String,
    transport: Transport,
    no_delay: NoDelay,
}

impl Ensemble {
    pub(crate) fn new(connect_string: &str, transport: Transport) -> Self {
        Self {
            connect_string: connect_string.to_owned(),
            transport,
            no_delay: NoDelay::new(connect_string),
        }
    }

    async fn open(&self) -> Result<Client, Error> {
        let mut connector =
            Client::connector().with_session_timeout(self.transport.session_timeout);
        for (scheme, auth) in &self.transport.auth {
            connector = connector.with_auth(scheme, auth);
        }
        #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
        if let Some(sasl) = &self.transport.sasl {
            connector = connector.with_sasl(sasl.clone());
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.transport.tls {
            return connector
                .with_tls(tls.clone())
                .secure_connect(&self.connect_string)
                .await;
        }
        connector.connect(&self.connect_string).await
    }
}

impl Backend for Ensemble {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = self.open().map_ok(|client| {
            self.no_delay.apply();
            Arc::new(Session::new(client, Some(self.no_delay.clone()))) as Arc<dyn Nodes>
        });
        opened.map_err(refusal_of_session).boxed()
    }

    fn new_uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// A client that the service made: one session, no other.
pub(crate) struct ExistingClient {
    client: Mutex<Option<Client>>,
}

impl ExistingClient {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client: Mutex::new(Some(client)),
        }
    }
}

impl fmt::Debug for ExistingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExistingClient").finish_non_exhaustive()
    }
}

impl Backend for ExistingClient {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = match lock(&self.client).take() {
            Some(client) => Ok(Arc::new(Session::new(client, None)) as Arc<dyn Nodes>),
            None => Err(NodesError::SessionEnded),
        };
        future::ready(opened).boxed()
    }

    fn new_uuid(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn reconnects(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Session {
    client: Client,
    /// `None` if the servers are not known.
    no_delay: Option<NoDelay>,
    /// Servers before 3.6 refuse it, and close the connection too.
    refuses_multi_read: AtomicBool,
}

impl Session {
    fn new(client: Client, no_delay: Option<NoDelay>) -> Self {
        Self {
            client,
            no_delay,
            refuses_multi_read: AtomicBool::new(false),
        }
    }
}

impl Nodes for Session {
    fn session(&self) -> i64 {
        self.client.session_id().0
    }

    fn chroot_len(&self) -> usize {
        match self.client.path() {
            "/" => 0,
            chroot => chroot.len(),
        }
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(self.client.session_timeout())
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
        if let Some(no_delay) = &self.no_delay {
            no_delay.apply();
        }
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        let options = create_options(node);
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

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        self.client.sync(path).map_err(refusal).boxed()
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        let mut writer = self.client.new_multi_writer();
        for (index, operation) in operations.iter().enumerate() {
            if let Err(error) = add(&mut writer, operation) {
                let error = MultiError {
                    index: Some(index),
                    source: refusal(error),
                };
                return future::ready(Err(error)).boxed();
            }
        }
        let done = writer
            .commit()
            .map_ok(|done| done.into_iter().filter_map(op_done).collect());
        done.map_err(multi_error).boxed()
    }
}

fn listing(read: MultiReadResult) -> Listing {
    match read {
        MultiReadResult::Children { children } => Ok(children),
        MultiReadResult::Error { err } => Err(refusal(err)),
        _ => Err(refusal(Error::MarshallingError)),
    }
}

fn add(writer: &mut MultiWriter<'_>, operation: &NodeOp) -> Result<(), Error> {
    match operation {
        NodeOp::Create(node) => writer.add_create(&node.path, &node.data, &create_options(node)),
        NodeOp::Delete { path, version } => writer.add_delete(path, *version),
        NodeOp::Set {
            path,
            data,
            version,
        } => writer.add_set_data(path, data, *version),
        NodeOp::Check { path, version } => writer.add_check_version(path, version.unwrap_or(-1)),
    }
}

fn create_options(node: &NewNode) -> CreateOptions<'_> {
    let mode = match node.mode {
        NodeMode::Persistent => CreateMode::Persistent,
        NodeMode::Container => CreateMode::Container,
        NodeMode::Ephemeral => CreateMode::Ephemeral,
        NodeMode::EphemeralSequential => CreateMode::EphemeralSequential,
    };
    let acl: &[Acl] = &node.acl;
    mode.with_acls(Acls::new(acl))
}

fn op_done(result: MultiWriteResult) -> Option<NodeOpDone> {
    match result {
        MultiWriteResult::Check => Some(NodeOpDone::Checked),
        MultiWriteResult::Delete => Some(NodeOpDone::Deleted),
        MultiWriteResult::Create { path, stat } => {
            // Servers before 3.8.2 and 3.7.2 leave the stat out.
            let czxid = (!stat.is_invalid()).then_some(stat.czxid);
            Some(NodeOpDone::Created(Created { path, czxid }))
        }
        MultiWriteResult::SetData { stat } => Some(NodeOpDone::Set(node_stat(&stat))),
        _ => None,
    }
}

fn multi_error(error: MultiWriteError) -> MultiError {
    match error {
        MultiWriteError::RequestFailed { source } => MultiError {
            index: None,
            source: refusal(source),
        },
        MultiWriteError::OperationFailed { index, source } => MultiError {
            index: Some(index),
            source: refusal(source),
        },
    }
}

fn node_stat(stat: &Stat) -> NodeStat {
    NodeStat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        version: stat.version,
        ephemeral_owner: stat.ephemeral_owner,
        ctime_ms: stat.ctime,
        children: stat.num_children,
        cversion: stat.cversion,
        pzxid: stat.pzxid,
    }
}

fn node_watch(watcher: OneshotWatcher) -> NodeWatch {
    let event = watcher.changed().map(|event| match event.event_type {
        EventType::NodeDeleted => NodeEvent::Deleted,
        EventType::Session => NodeEvent::SessionEnded,
        _ => NodeEvent::Changed,
    });
    event.boxed()
}

fn present<T>(read: Result<T, Error>) -> Result<Option<T>, NodesError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

fn connection(state: SessionState) -> Connection {
    match state {
        SessionState::SyncConnected => Connection::Connected,
        // A read-only server accepts no writes, so no lock is held there.
        SessionState::Disconnected | SessionState::ConnectedReadOnly => Connection::Disconnected,
        SessionState::Expired => Connection::Ended(EndReason::Expired),
        SessionState::AuthFailed => Connection::Ended(EndReason::AuthFailed),
        SessionState::Closed => Connection::Ended(EndReason::Closed),
    }
}

/// Classifies an error by what the lock must do about it.
fn refusal(error: Error) -> NodesError {
    match error {
        Error::NoNode => NodesError::NoNode,
        Error::NodeExists => NodesError::NodeExists,
        Error::BadVersion => NodesError::BadVersion,
        Error::NoAuth => NodesError::NoAuth,
        Error::Unimplemented => NodesError::Unsupported,
        Error::Throttled => NodesError::Throttled,
        Error::SessionExpired | Error::AuthFailed | Error::ClientClosed => NodesError::SessionEnded,
        Error::BadArguments(_)
        | Error::NotEmpty
        | Error::NoChildrenForEphemerals
        | Error::InvalidAcl
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::RuntimeInconsistent
        | Error::ReconfigDisabled
        | Error::MarshallingError => NodesError::Refused(Arc::new(error)),
        // A moved session's request was refused on the old connection, but an earlier copy of it
        // may have passed. So the outcome is unknown, as for every error that is not listed.
        error => NodesError::Unknown(Arc::new(error)),
    }
}

/// Classifies an error of opening a session. Errors that a retry cannot fix are refusals.
fn refusal_of_session(error: Error) -> NodesError {
    match error {
        Error::BadArguments(_) | Error::AuthFailed => NodesError::Refused(Arc::new(error)),
        error => NodesError::Unknown(Arc::new(error)),
    }
}
