//! The servers of a connect string, and where sessions on them come from.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use futures::{FutureExt, TryFutureExt};
use recipes_core::{Error, Nodes, NodesError, Session, SessionOptions, Store, Traits};
use zookeeper_client::Client;

use crate::answers::refusal_of_session;
use crate::builder::ZooKeeperBuilder;
use crate::client::{ClientNodes, NodeOptions};
use crate::diagnosis;
use crate::keeper::Keeper;
use crate::link::Link;
use crate::no_delay::NoDelay;

/// The longest session timeout. The protocol counts milliseconds in 31 bits, and the client
/// truncates a longer one.
#[doc(hidden)]
pub const SESSION_TIMEOUT_MAX: Duration = Duration::from_millis(0x7fff_ffff);

/// Servers grant two of their ticks at least, which are seconds. The client does not connect with next to nothing.
const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// What the session has to know about ZooKeeper, through a client of ours.
#[doc(hidden)]
pub const TRAITS: Traits = Traits {
    session_timeout_min: SESSION_TIMEOUT_MIN,
    session_timeout_max: SESSION_TIMEOUT_MAX,
    reopens: true,
    closes: true,
    pings_rarely: false,
    watches_directories: true,
    keeps_directories: true,
    remembers_names: false,
};

/// Apache ZooKeeper as the store of locks.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// # use recipes_zookeeper as lock_recipes;
/// use lock_recipes::ZooKeeper;
///
/// let session = ZooKeeper::connect("zk1:2181,zk2:2181/app").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
    link: Arc<Link>,
    nodes: NodeOptions,
    no_delay: NoDelay,
}

impl ZooKeeper {
    /// Opens a session with default options on the servers of a connect string,
    /// `host:port,host:port/chroot`.
    ///
    /// The chroot must exist. If the ensemble expires the ZooKeeper session, the session opens
    /// another.
    ///
    /// # Errors
    /// As [`ZooKeeperBuilder::connect`].
    pub async fn connect(connect_string: &str) -> Result<Session, Error> {
        Self::builder().connect(connect_string).await
    }

    /// Starts with default options.
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder::default()
    }

    /// Takes locks through an existing client. Must be called on a tokio runtime.
    ///
    /// The session cannot make another client like it, so it has one epoch. After expiry every
    /// acquire fails with [`AcquireError::SessionEnded`](recipes_core::AcquireError::SessionEnded).
    ///
    /// The client does not expose its servers, so `TCP_NODELAY` is not set on its connection,
    /// unlike on those of [`connect`](Self::connect). An acquire may take two round trips instead
    /// of one. The client connects again by itself, and does not tell which session timeout the server
    /// grants then. So from its first lost connection on, guards count with 4 s at most, the least that a
    /// server grants by its defaults. Nor does it survive a reconnect if the paths that its session
    /// watches are longer than 128 KiB together: that is some 500 waiters, or more than 1,000 holders.
    #[must_use]
    pub fn from_client(client: Client) -> Session {
        SessionOptions::new().start(Arc::new(ExistingClient::new(client)))
    }

    pub(crate) fn new(link: Link, nodes: NodeOptions) -> Self {
        Self {
            no_delay: NoDelay::new(link.connect_string.servers()),
            link: Arc::new(link),
            nodes,
        }
    }
}

impl Store for ZooKeeper {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = Keeper::open(Arc::clone(&self.link), self.no_delay.clone());
        let nodes = opened.map_ok(|(kept, used)| {
            let nodes = ClientNodes::kept(kept, used, self.nodes.clone());
            Arc::new(nodes) as Arc<dyn Nodes>
        });
        nodes.map_err(refusal_of_session).boxed()
    }

    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        let diagnosed = async {
            let found = diagnosis::diagnose(&self.link.servers()).await;
            Some(Arc::new(found) as Arc<dyn StdError + Send + Sync>)
        };
        diagnosed.boxed()
    }
}

/// A client that the service made: one session, no other.
struct ExistingClient {
    traits: Traits,
    client: Mutex<Option<Client>>,
}

impl ExistingClient {
    fn new(client: Client) -> Self {
        Self {
            traits: Traits {
                reopens: false,
                // The service keeps a handle of its own.
                closes: false,
                // It may ping less often than a client of ours.
                pings_rarely: true,
                // Servers of 3.6 to 3.8 replace a persistent watch that the service may have on a
                // directory with ours (ZOOKEEPER-4466).
                watches_directories: false,
                ..TRAITS
            },
            client: Mutex::new(Some(client)),
        }
    }
}

impl fmt::Debug for ExistingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExistingClient").finish_non_exhaustive()
    }
}

impl Store for ExistingClient {
    fn traits(&self) -> Traits {
        self.traits
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match client.take() {
            Some(client) => Ok(Arc::new(ClientNodes::of_one(client)) as Arc<dyn Nodes>),
            None => Err(NodesError::SessionEnded),
        };
        future::ready(opened).boxed()
    }
}
