//! Limits how much a session watches.
//!
//! After a reconnect the client sets its watches again. If their paths take more than 128 KiB
//! together, it fails to, again and again until the session expires (zookeeper-client 0.11.2: the
//! requests that it splits them into share one number). So holders and directories, which can do
//! without a watch, have limited budgets. The rest is left for waiters, which cannot.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of paths that may be watched.
#[derive(Debug)]
pub(crate) struct WatchBudget(Arc<Semaphore>);

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct WatchPermit(#[expect(dead_code, reason = "dropped")] OwnedSemaphorePermit);

impl WatchBudget {
    /// For lock directories, whose watches only save listings.
    pub(crate) fn of_directories() -> Self {
        Self::new(32 * 1024)
    }

    /// For the nodes of holders, which are read periodically if they are not watched.
    pub(crate) fn of_holders() -> Self {
        Self::new(48 * 1024)
    }

    fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// Reserves `bytes`, the length of a node's path on the server. `None` if less is left.
    pub(crate) fn take(&self, bytes: usize) -> Option<WatchPermit> {
        let bytes = u32::try_from(bytes).ok()?;
        let permit = Arc::clone(&self.0).try_acquire_many_owned(bytes).ok()?;
        Some(WatchPermit(permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_for_all_and_given_back() {
        let budget = WatchBudget::new(10);
        let most = budget.take(9).unwrap();
        assert!(budget.take(2).is_none());
        let last = budget.take(1).unwrap();
        drop(most);
        assert!(budget.take(9).is_some());
        assert!(budget.take(10).is_none());
        drop(last);
        assert!(budget.take(10).is_some());
    }
}
