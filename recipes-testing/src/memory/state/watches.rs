//! One-shot watches on data and deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Poll, Waker};

use recipes_core::NodeEvent;
use tokio::time::Instant;

use super::State;
use super::session::Delivery;
use crate::memory::tree::node_path::NodePath;

/// An event in flight to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fired {
    pub(crate) event: NodeEvent,
    pub(crate) delivery: Delivery,
}

#[derive(Debug)]
struct Watch {
    session: i64,
    path: String,
    /// Last change of the data when the watch was set.
    since: i64,
    fired: Option<Fired>,
    waker: Option<Waker>,
}

/// All watches of all sessions, by number.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    last: u64,
    watches: BTreeMap<u64, Watch>,
    armed: BTreeMap<String, BTreeSet<u64>>,
}

impl Watches {
    pub(crate) fn add(&mut self, session: i64, path: &str, since: i64) -> u64 {
        self.last += 1;
        let watch = Watch {
            session,
            path: path.to_owned(),
            since,
            fired: None,
            waker: None,
        };
        self.watches.insert(self.last, watch);
        self.arm(self.last, path);
        self.last
    }

    /// Removes a watch; returns a waker to drop.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Waker> {
        let watch = self.watches.remove(&number)?;
        self.disarm(number, &watch.path);
        watch.waker
    }

    /// Armed watches of all sessions on a path: number and session, oldest first.
    pub(crate) fn armed_on(&self, path: &str) -> Vec<(u64, i64)> {
        let numbers = self.armed.get(path).into_iter().flatten();
        numbers
            .filter_map(|n| Some((*n, self.watches.get(n)?.session)))
            .collect()
    }

    /// Armed watches of a session on all paths, oldest first: number, path, and the last change of
    /// the data when the watch was set.
    pub(crate) fn armed_of(&self, session: i64) -> Vec<(u64, String, i64)> {
        self.watches
            .iter()
            .filter(|(_, watch)| watch.session == session && watch.fired.is_none())
            .map(|(number, watch)| (*number, watch.path.clone(), watch.since))
            .collect()
    }

    pub(crate) fn armed_count(&self) -> usize {
        self.armed.values().map(BTreeSet::len).sum()
    }

    /// Fires a watch. Returns a waker to wake.
    pub(crate) fn fire(&mut self, number: u64, fired: Fired) -> Option<Waker> {
        let watch = self.watches.get_mut(&number)?;
        watch.fired = Some(fired);
        let (path, waker) = (watch.path.clone(), watch.waker.take());
        self.disarm(number, &path);
        waker
    }

    /// Takes back the events of a session that have not arrived, so its watches are armed again.
    /// Returns the last transaction that the arrived events report.
    pub(crate) fn recall(&mut self, session: i64, now: Instant) -> i64 {
        let (mut again, mut known) = (Vec::new(), 0);
        for (number, watch) in &mut self.watches {
            let Some(fired) = watch.fired.filter(|_| watch.session == session) else {
                continue;
            };
            if fired.delivery.due.is_some_and(|due| due > now) {
                watch.fired = None;
                again.push((*number, watch.path.clone()));
            } else {
                known = known.max(fired.delivery.zxid);
            }
        }
        for (number, path) in again {
            self.arm(number, &path);
        }
        known
    }

    /// The last transaction that the arrived events of a session report.
    pub(crate) fn told(&self, session: i64, now: Instant) -> i64 {
        let own = self.watches.values().filter(|it| it.session == session);
        let deliveries = own.filter_map(|watch| Some(watch.fired?.delivery));
        let arrived = deliveries.filter(|it| it.due.is_none_or(|due| due <= now));
        arrived.map(|it| it.zxid).max().unwrap_or(0)
    }

    /// The event of a watch, if it has fired; and a waker to drop.
    pub(crate) fn poll(&mut self, number: u64, waker: &Waker) -> (Poll<Fired>, Option<Waker>) {
        let Some(watch) = self.watches.get_mut(&number) else {
            let (event, delivery) = (NodeEvent::SessionEnded, Delivery::default());
            return (Poll::Ready(Fired { event, delivery }), None);
        };
        let old = watch.waker.replace(waker.clone());
        (watch.fired.map_or(Poll::Pending, Poll::Ready), old)
    }

    pub(crate) fn session_of(&self, number: u64) -> Option<i64> {
        self.watches.get(&number).map(|watch| watch.session)
    }

    fn arm(&mut self, number: u64, path: &str) {
        self.armed
            .entry(path.to_owned())
            .or_default()
            .insert(number);
    }

    fn disarm(&mut self, number: u64, path: &str) {
        if let Some(numbers) = self.armed.get_mut(path) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.armed.remove(path);
            }
        }
    }
}

impl State {
    // As the server's SetWatches: a node that was deleted and re-created has changed. The client
    // names its watches in the order of a hash map. Their events arrive in this order, before any
    // reply on this connection.
    pub(crate) fn set_watches_again(&mut self, session: i64) {
        let mut told = Vec::new();
        for (number, path, since) in self.watches.armed_of(session) {
            let node = NodePath::parse(&path)
                .ok()
                .and_then(|path| self.tree_of(session).get(&path));
            match node.map(|node| node.stat()) {
                None => told.push((number, NodeEvent::Deleted)),
                Some(stat) if stat.mzxid > since => told.push((number, NodeEvent::Changed)),
                Some(_) => {}
            }
        }
        self.random.shuffle(&mut told);
        for (number, event) in told {
            self.fire_again(number, session, event);
        }
        if let Some(record) = self.sessions.get_mut(&session) {
            record.caught_up = record.last_due.unwrap_or_else(Instant::now);
        }
    }
}
