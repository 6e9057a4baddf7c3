//! The operations of a store that a lock needs.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::Guarantee;
use crate::store::fence::Fence;
pub use crate::store::refusals::{MultiError, NodesError};

/// The answer to a request that was sent when the method was called.
#[doc(hidden)]
pub type Reply<'a, T, E = NodesError> = BoxFuture<'a, Result<T, E>>;

/// A one-shot watch; completes with what happened to the node.
///
/// Dropping it removes the watch, on the server too.
#[doc(hidden)]
pub type NodeWatch = BoxFuture<'static, NodeEvent>;

/// Names of the children of a node.
#[doc(hidden)]
pub type Listing = Result<Vec<String>, NodesError>;

/// Lists the children of these nodes, with a request for each.
#[doc(hidden)]
pub fn list_each<'a, N: Nodes + ?Sized>(nodes: &'a N, paths: &[&str]) -> Reply<'a, Vec<Listing>> {
    let mut unanswered: Vec<_> = paths.iter().map(|path| nodes.list(path)).collect();
    async move {
        let mut listings = Vec::with_capacity(unanswered.len());
        // Answers arrive in the order of the requests, so waiting for the last wakes us once.
        while let Some(listing) = unanswered.pop() {
            listings.push(listing.await);
        }
        listings.reverse();
        Ok(listings)
    }
    .boxed()
}

/// Has a quorum commit a transaction that changes nothing. An answer proves two things: it came
/// from the leader of a quorum, and everything that this session sent before has been committed or
/// never will be.
///
/// A `sync` would prove neither: a deposed leader that has not noticed answers it (ZOOKEEPER-1675).
/// A check is a transaction even if the node does not exist or may not be read.
#[doc(hidden)]
pub fn commit<'a>(nodes: &'a dyn Nodes, path: &str) -> Reply<'a, ()> {
    let check = NodeOp::Check {
        path: path.to_owned(),
        version: None,
    };
    let checked = nodes.multi(vec![check]);
    checked
        .map(|checked| match checked.map_err(|error| error.source) {
            Ok(_) | Err(NodesError::NoNode | NodesError::NoAuth) => Ok(()),
            Err(error) => Err(error),
        })
        .boxed()
}

/// The operations of one store session.
///
/// A request is sent when the method is called, not when its future is polled. Requests of one
/// session take effect in the order of the calls, so a create and a list can leave together.
/// Dropping a future forgets the reply, not the request. Dropping the last handle closes the
/// session, which removes its ephemeral nodes.
#[doc(hidden)]
pub trait Nodes: fmt::Debug + Send + Sync + 'static {
    /// The id of the session; the `ephemeral_owner` of the nodes that it creates.
    fn session(&self) -> i64;

    /// The session timeout that counts now; `None` if sessions never expire by time. It may become
    /// shorter, of which [`relied_on_by`](Self::relied_on_by) has word.
    fn session_timeout(&self) -> Option<Duration>;

    /// Who counts on the session timeout. Called once, soon after the session was opened.
    fn relied_on_by(&self, reliant: Weak<dyn Reliant>) {
        drop(reliant);
    }

    /// What the store promises, as far as is known now.
    fn guarantee(&self) -> Guarantee {
        Guarantee::Consensus
    }

    /// Before this time the store may not know of somebody who holds a lock, so none is granted.
    /// `None` if it knows of all.
    fn grants_from(&self) -> Option<Instant> {
        None
    }

    /// Why the store does not answer, if its own word is known: of a server that refuses what it is asked, or
    /// to which there is no connection.
    fn trouble(&self) -> Option<NodesError> {
        None
    }

    /// Grows whenever the store may have forgotten its last writes, before the connection on which it has
    /// is told of. Nodes that were deleted may be there again then.
    fn runs(&self) -> u64 {
        0
    }

    /// Until this time the store may keep nodes of sessions that are over: nobody has looked at it for a while, and
    /// its own clock does not count all of that. `None` if it knows which sessions live.
    fn in_doubt_until(&self) -> Option<Instant> {
        None
    }

    /// The session has learned, from whatever answer, that its own nodes are gone whose paths begin so.
    /// A store that may forget that must not bring them back under it.
    fn gone(&self, path: &str) {
        let _ = path;
    }

    /// A statement that fails unless these nodes, with the transactions that created them, exist, and
    /// that keeps them until the transaction around it is over. `None` if the store is no database.
    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        let _ = held;
        None
    }

    /// Changes of the connection from now on, after its present state unless that is `Connected`.
    /// If some changes were missed, the latest comes next. Ends after [`Connection::Ended`].
    fn connection(&self) -> BoxStream<'static, Connection>;

    /// Creates one node.
    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created>;

    /// Deletes a node, whatever its version.
    fn delete(&self, path: &str) -> Reply<'static, ()>;

    /// Names of the children, in no particular order.
    fn list(&self, path: &str) -> Reply<'_, Vec<String>>;

    /// Names of the children of several nodes, each as from [`list`](Self::list). The outer error
    /// is that of the whole request.
    fn list_all(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        list_each(self, paths)
    }

    /// As [`list_all`](Self::list_all), right after a create in each of the directories. A store may
    /// send along what the contender will watch next.
    fn list_entered(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        self.list_all(paths)
    }

    /// As [`list`](Self::list), for the contender that has a node of this name there. A store may
    /// send along what it will watch next.
    fn list_again(&self, path: &str, own: &str) -> Reply<'_, Vec<String>> {
        let _ = own;
        self.list(path)
    }

    /// Requests that are sent while the value lives may leave together. It must be dropped before an
    /// answer is awaited.
    fn together(&self) -> Box<dyn Send + '_> {
        Box::new(())
    }

    /// Data and stat of a node; `None` if it does not exist.
    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>>;

    /// Stat of a node; `None` if it does not exist. Some stores refuse that of a node that may not
    /// be read, as ZooKeeper does since 3.8.4 and 3.9.2.
    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>>;

    /// Data and stat of a node, and a watch on its deletion and data. `None` and no watch if it
    /// does not exist.
    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>>;

    /// Those of these sessions that the store has not heard from for more than half of their timeout, and for how long.
    /// None if it does not tell.
    fn silent<'a>(&'a self, sessions: &'a [i64]) -> Reply<'a, Vec<(i64, Duration)>> {
        let _ = sessions;
        future::ready(Ok(Vec::new())).boxed()
    }

    /// Passes through a server that takes itself for the leader, and proves no more than that. A
    /// deposed leader that has not noticed answers too.
    fn sync(&self, path: &str) -> Reply<'_, ()>;

    /// Carries out all operations or none.
    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError>;
}

/// Who counts on the timeout of a session, for its store.
#[doc(hidden)]
pub trait Reliant: fmt::Debug + Send + Sync {
    /// Whether a lock is held.
    fn is_held(&self) -> bool;

    /// From now on the store may end the session after this time of silence, if that is shorter than
    /// before. Called before a request is sent that may have this effect.
    fn shortened(&self, timeout: Duration);
}

/// The changes of a connection whose present state is in a channel: see [`Nodes::connection`].
#[doc(hidden)]
#[must_use]
pub fn connection_changes(mut link: watch::Receiver<Connection>) -> BoxStream<'static, Connection> {
    // The caller assumes that a session is connected until it is notified otherwise.
    if *link.borrow() != Connection::Connected {
        link.mark_changed();
    }
    let next = |link: Option<watch::Receiver<Connection>>| async move {
        let mut link = link?;
        link.changed().await.ok()?;
        let connection = *link.borrow_and_update();
        let more = !matches!(connection, Connection::Ended(_));
        Some((connection, more.then_some(link)))
    };
    stream::unfold(Some(link), next).boxed()
}

/// State of the connection of one session.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connection {
    /// Requests are answered.
    Connected,
    /// The session may still be alive; requests wait for the connection or fail.
    Disconnected,
    /// The session is over and its ephemeral nodes are gone or will be.
    Ended(EndReason),
}

/// Why a session ended.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The store, or the client on its behalf, expired it.
    Expired,
    /// It was closed.
    Closed,
    /// The store refused its credentials.
    AuthFailed,
}

/// What a watch saw.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeEvent {
    /// The node was deleted.
    Deleted,
    /// The node was deleted, and the store had numbered none of the siblings that were left before it. So
    /// nothing was ahead of it. A store need not say so.
    DeletedAsFirst,
    /// The node still exists and its data changed.
    Changed,
    /// The session ended; nothing is known about the node.
    SessionEnded,
}

/// How a node is created.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeMode {
    /// Outlives the session.
    Persistent,
    /// Outlives the session; the server removes it some time after its last child is gone.
    Container,
    /// Removed with the session.
    Ephemeral,
    /// Removed with the session; the server appends ten digits that count the parent's children.
    EphemeralSequential,
}

/// A node to create.
///
/// Who may use it is a matter between the store and the service: the store decides by the path, and
/// by whether the node is a parent, which only [`Persistent`](NodeMode::Persistent) and
/// [`Container`](NodeMode::Container) nodes are.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Full path, without the sequence that the server appends.
    pub path: String,
    /// Its data.
    pub data: Arc<[u8]>,
    /// How long it lives, and whether the server completes its name.
    pub mode: NodeMode,
}

/// A node that was created.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Full path, with the sequence.
    pub path: String,
    /// Transaction that created it; `None` if the server did not return it.
    pub czxid: Option<i64>,
}

/// What the store knows about a node besides its data.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeStat {
    /// Transaction that created the node.
    pub czxid: i64,
    /// Transaction that last changed its data.
    pub mzxid: i64,
    /// Number of changes of its data.
    pub version: i32,
    /// Session that owns it, 0 unless it is ephemeral.
    pub ephemeral_owner: i64,
    /// Creation time by the store's wall clock, milliseconds since the Unix epoch.
    pub ctime_ms: i64,
    /// Number of children.
    pub children: i32,
    /// Number of children created and deleted; wraps.
    pub cversion: i32,
    /// Transaction that last changed the children, or created the node.
    pub pzxid: i64,
}

impl NodeStat {
    /// Makes a stat, for stores.
    #[doc(hidden)]
    #[must_use]
    pub fn new(czxid: i64, mzxid: i64, version: i32, owner: i64, ctime_ms: i64) -> Self {
        Self {
            czxid,
            mzxid,
            version,
            ephemeral_owner: owner,
            ctime_ms,
            children: 0,
            cversion: 0,
            pzxid: czxid,
        }
    }
}

/// One operation of a [`Nodes::multi`].
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOp {
    /// Create a node.
    Create(NewNode),
    /// Delete a node that has this version, or any.
    Delete {
        /// Full path.
        path: String,
        /// Expected version.
        version: Option<i32>,
    },
    /// Replace the data of a node that has this version, or any.
    Set {
        /// Full path.
        path: String,
        /// New data.
        data: Vec<u8>,
        /// Expected version.
        version: Option<i32>,
    },
    /// Require that a node exists, with this version or any.
    Check {
        /// Full path.
        path: String,
        /// Expected version.
        version: Option<i32>,
    },
}

impl NodeOp {
    /// The path of its node.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create(node) => &node.path,
            Self::Delete { path, .. } | Self::Set { path, .. } | Self::Check { path, .. } => path,
        }
    }
}

/// Result of one operation of a [`Nodes::multi`].
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOpDone {
    /// [`NodeOp::Create`].
    Created(Created),
    /// [`NodeOp::Delete`].
    Deleted,
    /// [`NodeOp::Set`].
    Set(NodeStat),
    /// [`NodeOp::Check`].
    Checked,
}
