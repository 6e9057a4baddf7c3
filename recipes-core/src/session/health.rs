//! How a session is doing, for its users.

use std::fmt;

use tokio::sync::watch;

use crate::session::epoch::Link;
use crate::session::phase::Phase;
use crate::store::nodes::NodesError;
use crate::telemetry::CountedSession;

/// How a [`Session`](crate::Session) is doing.
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

pub(crate) fn health(phase: &watch::Receiver<Phase>) -> SessionHealth {
    match &*phase.borrow() {
        Phase::Ended(NodesError::StoreForgot { .. }) => SessionHealth::StoreForgot,
        // The session task is gone, with its runtime or at its end.
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

/// Follows the health of a [`Session`](crate::Session).
pub struct HealthWatcher {
    phase: watch::Receiver<Phase>,
    seen: SessionHealth,
}

impl HealthWatcher {
    pub(crate) fn new(phase: watch::Receiver<Phase>) -> Self {
        let seen = health(&phase);
        Self { phase, seen }
    }

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

/// Keeps a session in the gauge of sessions, under its health, until the future is dropped.
pub(crate) async fn count(phase: watch::Receiver<Phase>) {
    let mut watcher = HealthWatcher::new(phase);
    let mut counted = CountedSession::default();
    // Ends by being dropped: after the last health, `changed` never completes.
    loop {
        counted.set(match watcher.seen {
            SessionHealth::Connecting => Some("connecting"),
            SessionHealth::Connected => Some("connected"),
            SessionHealth::Disconnected => Some("disconnected"),
            SessionHealth::Closed | SessionHealth::StoreForgot => None,
        });
        watcher.changed().await;
    }
}

impl fmt::Debug for HealthWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthWatcher")
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
