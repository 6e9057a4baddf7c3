//! What makes a session ask for its news at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use crate::rings::Rung;

/// What has happened since somebody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    pub(crate) rung: Rung,
    /// This session has deleted or changed nodes, for which nobody rings.
    pub(crate) has_changed: bool,
    /// Watches were set.
    pub(crate) has_watched: bool,
    /// Those of them on nodes of the session's own that were created with them.
    pub(crate) created: Vec<u64>,
    /// Somebody waits for a look.
    pub(crate) is_asked: bool,
}

impl Signals {
    fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

/// Wakes who asks for news.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    signals: Mutex<Signals>,
    woken: Notify,
    /// Looks that somebody waits for, or has waited for.
    asked: AtomicU64,
    /// As many of them are done.
    done: watch::Sender<u64>,
    /// Changes of the session's own: those that were sent, and those that were answered.
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Bell {
    /// Adds a signal.
    pub(crate) fn signal(&self, add: impl FnOnce(&mut Signals)) {
        let is_any = {
            let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
            add(&mut signals);
            signals.is_any()
        };
        if is_any {
            self.woken.notify_one();
        }
    }

    /// Waits until everything is told that had happened before this call.
    pub(crate) async fn look(&self) {
        let own = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.signal(|signals| signals.is_asked = true);
        let mut done = self.done.subscribe();
        // The sender lives as long as this.
        drop(done.wait_for(|done| *done >= own).await);
    }

    /// A look begins. What it returns is for [`looked`](Self::looked).
    pub(crate) fn looks(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The look is over that began with this, and its news are told.
    pub(crate) fn looked(&self, asked: u64) {
        self.done.send_replace(asked);
    }

    /// A change of the session's own is sent, to a node that it may watch.
    #[cfg(feature = "postgres")]
    pub(crate) fn changes(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }

    /// That change is over. Whether it is known what has become of it.
    #[cfg(feature = "postgres")]
    pub(crate) fn changed(&self, is_known: bool) {
        if is_known {
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
        self.signal(|signals| signals.has_changed = true);
    }

    /// How many changes were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Of how many of them it is known what has become of them. A look that begins now shows it.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// As [`changed`](Self::changed), and its news are told. Nobody has to look for them.
    #[cfg(feature = "postgres")]
    pub(crate) fn told(&self) {
        self.sent.fetch_sub(1, Ordering::SeqCst);
    }

    fn take(&self) -> Signals {
        std::mem::take(&mut self.signals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for signals, and takes them. It may be dropped.
    pub(crate) async fn signalled(&self) -> Signals {
        loop {
            let signals = self.take();
            if signals.is_any() {
                return signals;
            }
            self.woken.notified().await;
        }
    }
}
