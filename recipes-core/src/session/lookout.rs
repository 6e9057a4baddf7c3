//! Looks at the nodes that attempts wait for without a watch.
//!
//! What the waiters of a session watch has a budget, because all of it must be set again after a
//! reconnect. An attempt that finds no room queues for it. Until it gets some, the lookout lists its
//! nodes periodically, many in one request: a node that is gone cannot be listed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::future;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::log::SESSION;
use crate::session::watch_budget::{WatchBudget, WatchPermit};
use crate::store::Traits;
use crate::store::nodes::{Listing, Nodes, NodesError};
use crate::sync::{Mutex, lock};

/// Nodes in one request. Other requests of the session wait for no more than this.
const BATCH_NODES: usize = 256;

/// Bytes of paths in one request, a sixteenth of what servers take by default.
const BATCH_BYTES: usize = 64 * 1024;

/// Pause after a round that found a node gone: others may follow.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Pause while nothing changes.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A round is followed by a pause at least this many times as long, so that a slow store is not
/// made slower.
const REST: u32 = 8;

/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(30);

/// What became of a node: it is gone, or the store refuses to show it.
type Seen = Result<(), NodesError>;

/// The attempts that wait without a watch, and the room for those that watch.
pub(crate) struct Lookout {
    budget: WatchBudget,
    of_observers: WatchBudget,
    awaited: Mutex<Awaited>,
    came: Notify,
}

#[derive(Default)]
struct Awaited {
    by_path: BTreeMap<Arc<str>, BTreeMap<u64, oneshot::Sender<Seen>>>,
    next_id: u64,
}

impl Lookout {
    pub(crate) fn new(traits: &Traits) -> Self {
        Self {
            budget: WatchBudget::of_waiters(traits),
            of_observers: WatchBudget::of_observers(traits),
            awaited: Mutex::default(),
            came: Notify::new(),
        }
    }

    /// Room for watches whose paths have these bytes together. `None` if less is left.
    pub(crate) fn room(&self, paths: impl IntoIterator<Item = usize>) -> Option<WatchPermit> {
        self.budget.take_all(paths)
    }

    /// Room for an observer to watch a node. `None` if less is left.
    pub(crate) fn room_to_observe(&self, path: &str) -> Option<WatchPermit> {
        self.of_observers.take(path)
    }

    /// Waits for such room; first come, first served.
    pub(crate) async fn next_room(&self, paths: impl IntoIterator<Item = usize>) -> WatchPermit {
        match self.budget.next(paths).await {
            Some(permit) => permit,
            // It would never fit, and must not keep others waiting.
            None => future::pending().await,
        }
    }

    /// Completes when the node is gone, or when the store refuses to show it.
    pub(crate) async fn gone(&self, path: &str) -> Seen {
        let (sender, seen) = oneshot::channel();
        let _look = self.look(path.into(), sender);
        match seen.await {
            Ok(seen) => seen,
            // The lookout keeps the sender until it has sent.
            Err(_) => future::pending().await,
        }
    }

    fn look(&self, path: Arc<str>, sender: oneshot::Sender<Seen>) -> Look<'_> {
        let mut awaited = lock(&self.awaited);
        let id = awaited.next_id;
        awaited.next_id += 1;
        let looks = awaited.by_path.entry(Arc::clone(&path)).or_default();
        looks.insert(id, sender);
        drop(awaited);
        self.came.notify_one();
        Look {
            lookout: self,
            path,
            id,
        }
    }

    /// Looks at all nodes in rounds, as long as there are any. One request is in flight at a time,
    /// so that heartbeats and grants need not wait for long.
    pub(crate) async fn run(&self, nodes: &dyn Nodes) -> Infallible {
        let mut pause = PAUSE_MIN;
        loop {
            while lock(&self.awaited).by_path.is_empty() {
                self.came.notified().await;
                pause = PAUSE_MIN;
            }
            // Whoever has come by now is looked at in this round.
            self.came.notified().now_or_never();
            let started = Instant::now();
            let is_any_gone = self.round(nodes).await;
            pause = match is_any_gone {
                true => PAUSE_MIN,
                false => (pause * 3 / 2).min(PAUSE_MAX),
            };
            let rest = (started.elapsed() * REST).min(REST_MAX);
            tokio::select! {
                () = sleep(pause.max(rest)) => {}
                // A contender that has come may wait for a short time only. All come again after a
                // reconnect, and then the round has lasted as long as the outage.
                () = self.came.notified() => sleep(PAUSE_MIN).await,
            }
        }
    }

    /// Looks at each node once, in the order of their paths. Returns whether any is gone.
    async fn round(&self, nodes: &dyn Nodes) -> bool {
        let (mut last, mut is_any_gone) = (None, false);
        loop {
            let batch = self.batch_after(last.as_ref());
            last = batch.last().cloned();
            if last.is_none() {
                return is_any_gone;
            }
            let paths: Vec<&str> = batch.iter().map(|path| &**path).collect();
            match nodes.list_all(&paths).await {
                Ok(listings) => {
                    for (path, listing) in batch.iter().zip(listings) {
                        is_any_gone |= self.note(path, listing);
                    }
                }
                Err(error) => {
                    debug!(target: SESSION, %error, "unwatched nodes not seen yet");
                    return is_any_gone;
                }
            }
        }
    }

    fn batch_after(&self, last: Option<&Arc<str>>) -> Vec<Arc<str>> {
        let after = last.map_or(Bound::Unbounded, |last| Bound::Excluded(Arc::clone(last)));
        let awaited = lock(&self.awaited);
        let rest = awaited.by_path.range((after, Bound::Unbounded));
        let mut bytes = 0;
        let within = rest.map(|(path, _)| path).take(BATCH_NODES);
        let within = within.take_while(|path| {
            // A single path always fits.
            let is_first = bytes == 0;
            bytes += path.len();
            is_first || bytes <= BATCH_BYTES
        });
        within.cloned().collect()
    }

    /// Notes an answer about a node. Returns whether the node is gone.
    fn note(&self, path: &str, listing: Listing) -> bool {
        let seen = match listing {
            Err(NodesError::NoNode) => Ok(()),
            Err(error) if error.is_lasting() => Err(error),
            // There it is, or it will be looked at again.
            Ok(_) | Err(_) => return false,
        };
        let is_gone = seen.is_ok();
        let looks = lock(&self.awaited).by_path.remove(path);
        for (_, sender) in looks.into_iter().flatten() {
            // The attempt may have ended meanwhile.
            drop(sender.send(seen.clone()));
        }
        is_gone
    }
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookout")
            .field("budget", &self.budget)
            .field("nodes", &lock(&self.awaited).by_path.len())
            .finish_non_exhaustive()
    }
}

/// A node that an attempt waits for. It is not looked at any more once this is dropped.
struct Look<'a> {
    lookout: &'a Lookout,
    path: Arc<str>,
    id: u64,
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let mut awaited = lock(&self.lookout.awaited);
        let Some(looks) = awaited.by_path.get_mut(&self.path) else {
            return;
        };
        looks.remove(&self.id);
        if looks.is_empty() {
            awaited.by_path.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
