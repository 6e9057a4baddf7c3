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
pub struct Watches(Mutex<Table>);

#[derive(Default)]
struct Table {
    number: u64,
    by_path: HashMap<String, BTreeMap<u64, Watch>>,
    /// Watches of which the server has not yet said what they are on.
    anywhere: BTreeMap<u64, oneshot::Sender<NodeEvent>>,
    /// Events that may be for those.
    unclear: Vec<(String, u64, NodeEvent)>,
    /// Nodes that the server is requested to watch no more. That may hit a watch without a path.
    unwatched: Vec<String>,
    spares: HashMap<String, Vec<Spare>>,
    /// The connection whose events count.
    connection: u64,
}

struct Watch {
    /// What the node was like when it was watched; `None` until the server has answered.
    seen: Option<Seen>,
    event: oneshot::Sender<NodeEvent>,
}

/// The transactions that created a node and last changed its data, and the session that it goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Created it.
    pub czxid: i64,
    /// Last changed its data.
    pub mzxid: i64,
    /// The session that the node goes with, or 0.
    pub owner: i64,
}

impl From<&NodeStat> for Seen {
    fn from(stat: &NodeStat) -> Self {
        Self {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            owner: stat.ephemeral_owner,
        }
    }
}

/// A watch that the server has set: to be set again on a new connection, or to be compared with what
/// the node is like now.
#[derive(Clone, Debug)]
pub struct Rewatch {
    /// Rises from watch to watch.
    pub number: u64,
    /// The node.
    pub path: String,
    /// What the node was like when it was watched.
    pub seen: Seen,
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

    /// Enters a watch, whose request is sent next. A store's own crate needs this and
    /// [`confirm`](Self::confirm) in its tests only.
    pub fn enter(&self, path: &str) -> (u64, oneshot::Receiver<NodeEvent>) {
        let (event, news) = oneshot::channel();
        let mut table = self.lock();
        let number = table.next_number();
        table.insert(path, number, Watch { seen: None, event });
        (number, news)
    }

    /// Enters watches on nodes that the server chooses. Returns the first of their numbers, too.
    pub(crate) fn enter_anywhere(&self, count: usize) -> (u64, Anywhere<'_>) {
        let mut table = self.lock();
        let first = table.number + 1;
        let mut unbound = Vec::with_capacity(count);
        for _ in 0..count {
            let (event, news) = oneshot::channel();
            let number = table.next_number();
            table.anywhere.insert(number, event);
            unbound.push((number, news));
        }
        let anywhere = Anywhere {
            watches: self,
            unbound,
        };
        (first, anywhere)
    }

    /// The server has set a watch on a node like this.
    pub fn confirm(&self, path: &str, number: u64, seen: Seen) {
        let mut table = self.lock();
        let watches = table.by_path.get_mut(path);
        if let Some(watch) = watches.and_then(|watches| watches.get_mut(&number)) {
            watch.seen = Some(seen);
        }
    }

    /// Removes a watch. Returns whether it was the last on its path, so that the caller now requests
    /// the server to watch it no more.
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
    pub fn fire(&self, connection: u64, path: &str, up_to: u64, event: NodeEvent) {
        let mut table = self.lock();
        if table.connection != connection {
            return;
        }
        // What happened before the first of them was asked for is not for them.
        if table
            .anywhere
            .first_key_value()
            .is_some_and(|(first, _)| *first <= up_to)
        {
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
        table.anywhere.clear();
        table.forget_unclear();
        for (path, spares) in std::mem::take(&mut table.spares) {
            for spare in spares {
                table.remove(&path, spare.number);
            }
        }
    }

    /// Whether somebody has asked for a watch that is not [confirmed](Self::confirmed) yet.
    pub fn are_awaited(&self) -> bool {
        let table = self.lock();
        let is_new = |watch: &Watch| watch.seen.is_none();
        let mut by_path = table.by_path.values();
        !table.anywhere.is_empty() || by_path.any(|watches| watches.values().any(is_new))
    }

    /// The number of the last watch on a node.
    pub fn last_on(&self, path: &str) -> Option<u64> {
        let table = self.lock();
        table.by_path.get(path)?.keys().next_back().copied()
    }

    /// The watches that the server had confirmed, in the order of their numbers.
    pub fn confirmed(&self) -> Vec<Rewatch> {
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
        // In an order that two runs share.
        let watches: BTreeMap<_, _> = by_path.into_values().flatten().collect();
        for watch in watches.into_values() {
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
            if !self.anywhere.is_empty() {
                self.unwatched.push(path.to_owned());
            }
        }
        is_last
    }

    /// Events and removals are kept for watches without a path only.
    fn forget_unclear(&mut self) {
        if self.anywhere.is_empty() {
            self.unclear.clear();
            self.unwatched.clear();
        }
    }
}

impl Anywhere<'_> {
    /// The server has put the watch with this number on a node.
    pub(crate) fn bind(&mut self, number: u64, path: &str, data: Vec<u8>, stat: NodeStat) {
        let mut table = self.watches.lock();
        let place = self.unbound.iter().position(|(it, _)| *it == number);
        let (Some(place), Some(event)) = (place, table.anywhere.remove(&number)) else {
            return;
        };
        let (_, news) = self.unbound.swap_remove(place);
        if table.unwatched.iter().any(|it| it == path) {
            // The server may have removed this watch with the one before it, and nobody would learn
            // of a deletion. Whoever wants a watch requests another.
            return;
        }
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
mod tests;
