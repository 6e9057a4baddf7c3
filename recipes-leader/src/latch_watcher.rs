//! Follows whether a latch leads.

use std::fmt;

use futures::FutureExt;
use futures::future;
use recipes_core::{AcquireError, Error, FencingToken, LatchError};
use tokio::sync::watch;

use crate::latch::State;

/// Follows whether a [`LeaderLatch`](crate::LeaderLatch) leads.
///
/// # Examples
/// ```
/// # use recipes_leader::LeaderLatch;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let latch = LeaderLatch::start(&session, "/elections/billing", "host-7")?;
/// let mut watcher = latch.watch();
/// let serving = tokio::spawn(async move {
///     loop {
///         match watcher.changed().await? {
///             true => { /* start the work of the leader */ }
///             false => { /* stop it */ }
///         }
/// #       break Ok::<_, recipes_core::Error>(());
///     }
/// });
/// # serving.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LatchWatcher {
    path: String,
    state: watch::Receiver<State>,
    /// The term that was reported last, unless its end was.
    reported: Option<FencingToken>,
}

impl LatchWatcher {
    pub(crate) fn new(path: &str, state: watch::Receiver<State>) -> Self {
        Self {
            path: path.to_owned(),
            state,
            reported: None,
        }
    }

    /// Whether the latch leads now; as [`LeaderLatch::is_leader`](crate::LeaderLatch::is_leader).
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.state.borrow().term().is_some()
    }

    /// Waits until the latch begins to lead (`true`), or does not lead any more (`false`), in turn.
    /// A watcher begins with a latch that does not lead: if it does, the first call returns `true`.
    ///
    /// # Guarantees
    /// - `false` comes at the deadline of the term at the latest, before another candidate can lead,
    ///   as [`LockGuard::lost`](recipes_core::LockGuard::lost) does. A lost connection alone is no
    ///   reason.
    /// - Between two terms there is a `false`, even if nobody has waited here meanwhile.
    ///
    /// # Errors
    /// [`LatchError`] if it does not lead any more, and never will.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn changed(&mut self) -> Result<bool, Error> {
        // Ends with a change, or with the latch.
        loop {
            let path = &self.path;
            let (term, lost) = {
                let state = self.state.borrow_and_update();
                if let Some(end) = state.end(path) {
                    return Err(end.into());
                }
                let term = state.term();
                let lost = term.map(|it| it.lost().map(drop));
                (term.map(|it| it.fencing_token()), lost)
            };
            if term != self.reported {
                // The end of a term first, and then the next one.
                self.reported = term.filter(|_| self.reported.is_none());
                return Ok(self.reported.is_some());
            }
            let lost = lost.map_or_else(|| future::pending().boxed(), FutureExt::boxed);
            tokio::select! {
                biased;
                changed = self.state.changed() => {
                    if changed.is_err() {
                        // Unless it has said why, its task is gone with its runtime.
                        let end = self.state.borrow().end(&self.path);
                        return Err(end.unwrap_or_else(|| closed(&self.path)).into());
                    }
                }
                () = lost => {}
            }
        }
    }
}

fn closed(path: &str) -> LatchError {
    let path = || path.to_owned();
    LatchError::Ended {
        path: path(),
        source: Box::new(AcquireError::SessionClosed { path: path() }.into()),
    }
}

impl fmt::Debug for LatchWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatchWatcher")
            .field("path", &self.path)
            .field("reported", &self.reported)
            .finish_non_exhaustive()
    }
}
