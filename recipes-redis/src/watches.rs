//! Who waits for news of which node.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use recipes_core::NodeEvent;
use tokio::sync::oneshot;

/// The watches of one session.
///
/// A watch is entered before its request is sent, because its event may arrive before the caller
/// has seen the answer. Each has a number that rises; an event names the latest that the server knew,
/// and is not for watches that are set after it.
#[derive(Default)]
pub(crate) struct Watches(Mutex<Table>);

#[derive(Default)]
struct Table {
    number: u64,
    by_path: HashMap<String, Vec<Watch>>,
    /// The connection whose events count.
    connection: u64,
}

struct Watch {
    number: u64,
    /// What the node was like when it was watched; `None` until the server has answered.
    seen: Option<Seen>,
    event: oneshot::Sender<NodeEvent>,
}

/// The transactions that created a node and last changed its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
}

/// A watch to set again on a new connection.
#[derive(Debug)]
pub(crate) struct Rewatch {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) seen: Seen,
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches")
            .field("paths", &self.lock().by_path.len())
            .finish()
    }
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a watch, whose request is sent next.
    pub(crate) fn enter(&self, path: &str) -> (u64, oneshot::Receiver<NodeEvent>) {
        let (event, news) = oneshot::channel();
        let mut table = self.lock();
        table.number += 1;
        let number = table.number;
        let watch = Watch {
            number,
            seen: None,
            event,
        };
        match table.by_path.get_mut(path) {
            Some(watches) => watches.push(watch),
            None => {
                table.by_path.insert(path.to_owned(), vec![watch]);
            }
        }
        (number, news)
    }

    /// The server has set a watch on a node like this.
    pub(crate) fn confirm(&self, path: &str, number: u64, seen: Seen) {
        let mut table = self.lock();
        let watches = table.by_path.get_mut(path).into_iter().flatten();
        for watch in watches.filter(|watch| watch.number == number) {
            watch.seen = Some(seen);
        }
    }

    /// Removes a watch. Returns whether it was the last on its path.
    pub(crate) fn remove(&self, path: &str, number: u64) -> bool {
        let mut table = self.lock();
        let Some(watches) = table.by_path.get_mut(path) else {
            return false;
        };
        watches.retain(|watch| watch.number != number);
        let is_last = watches.is_empty();
        if is_last {
            table.by_path.remove(path);
        }
        is_last
    }

    /// Hands an event to those who watched the node up to a number, if it came on the connection
    /// that counts.
    pub(crate) fn fire(&self, connection: u64, path: &str, up_to: u64, event: NodeEvent) {
        let mut table = self.lock();
        if table.connection != connection {
            return;
        }
        let Some(watches) = table.by_path.remove(path) else {
            return;
        };
        let (told, kept): (Vec<_>, Vec<_>) =
            watches.into_iter().partition(|watch| watch.number <= up_to);
        if !kept.is_empty() {
            table.by_path.insert(path.to_owned(), kept);
        }
        for watch in told {
            // Whoever no longer waits does not want to know.
            let _ = watch.event.send(event);
        }
    }

    /// From now on only events of this connection count.
    pub(crate) fn count_on(&self, connection: u64) {
        self.lock().connection = connection;
    }

    /// The watches that the server had confirmed, in the order of their numbers.
    pub(crate) fn confirmed(&self) -> Vec<Rewatch> {
        let table = self.lock();
        let mut confirmed: Vec<_> = table
            .by_path
            .iter()
            .flat_map(|(path, watches)| watches.iter().map(move |watch| (path, watch)))
            .filter_map(|(path, watch)| {
                Some(Rewatch {
                    number: watch.number,
                    path: path.clone(),
                    seen: watch.seen?,
                })
            })
            .collect();
        confirmed.sort_unstable_by_key(|watch| watch.number);
        confirmed
    }

    /// The session is over.
    pub(crate) fn end(&self) {
        let by_path = std::mem::take(&mut self.lock().by_path);
        for watch in by_path.into_values().flatten() {
            let _ = watch.event.send(NodeEvent::SessionEnded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Seen = Seen { czxid: 1, mzxid: 1 };

    #[test]
    fn event_is_not_for_a_watch_that_is_set_after_it() {
        let watches = Watches::default();
        let (first, mut earlier) = watches.enter("/a");
        let (_, mut later) = watches.enter("/a");
        watches.fire(0, "/a", first, NodeEvent::Deleted);
        assert_eq!(earlier.try_recv(), Ok(NodeEvent::Deleted));
        assert!(later.try_recv().is_err());
    }

    #[test]
    fn event_of_an_earlier_connection_is_none() {
        let watches = Watches::default();
        let (number, mut news) = watches.enter("/a");
        watches.count_on(2);
        watches.fire(1, "/a", number, NodeEvent::Deleted);
        assert!(news.try_recv().is_err());
        watches.fire(2, "/a", number, NodeEvent::Deleted);
        assert_eq!(news.try_recv(), Ok(NodeEvent::Deleted));
    }

    #[test]
    fn only_what_was_confirmed_is_watched_again() {
        let watches = Watches::default();
        let (first, _a) = watches.enter("/b");
        let (second, _b) = watches.enter("/a");
        let (_, _c) = watches.enter("/a");
        watches.confirm("/a", second, SEEN);
        watches.confirm("/b", first, SEEN);
        let numbers: Vec<_> = watches.confirmed().iter().map(|it| it.number).collect();
        assert_eq!(numbers, [first, second]);
        assert!(!watches.remove("/a", second));
        assert!(watches.remove("/b", first));
        assert!(!watches.remove("/b", first));
    }
}
