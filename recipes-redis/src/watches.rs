//! Who waits for news of which node.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use recipes_core::{NodeEvent, NodeStat};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The watches of one session.
///
/// A watch is entered before its request is sent, because its event may arrive before the caller
/// has seen the answer. Each has a number that rises; an event names the latest that the server knew,
/// and is not for watches that are set after it.
///
/// The answer to a contender's listing may come with watches on the nodes that the contender will
/// watch next. They are entered without a path, and *spare* until somebody wants them.
#[derive(Default)]
pub(crate) struct Watches(Mutex<Table>);

#[derive(Default)]
struct Table {
    number: u64,
    by_path: HashMap<String, BTreeMap<u64, Watch>>,
    /// Watches of which the server has not yet said what they are on.
    anywhere: BTreeMap<u64, oneshot::Sender<NodeEvent>>,
    /// Events that may be for those.
    unclear: Vec<(String, u64, NodeEvent)>,
    spares: HashMap<String, Vec<Spare>>,
    /// The connection whose events count.
    connection: u64,
}

struct Watch {
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

impl From<&NodeStat> for Seen {
    fn from(stat: &NodeStat) -> Self {
        Self {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
        }
    }
}

/// A watch to set again on a new connection.
#[derive(Debug)]
pub(crate) struct Rewatch {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) seen: Seen,
}

/// A watch that the server has set, and nobody wanted yet.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) number: u64,
    pub(crate) news: oneshot::Receiver<NodeEvent>,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: NodeStat,
    since: Instant,
}

/// Watches without a path, entered together. What is not bound is given up.
#[derive(Debug)]
pub(crate) struct Anywhere<'a> {
    watches: &'a Watches,
    unbound: Vec<(u64, oneshot::Receiver<NodeEvent>)>,
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
        let number = table.next_number();
        table.insert(path, number, Watch { seen: None, event });
        (number, news)
    }

    /// Enters watches on nodes that the server chooses.
    pub(crate) fn enter_anywhere(&self, count: usize) -> Anywhere<'_> {
        let mut table = self.lock();
        let mut unbound = Vec::with_capacity(count);
        for _ in 0..count {
            let (event, news) = oneshot::channel();
            let number = table.next_number();
            table.anywhere.insert(number, event);
            unbound.push((number, news));
        }
        Anywhere {
            watches: self,
            unbound,
        }
    }

    /// The server has set a watch on a node like this.
    pub(crate) fn confirm(&self, path: &str, number: u64, seen: Seen) {
        let mut table = self.lock();
        let watches = table.by_path.get_mut(path);
        if let Some(watch) = watches.and_then(|watches| watches.get_mut(&number)) {
            watch.seen = Some(seen);
        }
    }

    /// Removes a watch. Returns whether it was the last on its path.
    pub(crate) fn remove(&self, path: &str, number: u64) -> bool {
        self.lock().remove(path, number)
    }

    /// Takes the latest spare watch on a node, if there is one.
    pub(crate) fn take_spare(&self, path: &str) -> Option<Spare> {
        let mut table = self.lock();
        let spares = table.spares.get_mut(path)?;
        let spare = spares.pop();
        if spares.is_empty() {
            table.spares.remove(path);
        }
        spare
    }

    /// Gives up spare watches that nobody has wanted since. Returns the paths on which nobody watches
    /// any more, but the server does.
    pub(crate) fn drop_spares(&self, since: Instant) -> Vec<String> {
        let mut table = self.lock();
        let mut old = Vec::new();
        table.spares.retain(|path, spares| {
            spares.retain(|spare| {
                let is_young = spare.since > since;
                if !is_young {
                    old.push((path.clone(), spare.number));
                }
                is_young
            });
            !spares.is_empty()
        });
        old.retain(|(path, number)| table.remove(path, *number));
        old.into_iter().map(|(path, _)| path).collect()
    }

    /// Hands an event to those who watched the node up to a number, if it came on the connection
    /// that counts.
    pub(crate) fn fire(&self, connection: u64, path: &str, up_to: u64, event: NodeEvent) {
        let mut table = self.lock();
        if table.connection != connection {
            return;
        }
        if !table.anywhere.is_empty() {
            table.unclear.push((path.to_owned(), up_to, event));
        }
        let Some(watches) = table.by_path.get_mut(path) else {
            return;
        };
        let later = watches.split_off(&up_to.saturating_add(1));
        let told = std::mem::replace(watches, later);
        if watches.is_empty() {
            table.by_path.remove(path);
        }
        for watch in told.into_values() {
            // Whoever no longer waits does not want to know.
            let _ = watch.event.send(event);
        }
    }

    /// From now on only events of this connection count. Spare watches were of the connection before.
    pub(crate) fn count_on(&self, connection: u64) {
        let mut table = self.lock();
        table.connection = connection;
        table.unclear.clear();
        for (path, spares) in std::mem::take(&mut table.spares) {
            for spare in spares {
                table.remove(&path, spare.number);
            }
        }
    }

    /// The watches that the server had confirmed, in the order of their numbers.
    pub(crate) fn confirmed(&self) -> Vec<Rewatch> {
        let table = self.lock();
        let all = table
            .by_path
            .iter()
            .flat_map(|(path, watches)| watches.iter().map(move |watch| (path, watch)));
        let mut confirmed: Vec<_> = all
            .filter_map(|(path, (number, watch))| {
                Some(Rewatch {
                    number: *number,
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
        for watch in by_path.into_values().flat_map(BTreeMap::into_values) {
            let _ = watch.event.send(NodeEvent::SessionEnded);
        }
    }
}

impl Table {
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn insert(&mut self, path: &str, number: u64, watch: Watch) {
        if let Some(watches) = self.by_path.get_mut(path) {
            watches.insert(number, watch);
        } else {
            let watches = BTreeMap::from([(number, watch)]);
            self.by_path.insert(path.to_owned(), watches);
        }
    }

    /// Whether it was the last on its path.
    fn remove(&mut self, path: &str, number: u64) -> bool {
        let Some(watches) = self.by_path.get_mut(path) else {
            return false;
        };
        watches.remove(&number);
        let is_last = watches.is_empty();
        if is_last {
            self.by_path.remove(path);
        }
        is_last
    }

    /// Events are kept for watches without a path only.
    fn forget_unclear(&mut self) {
        if self.anywhere.is_empty() {
            self.unclear.clear();
        }
    }
}

impl Anywhere<'_> {
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.unbound.iter().map(|(number, _)| *number)
    }

    /// The server has put the watch with this number on a node.
    pub(crate) fn bind(&mut self, number: u64, path: &str, data: Vec<u8>, stat: NodeStat) {
        let mut table = self.watches.lock();
        let place = self.unbound.iter().position(|(it, _)| *it == number);
        let (Some(place), Some(event)) = (place, table.anywhere.remove(&number)) else {
            return;
        };
        let (_, news) = self.unbound.swap_remove(place);
        let is_this = |it: &&(String, u64, NodeEvent)| it.0 == path && it.1 >= number;
        let happened = table.unclear.iter().find(is_this).map(|it| it.2);
        match happened {
            Some(happened) => {
                let _ = event.send(happened);
            }
            None => {
                let seen = Some(Seen::from(&stat));
                table.insert(path, number, Watch { seen, event });
            }
        }
        let spare = Spare {
            number,
            news,
            data,
            stat,
            since: Instant::now(),
        };
        table.spares.entry(path.to_owned()).or_default().push(spare);
        table.forget_unclear();
    }
}

impl Drop for Anywhere<'_> {
    fn drop(&mut self) {
        let mut table = self.watches.lock();
        for (number, _) in &self.unbound {
            table.anywhere.remove(number);
        }
        table.forget_unclear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Seen = Seen { czxid: 1, mzxid: 1 };

    fn stat() -> NodeStat {
        NodeStat::new(1, 1, 0, 0, 0)
    }

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

    #[test]
    fn event_that_comes_before_the_server_has_said_where_is_not_missed() {
        let watches = Watches::default();
        let mut anywhere = watches.enter_anywhere(2);
        let [one, two] = anywhere.numbers().collect::<Vec<_>>()[..] else {
            panic!("two")
        };
        watches.fire(0, "/a", one, NodeEvent::Deleted);
        anywhere.bind(one, "/a", Vec::new(), stat());
        anywhere.bind(two, "/b", Vec::new(), stat());
        drop(anywhere);
        let mut spare = watches.take_spare("/a").unwrap();
        assert_eq!(spare.news.try_recv(), Ok(NodeEvent::Deleted));
        let mut spare = watches.take_spare("/b").unwrap();
        assert!(spare.news.try_recv().is_err());
        watches.fire(0, "/b", two, NodeEvent::Changed);
        assert_eq!(spare.news.try_recv(), Ok(NodeEvent::Changed));
        assert!(watches.lock().unclear.is_empty());
    }

    #[test]
    fn spare_watch_is_given_up_when_nobody_wants_it_or_its_connection_is_gone() {
        let watches = Watches::default();
        let spare = |path: &str| {
            let mut anywhere = watches.enter_anywhere(1);
            let number = anywhere.numbers().next().unwrap();
            anywhere.bind(number, path, Vec::new(), stat());
        };
        spare("/a");
        spare("/b");
        let (_, _news) = watches.enter("/b");
        let dropped = watches.drop_spares(Instant::now());
        assert_eq!(dropped, ["/a"], "somebody watches /b");
        assert!(watches.take_spare("/b").is_none());
        spare("/c");
        watches.count_on(1);
        assert!(watches.take_spare("/c").is_none());
        assert!(watches.confirmed().is_empty());
    }
}
