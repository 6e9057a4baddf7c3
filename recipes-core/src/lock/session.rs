//! The handle of a session: its core, and the table of the locks that are taken through it.

use std::fmt;
use std::sync::Arc;

use crate::error::{ConnectError, Error, QueryError};
use crate::lock::table::PathTable;
use crate::names::session_id::SessionId;
use crate::session::core::SessionCore;
use crate::session::epoch::Epoch;
use crate::session::health::{self, HealthWatcher, SessionHealth};
use crate::session::options::SessionOptions;
use crate::session::phase::Phase;
use crate::store::nodes::NodeStat;
use crate::store::retry;
use crate::store::{Guarantee, Store};

/// A connection to a store, through which locks are taken.
///
/// Cheap to clone; all clones are one session, and it is the same type for every store. It outlives
/// sessions of the store: if the store expires one, the session opens another (the next *epoch*).
/// Locks that were held are then lost, and contenders queue again within their deadlines.
///
/// # Guarantees
/// - When the last handle, lock and guard are dropped, the store session is closed and all its
///   nodes are removed. Call [`close`](Self::close) before `main` ends: if the runtime is shut down
///   first, the nodes stay until the store session times out.
/// - Once the runtime that opened the session is gone, calls fail as after a close. None hangs.
///
/// # Examples
/// A session comes from its store: from `ZooKeeper::connect`, or in tests from a double.
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::MemoryEnsemble;
///
/// let session = MemoryEnsemble::new().session();
/// // ... take locks ...
/// session.close().await;
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    core: SessionCore,
    paths: PathTable,
}

impl Session {
    /// Starts a session on a store; must be called on a tokio runtime.
    pub(crate) fn start(store: Arc<dyn Store>, options: SessionOptions) -> Self {
        let shared = Shared {
            core: SessionCore::start(store, options),
            paths: PathTable::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn core(&self) -> &SessionCore {
        &self.shared.core
    }

    /// The locks that are taken through this session.
    pub(crate) fn paths(&self) -> &PathTable {
        &self.shared.paths
    }

    /// How the session is doing now.
    #[must_use]
    pub fn health(&self) -> SessionHealth {
        health::health(&self.core().phase())
    }

    /// Follows the health of the session from now on. Does not keep the session open.
    #[must_use]
    pub fn watch_health(&self) -> HealthWatcher {
        HealthWatcher::new(self.core().phase())
    }

    /// Counts the store sessions that were opened: 1 for the first, 0 while none is open.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.core()
            .phase()
            .borrow()
            .epoch()
            .map_or(0, |epoch| epoch.number)
    }

    /// The id of the present store session, as servers log it, `None` while there is none.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.core()
            .phase()
            .borrow()
            .epoch()
            .map(|epoch| epoch.session_id)
    }

    /// What the store promises, found out when the session was opened or last connected. Until then,
    /// and after its end, [`Guarantee::BestEffort`].
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        let epoch = self.core().phase().borrow().epoch();
        let nodes = epoch.and_then(|epoch| epoch.nodes().ok());
        nodes.map_or(Guarantee::BestEffort, |nodes| nodes.guarantee())
    }

    /// Reads a node's data and stat; `None` if it does not exist. In an outage that takes as long
    /// as the session's connect timeout, 15 s unless it is set; `tokio::time::timeout` makes it
    /// shorter.
    ///
    /// A server may be behind others. It shows at least what this session has seen and written, so
    /// the holder of a lock sees what earlier holders wrote under it if the lock and the data are in
    /// this session's ensemble.
    ///
    /// # Errors
    /// [`QueryError::SessionClosed`] if the session is closed or has ended; another [`QueryError`]
    /// if the store refuses, or does not answer within the session's connect timeout.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn read(&self, path: &str) -> Result<Option<(Vec<u8>, NodeStat)>, Error> {
        Ok(self.node(path).await?)
    }

    pub(crate) async fn node(&self, path: &str) -> Result<Option<(Vec<u8>, NodeStat)>, QueryError> {
        let read = async |epoch: Arc<Epoch>| {
            let nodes = epoch.nodes()?;
            retry::persist(|| nodes.read(path)).await
        };
        self.core().query(path, read).await
    }

    /// Closes the session. Contenders end with
    /// [`AcquireError::SessionClosed`](crate::AcquireError::SessionClosed), and live guards are
    /// lost. Pending clean-ups are finished within the connect timeout, and the store removes the
    /// remaining nodes. Closing again does nothing.
    ///
    /// In an outage, it waits at most 2 s for the connection to come back. Nodes that remain then
    /// stay until the store expires the session; a warning in the log says how many.
    ///
    /// # Cancel safety
    /// The close goes on in the background if the future is dropped.
    pub async fn close(&self) {
        self.core().close();
        self.over().await;
    }

    /// Completes when the session is closed or has ended, and its clean-up is done. Does not keep the session open.
    #[doc(hidden)]
    pub fn over(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut phase = self.core().phase();
        async move {
            let is_over = |phase: &Phase| matches!(phase, Phase::Closed | Phase::Ended(_));
            drop(phase.wait_for(is_over).await);
        }
    }

    /// Whether nothing else keeps the session open: no other handle, no lock, no guard.
    #[doc(hidden)]
    #[must_use]
    pub fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Session");
        if let Some(id) = self.session_id() {
            debug.field("id", &SessionId(id));
        }
        debug
            .field("epoch", &self.epoch())
            .field("health", &self.health())
            .finish()
    }
}

impl SessionOptions {
    /// Opens a session on a store, on the current tokio runtime. Errors name the store by
    /// `address`, which must contain no secrets.
    ///
    /// # Errors
    /// - [`ConfigError`](crate::ConfigError) for options that cannot be used, before anything is sent.
    /// - [`ConnectError::TimedOut`] after the connect timeout, and the few seconds that it takes to
    ///   find out why.
    /// - [`ConnectError::Refused`] for a store that refuses the session for good.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    #[doc(hidden)]
    pub async fn open(mut self, store: Arc<dyn Store>, address: &str) -> Result<Session, Error> {
        self.check(&store.traits())?;
        self.address = Some(address.into());
        let waited = self.connect_timeout;
        let session = Session::start(Arc::clone(&store), self);
        let mut phase = session.core().phase();
        let opened = phase.wait_for(|phase| !matches!(phase, Phase::Connecting));
        let phase = match tokio::time::timeout(waited, opened).await {
            Ok(Ok(phase)) => phase.clone(),
            Ok(Err(_)) | Err(_) => Phase::Connecting,
        };
        let address = address.to_owned();
        match phase {
            Phase::Open(_) => Ok(session),
            Phase::Ended(source) => Err(ConnectError::Refused { address, source }.into()),
            Phase::Connecting | Phase::Closing(_) | Phase::Closed => {
                // Before the diagnosis: nothing of it is left while that runs.
                drop(session);
                let source = store.diagnose().await;
                let late = ConnectError::TimedOut {
                    address,
                    waited,
                    source,
                };
                Err(late.into())
            }
        }
    }

    /// Starts a session on a store, without waiting for it.
    ///
    /// # Panics
    /// For options that cannot be used, and outside a tokio runtime.
    #[doc(hidden)]
    #[must_use]
    pub fn start(self, store: Arc<dyn Store>) -> Session {
        if let Err(flaw) = self.check(&store.traits()) {
            panic!("session options cannot be used: {flaw}");
        }
        Session::start(store, self)
    }
}
