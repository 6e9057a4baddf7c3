//! Limits how much a session watches.
//!
//! After a reconnect a client sets its watches again. If their paths take more bytes than the store
//! says in its traits, the session does not survive that. So holders and directories, which can do
//! without a watch, have limited budgets. The rest is left for waiters, which cannot.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::Traits;

/// Bytes of paths that may be watched.
#[derive(Debug)]
pub(crate) struct WatchBudget {
    bytes: Arc<Semaphore>,
    path_prefix_bytes: usize,
}

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct WatchPermit(#[expect(dead_code, reason = "dropped")] OwnedSemaphorePermit);

impl WatchBudget {
    /// For lock directories, whose watches only save listings. None, if the store's watches prove
    /// nothing about a directory.
    pub(crate) fn of_directories(traits: &Traits) -> Self {
        match traits.watches_directories {
            true => Self::new(traits, traits.watch_bytes / 4),
            false => Self::new(traits, 0),
        }
    }

    /// For the nodes of holders, which are read periodically if they are not watched.
    pub(crate) fn of_holders(traits: &Traits) -> Self {
        Self::new(traits, traits.watch_bytes / 8 * 3)
    }

    fn new(traits: &Traits, bytes: usize) -> Self {
        Self {
            bytes: Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))),
            path_prefix_bytes: traits.path_prefix_bytes,
        }
    }

    /// Reserves what a node's path takes on the server. `None` if less is left.
    pub(crate) fn take(&self, path: &str) -> Option<WatchPermit> {
        let bytes = u32::try_from(self.path_prefix_bytes + path.len()).ok()?;
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(bytes).ok()?;
        Some(WatchPermit(permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_for_all_and_given_back() {
        let budget = WatchBudget::new(&Traits::default(), 10);
        let most = budget.take("/of-nine/").unwrap();
        assert!(budget.take("/a").is_none());
        let last = budget.take("/").unwrap();
        drop(most);
        assert!(budget.take("/of-nine/").is_some());
        assert!(budget.take("/of-ten---").is_none());
        drop(last);
        assert!(budget.take("/of-ten---").is_some());
    }

    #[test]
    fn path_counts_as_it_is_on_the_server() {
        let below = Traits {
            path_prefix_bytes: 4,
            ..Traits::default()
        };
        let budget = WatchBudget::new(&below, 10);
        assert!(budget.take("/lock-a").is_none());
        assert!(budget.take("/locks").is_some());
    }

    #[test]
    fn store_decides_how_much_is_watched() {
        let some = Traits {
            watch_bytes: 16,
            ..Traits::default()
        };
        assert!(WatchBudget::of_directories(&some).take("/abc").is_some());
        assert!(WatchBudget::of_directories(&some).take("/abcd").is_none());
        assert!(WatchBudget::of_holders(&some).take("/abcde").is_some());
        assert!(WatchBudget::of_holders(&some).take("/abcdef").is_none());
        let none = Traits {
            watches_directories: false,
            ..some
        };
        assert!(WatchBudget::of_directories(&none).take("/").is_none());
        let all = WatchBudget::of_holders(&Traits::default());
        assert!(all.take("/locks").is_some());
    }
}
