//! The background task of a session. It opens store sessions one after the other, keeps the
//! present one alive while it is needed, and notifies its leases when they are lost.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, future};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::clock::{Clock, Moment};
use crate::error::LostReason;
use crate::log::{Causes, SESSION, Seldom};
use crate::names::session_id::SessionId;
use crate::session::cleanup::{Cleanup, Doomed, Remaining};
use crate::session::epoch::{Epoch, Forgot, Link, Origin};
use crate::session::epoch_task::{EpochTask, Over, UNPOLLED_GRACE};
use crate::session::phase::Phase;
use crate::session::witness::HighestNumber;
use crate::store::nodes::{Connection, EndReason, Nodes, NodesError};
use crate::store::retry::Backoff;
use crate::store::{Store, Traits};
use crate::telemetry;

/// How long a close waits for a connection that is lost. One that moves to another server is back by
/// then. A longer outage may last for hours.
const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// If a session lives shorter than this, there is a pause before the next one. Each new session
/// makes all contenders queue again and all clean-ups search again.
const SHORT_LIVED: Duration = Duration::from_secs(1);

pub(crate) struct SessionTask {
    store: Arc<dyn Store>,
    traits: Traits,
    phase: watch::Sender<Phase>,
    /// True when the session is to be closed. The channel closes when the last handle is gone.
    close: watch::Receiver<bool>,
    cleanup: Cleanup,
    close_patience: Duration,
    clock: Clock,
    highest: Arc<HighestNumber>,
    /// The store, as logs name it.
    address: Option<Arc<str>>,
}

impl SessionTask {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        phase: watch::Sender<Phase>,
        close: watch::Receiver<bool>,
        cleanup: Cleanup,
        close_patience: Duration,
        address: Option<Arc<str>>,
    ) -> Self {
        Self {
            clock: Clock::new(&store),
            traits: store.traits(),
            highest: Arc::default(),
            store,
            phase,
            close,
            cleanup,
            close_patience,
            address,
        }
    }

    /// Serves the session until it is closed, unused or cannot be opened.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::default();
        for number in 1.. {
            let mut failures = Seldom::default();
            let opened = loop {
                let sent = self.clock.now();
                let opened = tokio::select! {
                    biased;
                    () = closed(&mut self.close) => break Err(Phase::Closed),
                    opened = self.store.connect() => opened,
                };
                match opened {
                    Ok(nodes) => break Ok((nodes, sent)),
                    Err(error) if error.is_transient() => {
                        self.tell_failure(&error, &mut failures);
                        backoff.wait().await;
                    }
                    Err(error) => break Err(Phase::Ended(error)),
                }
            };
            let opened_at = Instant::now();
            let end = match opened {
                Ok((nodes, sent)) => self.serve(number, nodes, sent).await,
                Err(phase) => Some(phase),
            };
            if let Some(phase) = end {
                info!(target: SESSION, ?phase, "session over");
                self.phase.send_replace(phase);
                return;
            }
            self.phase.send_replace(Phase::Connecting);
            if opened_at.elapsed() < SHORT_LIVED {
                backoff.wait().await;
            } else {
                backoff = Backoff::default();
            }
        }
    }

    fn tell_failure(&self, error: &NodesError, failures: &mut Seldom) {
        let cause = match error {
            NodesError::Unknown(source) => Causes(&**source),
            error => Causes(error),
        };
        let store = self.address.as_deref();
        if failures.is_due(Instant::now()) {
            warn!(target: SESSION, store, %cause, "no store session yet, trying again");
        } else {
            debug!(target: SESSION, store, %cause, "no store session yet, trying again");
        }
    }

    /// Serves one epoch; returns the last phase of the session if there is no next one.
    async fn serve(&mut self, number: u64, nodes: Arc<dyn Nodes>, sent: Moment) -> Option<Phase> {
        let (link_sender, link) = watch::channel(Link::Connected(1));
        let origin = Origin {
            clock: self.clock.clone(),
            highest: Arc::clone(&self.highest),
            traits: self.traits,
        };
        let epoch = Arc::new(Epoch::new(number, nodes, link, origin, sent));
        epoch.rely();
        // It stays open until this function closes it.
        let nodes = epoch.nodes().ok()?;
        info!(
            target: SESSION,
            epoch = number,
            session = %SessionId(epoch.session_id),
            "store session open"
        );
        self.phase.send_replace(Phase::Open(Arc::clone(&epoch)));
        let mut watch = EpochTask::new(Arc::clone(&epoch), Arc::clone(&nodes), link_sender);
        let over = tokio::select! {
            biased;
            () = closed(&mut self.close) => None,
            over = watch.run() => Some(over),
        };
        drop(nodes);
        let ended = match over {
            None => None,
            Some(Over::Session(reason)) => {
                if reason == EndReason::Expired {
                    warn_of_expiry(&epoch);
                }
                Some(reason)
            }
            Some(Over::Forgot(Forgot { seen, now })) => {
                report_forgot(seen, now);
                watch.end(LostReason::SessionClosed);
                drop(epoch.take_nodes());
                return Some(Phase::Ended(NodesError::StoreForgot { seen, now }));
            }
        };
        if let Some(reason) = ended {
            telemetry::session_lost(reason);
        }
        match ended {
            None => {
                epoch.note_close();
                watch.end(LostReason::SessionClosed);
                let over = watch.session_over();
                self.drain(&epoch, over).await;
                let is_connected = epoch.connection().is_some();
                drop(epoch.take_nodes());
                // Without a connection it cannot be closed, and the store will expire it.
                if is_connected && self.traits.closes {
                    watch.closed(self.close_patience).await;
                }
                return Some(Phase::Closed);
            }
            Some(EndReason::Expired) => {
                watch.end(LostReason::SessionExpired);
            }
            Some(EndReason::Closed | EndReason::AuthFailed) => {
                watch.end(LostReason::SessionClosed);
            }
        }
        drop(epoch.take_nodes());
        let is_last = ended != Some(EndReason::Expired) || !self.traits.reopens;
        is_last.then_some(Phase::Ended(NodesError::SessionEnded))
    }

    /// Lets the clean-up finish, so that no contender waits for the store to end the session.
    async fn drain(&self, epoch: &Arc<Epoch>, over: impl Future<Output = ()>) {
        self.phase.send_replace(Phase::Closing(Arc::clone(epoch)));
        let paths: Vec<_> = epoch
            .leases()
            .iter()
            .map(|it| it.node_path().to_owned())
            .collect();
        if !paths.is_empty() {
            drop(self.cleanup.delete(Doomed::Nodes(paths), epoch));
        }
        // Attempts notice the end and hand over their nodes, except those that are not polled.
        let polled = async {
            while !epoch.leftovers().is_empty() {
                tokio::time::sleep(UNPOLLED_GRACE / 20).await;
            }
        };
        let unpolled = tokio::time::timeout(UNPOLLED_GRACE, polled).await.is_err();
        if unpolled {
            let leftovers = epoch.leftovers();
            leftovers
                .iter()
                .for_each(|it| it.delete_all(&self.cleanup, epoch));
        }
        tokio::select! {
            biased;
            () = self.cleanup.drained() => {}
            () = over => {}
            () = cut_off(epoch) => self.warn_of_remaining(epoch),
            () = tokio::time::sleep(self.close_patience) => self.warn_of_remaining(epoch),
        }
    }

    fn warn_of_remaining(&self, epoch: &Epoch) {
        let Some(Remaining { nodes, first }) = self.cleanup.remaining(epoch) else {
            return;
        };
        let session = SessionId(epoch.session_id);
        if epoch.connection().is_none() {
            warn!(
                target: SESSION,
                %session,
                nodes,
                first,
                "session closed without a connection; its lock nodes stay until the store expires it"
            );
        } else {
            warn!(
                target: SESSION,
                %session,
                nodes,
                first,
                "session closed before all lock nodes were deleted; the store removes them with it"
            );
        }
    }
}

/// Completes when the connection is lost and does not come back soon.
async fn cut_off(epoch: &Epoch) {
    let Ok(nodes) = epoch.nodes() else {
        return future::pending().await;
    };
    let (mut changes, mut is_lost) = (nodes.connection(), false);
    loop {
        let change = match is_lost {
            true => tokio::time::timeout(RECONNECT_MAX, changes.next()).await,
            false => Ok(changes.next().await),
        };
        match change {
            Ok(Some(change)) => is_lost = change == Connection::Disconnected,
            // The session is over, which the caller notices.
            Ok(None) => return future::pending().await,
            Err(_) => return,
        }
    }
}

fn report_forgot(seen: i64, now: i64) {
    error!(
        target: SESSION,
        seen,
        now,
        "the store's transaction numbers went back, so it has lost data: this session grants nothing \
         more, as its fencing tokens would be too low"
    );
    telemetry::store_forgot();
}

/// The client reports both alike: that the store has expired the session, and that it gave the
/// session up after a silence in which the store would have.
fn warn_of_expiry(epoch: &Epoch) {
    let silence = epoch.silence().lasts(Instant::now()).unwrap_or_default();
    let timeout = epoch.nodes().ok().and_then(|nodes| nodes.session_timeout());
    let why = match timeout.is_some_and(|timeout| silence >= timeout) {
        true => "the store did not answer for the session timeout, so its session is given up",
        false => "the store has expired its session",
    };
    let locks = epoch.leases().len();
    let lost = match locks {
        0 => "no lock was held any more",
        _ => "its locks are lost",
    };
    warn!(
        target: SESSION,
        epoch = epoch.number,
        session = %SessionId(epoch.session_id),
        locks,
        silent_ms = silence.as_millis(),
        "{why}: {lost}"
    );
}

/// Completes when the session is to be closed, or its last handle is gone.
async fn closed(close: &mut watch::Receiver<bool>) {
    // An error means that all handles are gone.
    drop(close.wait_for(|asked| *asked).await);
}

#[cfg(test)]
mod tests;
