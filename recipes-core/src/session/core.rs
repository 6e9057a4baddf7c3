//! A session of the service, which outlives the sessions of the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::error::{AcquireError, QueryError};
use crate::lock::table::PathTable;
use crate::session::cleanup::Cleanup;
use crate::session::epoch::{Epoch, Link};
use crate::session::options::SessionOptions;
use crate::session::session_task::Keeper;
use crate::session::watch_budget::{WatchBudget, WatchPermit};
use crate::store::Store;
use crate::store::nodes::{NodeStat, NodesError};
use crate::store::retry;
use crate::telemetry;

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
/// let session = recipes_testing::MemoryEnsemble::new().session();
/// // ... take locks ...
/// session.close().await;
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) options: SessionOptions,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) paths: PathTable,
    pub(crate) cleanup: Cleanup,
    directory_watches: WatchBudget,
    phase: watch::Receiver<Phase>,
    close: watch::Sender<bool>,
}

/// What a session is doing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Opening a store session, the first or another.
    Connecting,
    /// A store session is open.
    Open(Arc<Epoch>),
    /// Being closed; only the clean-up still runs.
    Closing(Arc<Epoch>),
    /// Closed, by us.
    Closed,
    /// Over for good; no other store session will be opened.
    Ended(NodesError),
}

impl Phase {
    /// The epoch in which nodes can still be deleted.
    pub(crate) fn epoch(&self) -> Option<Arc<Epoch>> {
        match self {
            Self::Open(epoch) | Self::Closing(epoch) => Some(Arc::clone(epoch)),
            Self::Connecting | Self::Closed | Self::Ended(_) => None,
        }
    }

    /// The error of an acquire, if no epoch will be available any more.
    fn refusal(&self, path: &str) -> Option<AcquireError> {
        let path = || path.to_owned();
        match self {
            Self::Connecting | Self::Open(_) => None,
            Self::Ended(NodesError::StoreForgot { seen, now }) => Some(AcquireError::StoreForgot {
                path: path(),
                seen: *seen,
                now: *now,
            }),
            Self::Ended(_) => Some(AcquireError::SessionEnded { path: path() }),
            Self::Closing(_) | Self::Closed => Some(AcquireError::SessionClosed { path: path() }),
        }
    }

    /// Whether nodes can still be deleted in this epoch.
    pub(crate) fn serves(&self, epoch: &Epoch) -> bool {
        self.epoch().is_some_and(|it| it.number == epoch.number)
    }
}

/// How a [`Session`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionHealth {
    /// No store session is open; one is being opened. Acquires wait.
    Connecting,
    /// Open and connected.
    Connected,
    /// Open and disconnected. Guards are suspended, and lost if this lasts.
    Disconnected,
    /// Closed, or ended for good: every call fails.
    Closed,
    /// The store's transaction numbers went back, so it has lost data. This session has ended and
    /// grants nothing more, because its fencing tokens would be lower than earlier ones. Make sure
    /// that resources that refuse old tokens accept new ones, then open another session.
    StoreForgot,
}

impl Session {
    /// Starts a session on a store; must be called on a tokio runtime.
    pub(crate) fn start(store: Arc<dyn Store>, options: SessionOptions) -> Self {
        let (phase_sender, phase) = watch::channel(Phase::Connecting);
        let (close, close_asked) = watch::channel(false);
        let cleanup = Cleanup::start(phase.clone());
        telemetry::describe();
        let (traits, patience) = (store.traits(), options.connect_timeout);
        let keeper = Keeper::new(
            Arc::clone(&store),
            phase_sender,
            close_asked,
            cleanup.clone(),
            patience,
        );
        tokio::spawn(keeper.run());
        let paths = PathTable::default();
        let shared = Shared {
            options,
            store,
            paths,
            cleanup,
            directory_watches: WatchBudget::of_directories(&traits),
            phase,
            close,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Reserves room in the watch budget for a lock directory. `None` if the budget is used up, or
    /// if a watch on a directory would prove nothing.
    pub(crate) fn may_watch(&self, directory: &str) -> Option<WatchPermit> {
        self.shared.directory_watches.take(directory)
    }

    /// How the session is doing now.
    #[must_use]
    pub fn health(&self) -> SessionHealth {
        health(&self.shared.phase)
    }

    /// Follows the health of the session from now on. Does not keep the session open.
    #[must_use]
    pub fn watch_health(&self) -> HealthWatcher {
        HealthWatcher {
            phase: self.shared.phase.clone(),
            seen: self.health(),
        }
    }

    /// Counts the store sessions that were opened: 1 for the first, 0 while none is open.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared
            .phase
            .borrow()
            .epoch()
            .map_or(0, |epoch| epoch.number)
    }

    /// The id of the present store session, as servers log it, `None` while there is none.
    #[must_use]
    pub fn session_id(&self) -> Option<i64> {
        self.shared
            .phase
            .borrow()
            .epoch()
            .map(|epoch| epoch.session_id)
    }

    /// Reads a node's data and stat; `None` if it does not exist.
    ///
    /// # Errors
    /// [`QueryError::SessionClosed`] if the session is closed or has ended; [`QueryError::Failed`]
    /// if the store refuses, or does not answer within the session's connect timeout.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn read(&self, path: &str) -> Result<Option<(Vec<u8>, NodeStat)>, QueryError> {
        self.query(path, async |epoch| {
            let nodes = epoch.nodes()?;
            retry::persist(|| nodes.read(path)).await
        })
        .await
    }

    /// Closes the session. Contenders end with [`AcquireError::SessionClosed`], and live guards are
    /// lost. Pending clean-ups are finished within the connect timeout, and the store removes
    /// the remaining nodes. Closing again does nothing.
    ///
    /// # Cancel safety
    /// The close goes on in the background if the future is dropped.
    pub async fn close(&self) {
        // Without a receiver the keeper is gone already.
        let _ = self.shared.close.send(true);
        let mut phase = self.shared.phase.clone();
        let is_over = |phase: &Phase| matches!(phase, Phase::Closed | Phase::Ended(_));
        drop(phase.wait_for(is_over).await);
    }

    /// Waits for an open epoch.
    pub(crate) async fn open_epoch(&self, path: &str) -> Result<Arc<Epoch>, AcquireError> {
        let mut phase = self.shared.phase.clone();
        loop {
            match &*phase.borrow_and_update() {
                Phase::Open(epoch) if !matches!(epoch.link(), Link::Ended(_)) => {
                    return Ok(Arc::clone(epoch));
                }
                // An open epoch that is over: its keeper is about to publish the next phase.
                phase => phase.refusal(path).map_or(Ok(()), Err)?,
            }
            Self::next_phase(&mut phase, path).await?;
        }
    }

    /// Completes when no epoch will be available any more.
    pub(crate) async fn over(&self, path: &str) -> AcquireError {
        let mut phase = self.shared.phase.clone();
        loop {
            let refusal = phase.borrow_and_update().refusal(path);
            if let Some(error) = refusal {
                return error;
            }
            if let Err(error) = Self::next_phase(&mut phase, path).await {
                return error;
            }
        }
    }

    /// Waits for the next phase.
    async fn next_phase(
        phase: &mut watch::Receiver<Phase>,
        path: &str,
    ) -> Result<(), AcquireError> {
        // An error means that the keeper is gone with its runtime.
        let closed = |_| AcquireError::SessionClosed {
            path: path.to_owned(),
        };
        phase.changed().await.map_err(closed)
    }

    /// Runs reads of one epoch, for at most the connect timeout.
    pub(crate) async fn query<T>(
        &self,
        path: &str,
        read: impl AsyncFnOnce(Arc<Epoch>) -> Result<T, NodesError>,
    ) -> Result<T, QueryError> {
        let path = || path.to_owned();
        self.ask(read).await.map_err(|unanswered| match unanswered {
            Unanswered::Closed => QueryError::SessionClosed { path: path() },
            Unanswered::Failed(source) => QueryError::Failed {
                path: path(),
                source,
            },
        })
    }

    /// Runs requests of one epoch, for at most the connect timeout.
    pub(crate) async fn ask<T>(
        &self,
        requests: impl AsyncFnOnce(Arc<Epoch>) -> Result<T, NodesError>,
    ) -> Result<T, Unanswered> {
        let answer = async {
            let epoch = self.open_epoch("").await.map_err(|_| Unanswered::Closed)?;
            tokio::select! {
                biased;
                _ = epoch.ended() => Err(Unanswered::Failed(NodesError::SessionEnded)),
                answer = requests(Arc::clone(&epoch)) => answer.map_err(Unanswered::Failed),
            }
        };
        let failed = |elapsed| Unanswered::Failed(NodesError::Unknown(Arc::new(elapsed)));
        let answer = tokio::time::timeout(self.connect_timeout(), answer).await;
        answer.map_err(failed)?
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.shared.options.connect_timeout
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.shared.phase.clone()
    }
}

/// Why [`Session::ask`] has no good answer.
pub(crate) enum Unanswered {
    /// The session was closed or has ended.
    Closed,
    /// The store refused or did not answer.
    Failed(NodesError),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, health) = (self.epoch(), self.health());
        f.debug_struct("Session")
            .field("epoch", &epoch)
            .field("health", &health)
            .finish_non_exhaustive()
    }
}

fn health(phase: &watch::Receiver<Phase>) -> SessionHealth {
    match &*phase.borrow() {
        Phase::Ended(NodesError::StoreForgot { .. }) => SessionHealth::StoreForgot,
        // The keeper is gone, with its runtime or at its end.
        _ if phase.has_changed().is_err() => SessionHealth::Closed,
        Phase::Connecting => SessionHealth::Connecting,
        Phase::Open(epoch) => match epoch.link() {
            Link::Connected(_) => SessionHealth::Connected,
            Link::Disconnected => SessionHealth::Disconnected,
            Link::Ended(_) => SessionHealth::Connecting,
        },
        Phase::Closing(_) | Phase::Closed | Phase::Ended(_) => SessionHealth::Closed,
    }
}

/// Follows the health of a [`Session`].
#[derive(Debug)]
pub struct HealthWatcher {
    phase: watch::Receiver<Phase>,
    seen: SessionHealth,
}

impl HealthWatcher {
    /// Waits until the health differs from what this watcher saw last. It may miss short blips in
    /// between. Never completes after [`SessionHealth::Closed`] or [`SessionHealth::StoreForgot`].
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn changed(&mut self) -> SessionHealth {
        if matches!(
            self.seen,
            SessionHealth::Closed | SessionHealth::StoreForgot
        ) {
            std::future::pending::<()>().await;
        }
        loop {
            let epoch = self.phase.borrow_and_update().epoch();
            let link = epoch.as_ref().map(|epoch| epoch.link());
            let now = health(&self.phase);
            if now != self.seen {
                self.seen = now;
                return now;
            }
            let link_changed = async {
                match epoch.as_ref().zip(link) {
                    Some((epoch, link)) => epoch.link_differs(link).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // An error means that the session is gone, which `health` reports.
                _ = self.phase.changed() => {}
                () = link_changed => {}
            }
        }
    }
}
