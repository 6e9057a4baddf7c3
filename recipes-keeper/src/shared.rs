//! What the wires of a session share, from the first to the last.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use recipes_core::NodeStat;

use crate::moment::Moment;
use crate::reading::Reads;
use crate::watches::Watches;

/// What the wires of a session share with whoever uses the session.
#[derive(Debug, Default)]
pub struct Shared {
    /// Who waits for news of which node. A wire tells them.
    pub watches: Watches,
    /// The highest number of a transaction in an answer that somebody has read.
    seen: AtomicI64,
    /// When the last request was sent that the server has heard.
    heard: Mutex<Moment>,
    /// The last connection of a session that only reads.
    reads: Mutex<Option<Arc<dyn Reads>>>,
}

impl Shared {
    /// The highest number of a transaction that the users of the session know, or 0. Whatever they
    /// ask for because of an answer is sent after this has risen to it.
    pub fn seen(&self) -> i64 {
        self.seen.load(Ordering::Relaxed)
    }

    pub(crate) fn saw(&self, number: i64) {
        self.seen.fetch_max(number, Ordering::Relaxed);
    }

    pub(crate) fn saw_node(&self, stat: &NodeStat) {
        self.saw(stat.czxid.max(stat.mzxid).max(stat.pzxid));
    }

    /// The server has heard what was sent then: a beat of the wire's own, or a call that keeps the
    /// session alive.
    pub fn was_heard(&self, sent: Moment) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = heard.max(sent);
    }

    pub(crate) fn reads_over(&self, reads: &Arc<dyn Reads>) {
        let mut last = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::clone(reads));
    }

    pub(crate) fn reads(&self) -> Option<Arc<dyn Reads>> {
        let last = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone()
    }

    /// How long ago that was.
    pub(crate) fn unheard(&self) -> Duration {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.elapsed()
    }
}
