//! Who holds and who waits for whom, read off the nodes of a lock directory.
//!
//! The order and who stands in whose way are the locks' own ([`Rank`], [`admission`]); what is
//! decided here is how much of it is told.

use std::collections::BTreeMap;

use crate::admission;
use crate::inspect::{Recipe, Standing};
use crate::node_name::{self, LockKind};
use crate::wait_queue::Rank;

/// A child of a lock directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child<'a> {
    pub(crate) name: &'a str,
    /// The session that it goes with, 0 if it is not ephemeral.
    pub(crate) session: i64,
}

impl Child<'_> {
    /// The kind of lock that somebody contends for by this node; nobody does by one that is not
    /// ephemeral, whatever its name.
    pub(crate) fn mode(&self) -> Option<LockKind> {
        node_name::kind(self.name).filter(|_| self.session != 0)
    }
}

/// One child and what is said about it; children go by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) child: usize,
    pub(crate) mode: Option<LockKind>,
    /// Those that are waited for, nearest first. Empty for a holder, and for one that does not
    /// contend.
    pub(crate) waits_for: Vec<usize>,
}

impl Place {
    /// The same, in words for others.
    pub(crate) fn standing(&self, path_of: impl Fn(usize) -> Option<String>) -> Standing {
        match (self.mode, self.waits_for.as_slice()) {
            (None, _) => Standing::Stranger,
            (Some(_), []) => Standing::Holds,
            (Some(_), ahead) => {
                Standing::WaitsFor(ahead.iter().filter_map(|it| path_of(*it)).collect())
            }
        }
    }
}

/// The recipe that these contenders use.
pub(crate) fn recipe(modes: impl IntoIterator<Item = LockKind>) -> Recipe {
    let (mut mutex, mut reads_and_writes) = (false, false);
    for mode in modes {
        match mode {
            LockKind::Mutex => mutex = true,
            LockKind::Read | LockKind::Write => reads_and_writes = true,
        }
    }
    match (mutex, reads_and_writes) {
        (true, false) => Recipe::Mutex,
        (false, true) => Recipe::ReadWrite,
        (true, true) | (false, false) => Recipe::Unknown,
    }
}

/// Everybody in the order of admission.
///
/// Where both recipes use a directory each has its own order, in which the other's nodes are
/// strangers; the mutex's come first then.
pub(crate) fn places(children: &[Child<'_>]) -> Vec<Place> {
    let modes = || children.iter().filter_map(Child::mode);
    let reads_and_writes = |mode: LockKind| mode.counterpart().is_some();
    match recipe(modes()) {
        Recipe::Mutex => queue(LockKind::Mutex, children),
        Recipe::ReadWrite => queue(LockKind::Write, children),
        Recipe::Unknown => {
            let is_theirs = |place: &Place| place.mode.is_some_and(reads_and_writes);
            let mut places = queue(LockKind::Mutex, children);
            places.retain(|place| !is_theirs(place));
            let theirs = queue(LockKind::Write, children).into_iter();
            places.extend(theirs.filter(is_theirs));
            places
        }
    }
}

/// The queue as the recipe of `kind` sees it.
fn queue(kind: LockKind, children: &[Child<'_>]) -> Vec<Place> {
    let mut sorted: Vec<_> = children.iter().enumerate().collect();
    sorted.sort_by_cached_key(|(_, child)| Rank::new(kind, child.name));
    let mut ahead_of_one = Ahead::of(kind);
    let mut ahead_of_readers = Ahead::of(LockKind::Read);
    // What writers wait for, by session and sequence: those that a reader may stand beside.
    let mut writers = BTreeMap::new();
    let mut places = Vec::with_capacity(sorted.len());
    for (index, child) in sorted {
        let mode = child.mode();
        let beside = (child.session, node_name::sequence(child.name));
        let waits_for = match mode {
            // The reader of a writer's owner is admitted with the writer.
            Some(LockKind::Read) => match writers.get(&beside) {
                Some(waits_for) => Vec::clone(waits_for),
                None => ahead_of_readers.nearest_first(),
            },
            Some(mode) if mode == kind => ahead_of_one.nearest_first(),
            _ => Vec::new(),
        };
        if mode == Some(LockKind::Write) {
            writers.insert(beside, waits_for.clone());
        }
        ahead_of_one.add(index, child.name, mode);
        ahead_of_readers.add(index, child.name, mode);
        places.push(Place {
            child: index,
            mode,
            waits_for,
        });
    }
    places
}

/// What a contender of one kind would have to wait for at this point of the queue: back to the
/// nearest that waits itself for whatever is further ahead.
///
/// So a queue of n contenders has about n such relations, not n².
struct Ahead {
    kind: LockKind,
    children: Vec<usize>,
}

impl Ahead {
    fn of(kind: LockKind) -> Self {
        let children = Vec::new();
        Self { kind, children }
    }

    fn add(&mut self, index: usize, name: &str, mode: Option<LockKind>) {
        let waits_for_all = match self.kind {
            LockKind::Mutex => LockKind::Mutex,
            LockKind::Read | LockKind::Write => LockKind::Write,
        };
        if mode == Some(waits_for_all) {
            self.children.clear();
        }
        if admission::blocks(self.kind, name) {
            self.children.push(index);
        }
    }

    fn nearest_first(&self) -> Vec<usize> {
        self.children.iter().rev().copied().collect()
    }
}
