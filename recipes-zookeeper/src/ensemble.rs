//! The servers of a connect string, and where sessions on them come from.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{self, BoxFuture};
use futures::{FutureExt, TryFutureExt};
use recipes_core::{ConnectError, Nodes, NodesError, Session, SessionOptions, Store, Traits};
use zookeeper_client::Client;

use crate::answers::refusal_of_session;
use crate::builder::ZooKeeperBuilder;
use crate::client::{ClientNodes, NodeOptions};
use crate::diagnosis;
use crate::link::Link;
use crate::no_delay::NoDelay;

/// The longest session timeout. The protocol counts milliseconds in 31 bits, and the client
/// truncates a longer one.
#[doc(hidden)]
pub const SESSION_TIMEOUT_MAX: Duration = Duration::from_millis(0x7fff_ffff);

/// What the session has to know about ZooKeeper, through a client of ours.
#[doc(hidden)]
pub const TRAITS: Traits = Traits {
    session_timeout_max: SESSION_TIMEOUT_MAX,
    reopens: true,
    closes: true,
    pings_rarely: false,
    watches_directories: true,
    // After a reconnect the client sets its watches again. If their paths take more than this
    // together, it fails to, again and again until the session expires (zookeeper-client 0.11.2:
    // the requests that it splits them into share one number).
    watch_bytes: 128 * 1024,
    path_prefix_bytes: 0,
};

/// Apache ZooKeeper as the store of locks.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::ConnectError> {
/// use recipes_zookeeper::ZooKeeper;
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
    pub async fn connect(connect_string: &str) -> Result<Session, ConnectError> {
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
    /// of one. Nor can the session learn that its servers grant a shorter session timeout at a
    /// reconnect, after an operator has lowered their limit: its guards would be trusted for too long.
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
        Traits {
            path_prefix_bytes: self.link.connect_string.chroot().len(),
            ..TRAITS
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = self.link.open().map_ok(|client| {
            self.no_delay.apply();
            let servers = (Arc::clone(&self.link), self.no_delay.clone());
            Arc::new(ClientNodes::new(client, self.nodes.clone(), Some(servers))) as Arc<dyn Nodes>
        });
        opened.map_err(refusal_of_session).boxed()
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
        let path_prefix_bytes = match client.path() {
            "/" => 0,
            chroot => chroot.len(),
        };
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
                path_prefix_bytes,
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
            Some(client) => {
                let nodes = ClientNodes::new(client, NodeOptions::default(), None);
                Ok(Arc::new(nodes) as Arc<dyn Nodes>)
            }
            None => Err(NodesError::SessionEnded),
        };
        future::ready(opened).boxed()
    }
}
