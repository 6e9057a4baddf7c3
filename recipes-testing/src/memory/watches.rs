//! One-shot watches on data and deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::task::{Poll, Waker};

use recipes_core::NodeEvent;
use tokio::time::Instant;

/// An event on its way to the client; `None` is at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fired {
    pub(super) event: NodeEvent,
    pub(super) due: Option<Instant>,
}

#[derive(Debug)]
struct Watch {
    session: i64,
    path: String,
    fired: Option<Fired>,
    waker: Option<Waker>,
}

/// All watches of all sessions, by number.
#[derive(Debug, Default)]
pub(super) struct Watches {
    last: u64,
    watches: BTreeMap<u64, Watch>,
    armed: BTreeMap<String, BTreeSet<u64>>,
}

impl Watches {
    pub(super) fn add(&mut self, session: i64, path: &str) -> u64 {
        self.last += 1;
        let watch = Watch {
            session,
            path: path.to_owned(),
            fired: None,
            waker: None,
        };
        self.watches.insert(self.last, watch);
        self.armed
            .entry(path.to_owned())
            .or_default()
            .insert(self.last);
        self.last
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some(watch) = self.watches.remove(&number) {
            self.disarm(number, &watch.path);
        }
    }

    /// Armed watches of all sessions on a path: number and session, oldest first.
    pub(super) fn armed_on(&self, path: &str) -> Vec<(u64, i64)> {
        let numbers = self.armed.get(path).into_iter().flatten();
        numbers
            .filter_map(|n| Some((*n, self.watches.get(n)?.session)))
            .collect()
    }

    /// Armed watches of a session on all paths: number and path, oldest first.
    pub(super) fn armed_of(&self, session: i64) -> Vec<(u64, String)> {
        self.watches
            .iter()
            .filter(|(_, watch)| watch.session == session && watch.fired.is_none())
            .map(|(number, watch)| (*number, watch.path.clone()))
            .collect()
    }

    pub(super) fn armed_count(&self) -> usize {
        self.armed.values().map(BTreeSet::len).sum()
    }

    /// Fires a watch; returns who has to be woken.
    pub(super) fn fire(&mut self, number: u64, fired: Fired) -> Option<Waker> {
        let watch = self.watches.get_mut(&number)?;
        watch.fired = Some(fired);
        let (path, waker) = (watch.path.clone(), watch.waker.take());
        self.disarm(number, &path);
        waker
    }

    pub(super) fn poll(&mut self, number: u64, waker: &Waker) -> Poll<Fired> {
        let Some(watch) = self.watches.get_mut(&number) else {
            return Poll::Ready(Fired {
                event: NodeEvent::SessionEnded,
                due: None,
            });
        };
        watch.waker = Some(waker.clone());
        watch.fired.map_or(Poll::Pending, Poll::Ready)
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
