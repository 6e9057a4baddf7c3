//! Publishes the state of an epoch's link, and logs its news.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::error::LostReason;
use crate::log::SESSION;
use crate::names::session_id::SessionId;
use crate::session::epoch::{Epoch, Link};

/// Publishes the state of the link. It ends the link at the latest when it is dropped, as with the
/// epoch task and its runtime.
pub(crate) struct LinkSender {
    epoch: Arc<Epoch>,
    link: watch::Sender<Link>,
}

impl LinkSender {
    pub(crate) fn new(epoch: Arc<Epoch>, link: watch::Sender<Link>) -> Self {
        Self { epoch, link }
    }

    pub(crate) fn disconnected(&self) {
        let is_news = self.epoch.cut_off();
        self.link.send_replace(Link::Disconnected);
        if !is_news {
            return;
        }
        let locks = self.epoch.leases().len();
        let session = SessionId(self.epoch.session_id);
        let lost_in = self
            .epoch
            .deadline()
            .saturating_duration_since(Instant::now());
        if locks == 0 {
            warn!(target: SESSION, %session, "connection lost; no lock is held");
        } else {
            warn!(
                target: SESSION,
                %session,
                locks,
                lost_in_ms = lost_in.as_millis(),
                "connection lost; locks that are held are suspended, and lost if it does not return in time"
            );
        }
    }

    pub(crate) fn connected(&self) {
        let lost_for = self.epoch.connected();
        // It may be gone again by now, which the next change reports.
        let connection = self.epoch.connection().unwrap_or_default();
        self.link.send_replace(Link::Connected(connection));
        if let Some(lost_for) = lost_for {
            info!(
                target: SESSION,
                session = %SessionId(self.epoch.session_id),
                locks = self.epoch.leases().len(),
                after_ms = lost_for.as_millis(),
                "connection is back"
            );
        }
    }

    /// Ends the epoch and its leases; returns the link's previous state. The first reason stays.
    pub(crate) fn end(&self, reason: LostReason) -> Link {
        let was = *self.link.borrow();
        if !matches!(was, Link::Ended(_)) {
            self.link.send_replace(Link::Ended(reason));
        }
        for lease in self.epoch.leases() {
            lease.lose(reason);
        }
        was
    }
}

impl Drop for LinkSender {
    fn drop(&mut self) {
        self.end(LostReason::SessionClosed);
    }
}
