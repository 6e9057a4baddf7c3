//! What makes a session ask for its news at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Notify, watch};

/// What has happened since somebody looked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// The server has rung: a watched node was deleted or changed.
    pub(crate) is_rung: bool,
    /// This session has deleted or changed nodes, for which nobody rings.
    pub(crate) has_changed: bool,
    /// Watches were set.
    pub(crate) has_watched: bool,
    /// Somebody waits for a look.
    pub(crate) is_asked: bool,
    /// The server has rung for these watches: another session has deleted the node, and nothing else with it.
    pub(crate) gone: Vec<u64>,
    /// The same of this session.
    pub(crate) left: Vec<u64>,
    /// Watches that were set together with the creation of their node.
    pub(crate) created: Vec<u64>,
    /// A call of this session that deletes or changes nodes is not answered yet.
    pub(crate) is_deleting: bool,
}

impl Signals {
    fn is_any(&self) -> bool {
        let none = Self {
            is_deleting: self.is_deleting,
            ..Self::default()
        };
        *self != none
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

    /// A call that deletes or changes nodes is sent. There is one at a time.
    pub(crate) fn deletes(&self) {
        self.signal(|it| it.is_deleting = true);
    }

    /// It is answered, and this has come of it. In one moment: whoever takes signals finds either.
    pub(crate) fn deleted(&self, add: impl FnOnce(&mut Signals)) {
        self.signal(|it| {
            it.is_deleting = false;
            add(it);
        });
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

    fn take(&self) -> Signals {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = Signals {
            is_deleting: signals.is_deleting,
            ..Signals::default()
        };
        std::mem::replace(&mut signals, rest)
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn call_that_deletes_is_known_until_its_answer_is() {
        let bell = Bell::default();
        let taken = || bell.signalled().now_or_never();
        bell.deletes();
        assert_eq!(taken(), None, "it is no news");
        bell.signal(|it| it.gone.push(3));
        assert!(taken().unwrap().is_deleting);
        bell.signal(|it| it.gone.push(4));
        bell.deleted(|it| it.left.push(5));
        let signals = taken().unwrap();
        assert!(!signals.is_deleting);
        assert_eq!((signals.gone, signals.left), (vec![4], vec![5]));
        bell.deletes();
        bell.deleted(|_| {});
        assert_eq!(taken(), None);
    }
}
