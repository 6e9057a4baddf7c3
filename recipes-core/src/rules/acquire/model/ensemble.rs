//! The ensemble of the model: one history of transactions, and for each session a replica that may
//! lag behind it but never goes back.

use super::names::{Foreign, Mark};
use super::*;

/// Takes the place of a contender's number: another client, of which nothing is known.
const STRANGER: u8 = u8::MAX;

/// A lock node, or another node among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    /// Counts the creations; stands for the uuid.
    pub(super) id: u8,
    /// The same for nodes of one transaction.
    pub(super) czxid: u8,
    pub(super) dir: u8,
    pub(super) kind: LockKind,
    pub(super) sequence: i32,
    pub(super) client: u8,
    pub(super) epoch: u8,
}

impl Lock {
    pub(super) fn mark(&self) -> Mark {
        let Self {
            id, kind, sequence, ..
        } = *self;
        Mark { id, kind, sequence }
    }

    pub(super) fn is_strange(&self) -> bool {
        self.client == STRANGER
    }

    /// Whether this node keeps `other` from holding. Nodes of one contender never do.
    fn is_ahead_of(&self, other: &Self) -> bool {
        let conflicts = self.kind != LockKind::Read || other.kind != LockKind::Read;
        self.dir == other.dir
            && self.client != other.client
            && conflicts
            && self.sequence <= other.sequence
    }
}

/// What another client puts into the first directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stranger {
    /// A lock node of a client that gives no uuid.
    Lock(LockKind),
    /// A node that is no lock node.
    Foreign(Foreign),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Made(Lock),
    Gone(Lock),
    Data(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Dir {
    pub(super) exists: bool,
    /// The number of the next sequential node.
    pub(super) next: i32,
    /// The highest tokens granted: to writers (and mutexes), and to all.
    pub(super) tokens: (u8, u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ensemble {
    pub(super) dirs: Vec<Dir>,
    pub(super) locks: Vec<Lock>,
    /// Whether counters go on below zero.
    pub(super) wraps: bool,
    /// Whether watches report that a node was the first.
    pub(super) tells_first: bool,
    pub(super) created: u8,
    /// What an operator has deleted, until something else is written: the store may forget that.
    pub(super) unsaved: Option<Lock>,
    /// The latest transactions, as many as the slowest replica has not applied.
    pub(super) log: Vec<Vec<Change>>,
}

impl Ensemble {
    pub(super) fn lock(&self, id: u8) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.id == id)
    }

    pub(super) fn commit(&mut self, changes: Vec<Change>) {
        self.unsaved = None;
        for change in &changes {
            match change {
                Change::Made(lock) => self.locks.push(lock.clone()),
                Change::Gone(lock) => self.locks.retain(|it| it.id != lock.id),
                Change::Data(_) => {}
            }
        }
        self.log.push(changes);
    }

    pub(super) fn renumber(&mut self, numbers: &[u8]) {
        let logged = self.log.iter_mut().flatten();
        let logged = logged.filter_map(|change| match change {
            Change::Made(lock) | Change::Gone(lock) => Some(lock),
            Change::Data(_) => None,
        });
        let known = self.locks.iter_mut().chain(logged).chain(&mut self.unsaved);
        for lock in known.filter(|it| !it.is_strange()) {
            lock.client = numbers[usize::from(lock.client)];
        }
    }

    /// Returns the number of the next sequential node of a directory. At its end the counter goes
    /// on below zero, as on servers before 3.6, or stands still.
    pub(super) fn count(&mut self, dir: u8) -> i32 {
        let counter = &mut self.dirs[usize::from(dir)].next;
        let next = match self.wraps {
            true => counter.wrapping_add(1),
            false => counter.saturating_add(1),
        };
        std::mem::replace(counter, next)
    }

    pub(super) fn make(&mut self, dir: u8, kind: LockKind, sequence: i32) -> Lock {
        self.created += 1;
        let id = self.created;
        Lock {
            id,
            czxid: id,
            dir,
            kind,
            sequence,
            client: STRANGER,
            epoch: 0,
        }
    }

    /// The directories that exist and have no children.
    pub(super) fn reapable(&self) -> impl Iterator<Item = usize> + use<'_> {
        let is_empty = |dir: usize| !self.locks.iter().any(|it| usize::from(it.dir) == dir);
        let dirs = self.dirs.iter().enumerate();
        dirs.filter(move |(dir, it)| it.exists && is_empty(*dir))
            .map(|(dir, _)| dir)
    }

    /// The server deletes an empty directory; the counter of the next one starts over.
    pub(super) fn reap(&mut self, dir: usize) {
        let dir = &mut self.dirs[dir];
        (dir.exists, dir.next) = (false, 0);
    }

    /// Makes another client's node; `None` if there is no directory or the name is taken.
    pub(super) fn make_strange(&mut self, stranger: Stranger) -> Option<Lock> {
        let dir = 0;
        let mark = match stranger {
            Stranger::Lock(kind) => Mark::stranger(kind, self.count(dir)),
            Stranger::Foreign(foreign) => foreign.mark(),
        };
        let Mark { id, kind, sequence } = mark;
        let is_free = self.dirs[usize::from(dir)].exists && self.lock(id).is_none();
        is_free.then(|| Lock {
            id,
            ..self.make(dir, kind, sequence)
        })
    }

    /// Whether watches report of a node, when it is deleted, that the replica shows none ahead of it.
    pub(super) fn tells_of_first(&self, gone: &Lock, lag: usize) -> bool {
        let seen = || self.seen(lag);
        let is_ahead = |it: &Lock| it.dir == gone.dir && it.sequence < gone.sequence;
        self.tells_first && gone.sequence > 0 && !seen().iter().any(is_ahead)
    }

    /// The nodes that a replica shows if it has not applied this many of the last transactions.
    pub(super) fn seen(&self, lag: usize) -> Vec<Lock> {
        let mut locks = self.locks.clone();
        for change in self.log.iter().rev().take(lag).flatten() {
            match change {
                Change::Made(lock) => locks.retain(|it| it.id != lock.id),
                Change::Gone(lock) => locks.push(lock.clone()),
                Change::Data(_) => {}
            }
        }
        locks.sort_by_key(|lock| lock.id);
        locks
    }
}

/// Whether a node exists and nothing that conflicts with it is ahead of it; of leases, not as many as
/// there are permits.
pub(super) fn is_front(locks: &[Lock], id: u8) -> bool {
    let Some(own) = locks.iter().find(|lock| lock.id == id) else {
        return false;
    };
    if own.kind != LockKind::Permit {
        return !locks.iter().any(|other| other.is_ahead_of(own));
    }
    let is_ahead = |it: &&Lock| it.dir == own.dir && it.sequence < own.sequence;
    locks.iter().filter(is_ahead).count() < PERMITS
}

/// Whether both cannot be held at a time.
pub(super) fn conflict(a: &Lock, b: &Lock) -> bool {
    let is_permit = a.kind == LockKind::Permit && b.kind == LockKind::Permit;
    !is_permit && (a.is_ahead_of(b) || b.is_ahead_of(a))
}
