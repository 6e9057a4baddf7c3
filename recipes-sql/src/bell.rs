//! What makes a session ask for its news at once.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// What has happened since somebody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// The server has rung: a watched node was deleted or changed.
    pub(crate) is_rung: bool,
    /// This session has deleted or changed nodes, for which nobody rings.
    pub(crate) has_changed: bool,
    /// Watches were set.
    pub(crate) has_watched: bool,
}

impl Signals {
    fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// Wakes who asks for news.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    signals: Mutex<Signals>,
    woken: Notify,
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
