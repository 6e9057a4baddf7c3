//! Limits how much a session watches.
//!
//! After a reconnect a client sets its watches again. If their paths take more bytes than the store
//! says in its traits, the session does not survive that. So each use of watches has a budget, and
//! can do without a watch:
//!
//! | use | share | without a watch |
//! |---|---|---|
//! | lock directories | 3/16 | they are listed |
//! | nodes of holders | 6/16 | they are read every 5 to 10 s |
//! | nodes that waiters watch | 5/16 | the lookout lists them every 1 to 5 s |
//! | nodes that observers watch | 1/16 | as those of waiters |
//! | | 1/16 | left for watches that are being removed |

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::Traits;

/// Bytes of paths that may be watched.
#[derive(Debug)]
pub(crate) struct WatchBudget {
    bytes: Arc<Semaphore>,
    bytes_max: usize,
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
            true => Self::new(traits, traits.watch_bytes / 16 * 3),
            false => Self::new(traits, 0),
        }
    }

    /// For the nodes of holders, which are read periodically if they are not watched.
    pub(crate) fn of_holders(traits: &Traits) -> Self {
        Self::new(traits, traits.watch_bytes / 8 * 3)
    }

    /// For the own nodes of waiters, and those that they wait for.
    pub(crate) fn of_waiters(traits: &Traits) -> Self {
        Self::new(traits, traits.watch_bytes / 16 * 5)
    }

    /// For the nodes that observers watch, who must not take the room of those that wait.
    pub(crate) fn of_observers(traits: &Traits) -> Self {
        Self::new(traits, traits.watch_bytes / 16)
    }

    fn new(traits: &Traits, bytes: usize) -> Self {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Self {
            bytes: Arc::new(Semaphore::new(bytes)),
            bytes_max: bytes,
            path_prefix_bytes: traits.path_prefix_bytes,
        }
    }

    /// Reserves what a node's path takes on the server. `None` if less is left.
    pub(crate) fn take(&self, path: &str) -> Option<WatchPermit> {
        self.take_all([path.len()])
    }

    /// Reserves what paths of these lengths take together. `None` if less is left.
    pub(crate) fn take_all(&self, paths: impl IntoIterator<Item = usize>) -> Option<WatchPermit> {
        let bytes = self.bytes_of(paths)?;
        let permit = Arc::clone(&self.bytes).try_acquire_many_owned(bytes).ok()?;
        Some(WatchPermit(permit))
    }

    /// Waits until that much is left; first come, first served. `None` if it never will be.
    pub(crate) async fn next(&self, paths: impl IntoIterator<Item = usize>) -> Option<WatchPermit> {
        let bytes = self.bytes_of(paths)?;
        let permit = Arc::clone(&self.bytes).acquire_many_owned(bytes).await;
        permit.ok().map(WatchPermit)
    }

    /// What these paths take on the server, if the budget is as large.
    fn bytes_of(&self, paths: impl IntoIterator<Item = usize>) -> Option<u32> {
        let paths = paths.into_iter();
        let bytes: usize = paths.map(|path| self.path_prefix_bytes + path).sum();
        let bytes = Some(bytes).filter(|bytes| *bytes <= self.bytes_max)?;
        u32::try_from(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

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

    #[tokio::test]
    async fn room_goes_to_the_first_that_waits_for_it() {
        let budget = WatchBudget::new(&Traits::default(), 10);
        let held = budget.take_all([3, 4]).unwrap();
        let mut first = Box::pin(budget.next([2, 3]));
        assert!(poll!(first.as_mut()).is_pending());
        let mut second = Box::pin(budget.next([1]));
        assert!(poll!(second.as_mut()).is_pending(), "overtakes");
        drop(held);
        assert!(first.await.is_some() && second.await.is_some());
    }

    #[tokio::test]
    async fn what_never_fits_keeps_nobody_waiting() {
        let budget = WatchBudget::new(&Traits::default(), 10);
        assert!(budget.take_all([5, 6]).is_none());
        assert!(budget.next([5, 6]).await.is_none());
        assert!(budget.next([5, 5]).await.is_some());
    }

    #[test]
    fn store_decides_how_much_is_watched() {
        let some = Traits {
            watch_bytes: 16,
            ..Traits::default()
        };
        assert!(WatchBudget::of_directories(&some).take("/ab").is_some());
        assert!(WatchBudget::of_directories(&some).take("/abc").is_none());
        assert!(WatchBudget::of_holders(&some).take("/abcde").is_some());
        assert!(WatchBudget::of_holders(&some).take("/abcdef").is_none());
        assert!(WatchBudget::of_waiters(&some).take("/abcd").is_some());
        assert!(WatchBudget::of_waiters(&some).take("/abcde").is_none());
        assert!(WatchBudget::of_observers(&some).take("/").is_some());
        assert!(WatchBudget::of_observers(&some).take("/a").is_none());
        let none = Traits {
            watches_directories: false,
            ..some
        };
        assert!(WatchBudget::of_directories(&none).take("/").is_none());
        let all = WatchBudget::of_holders(&Traits::default());
        assert!(all.take("/locks").is_some());
    }
}
