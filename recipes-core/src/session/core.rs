//! What a session of the service consists of, for the locks above it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{AcquireError, QueryError};
use crate::rules::delay::Contact;
use crate::session::cleanup::Cleanup;
use crate::session::epoch::{Epoch, Link};
use crate::session::health;
use crate::session::options::SessionOptions;
use crate::session::phase::Phase;
use crate::session::session_task::SessionTask;
use crate::store::Store;
use crate::store::nodes::NodesError;
use crate::telemetry;

/// A session of the service, which outlives the sessions of the store. It knows no locks.
pub(crate) struct SessionCore {
    pub(crate) options: SessionOptions,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cleanup: Cleanup,
    phase: watch::Receiver<Phase>,
    close: watch::Sender<bool>,
}

impl SessionCore {
    /// Starts a session on a store; must be called on a tokio runtime.
    pub(crate) fn start(store: Arc<dyn Store>, options: SessionOptions) -> Self {
        let (phase_sender, phase) = watch::channel(Phase::Connecting);
        let (close, close_asked) = watch::channel(false);
        let cleanup = Cleanup::start(phase.clone());
        telemetry::describe();
        let patience = options.connect_timeout;
        let task = SessionTask::new(
            Arc::clone(&store),
            phase_sender,
            close_asked,
            cleanup.clone(),
            patience,
            options.address.clone(),
        );
        let counted = health::count(phase.clone());
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = task.run() => {}
                () = counted => {}
            }
        });
        Self {
            options,
            store,
            cleanup,
            phase,
            close,
        }
    }

    /// Waits for an open epoch.
    pub(crate) async fn open_epoch(&self, path: &str) -> Result<Arc<Epoch>, AcquireError> {
        let mut phase = self.phase.clone();
        loop {
            match &*phase.borrow_and_update() {
                Phase::Open(epoch) if !matches!(epoch.link(), Link::Ended(_)) => {
                    return Ok(Arc::clone(epoch));
                }
                // An open epoch that is over: the session task is about to publish the next phase.
                phase => phase.refusal(path).map_or(Ok(()), Err)?,
            }
            Self::next_phase(&mut phase, path).await?;
        }
    }

    /// Completes when no epoch will be available any more.
    pub(crate) async fn over(&self, path: &str) -> AcquireError {
        let mut phase = self.phase.clone();
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

    /// Whether the store answers, and with which error it did not.
    pub(crate) fn contact(&self) -> (Contact, Option<NodesError>) {
        let Some(epoch) = self.phase.borrow().epoch() else {
            return (Contact::NoSession, None);
        };
        let silence = epoch.silence();
        let lasts = silence.lasts(Instant::now());
        let contact = match (epoch.link(), epoch.quarantined()) {
            (Link::Connected(_), Some(left)) => Contact::Quarantined {
                left,
                silence: lasts,
            },
            (Link::Connected(_), None) => Contact::Up(lasts),
            (Link::Disconnected, _) => Contact::Lost(lasts.unwrap_or_default()),
            (Link::Ended(_), _) => Contact::NoSession,
        };
        let trouble = epoch.nodes().ok().and_then(|it| it.trouble());
        (contact, trouble.or_else(|| silence.error()))
    }

    /// Until when the store may keep nodes of sessions that are over, if that is to come.
    pub(crate) fn in_doubt_until(&self) -> Option<Instant> {
        let nodes = self.phase.borrow().epoch()?.nodes().ok()?;
        nodes.in_doubt_until().filter(|it| *it > Instant::now())
    }

    /// Waits for the next phase.
    async fn next_phase(
        phase: &mut watch::Receiver<Phase>,
        path: &str,
    ) -> Result<(), AcquireError> {
        // An error means that the session task is gone with its runtime.
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
        self.ask(read).await.map_err(|unanswered| match unanswered {
            Unanswered::Closed => QueryError::SessionClosed {
                path: path.to_owned(),
            },
            Unanswered::Failed(source) => QueryError::failed(path, source),
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
        self.options.connect_timeout
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Asks for the session's close; the session task is gone already if that has no effect.
    pub(crate) fn close(&self) {
        let _ = self.close.send(true);
    }
}

impl fmt::Debug for SessionCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionCore").finish_non_exhaustive()
    }
}

/// Why [`SessionCore::ask`] has no good answer.
pub(crate) enum Unanswered {
    /// The session was closed or has ended.
    Closed,
    /// The store refused or did not answer.
    Failed(NodesError),
}
