//! The ensemble of the model: one history of transactions, and for each session a replica that may
//! lag behind it, but never goes back.

use super::*;

/// A lock node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    /// Counts the creations; stands for the uuid.
    pub(super) id: u8,
    /// The same for nodes of one transaction.
    pub(super) czxid: u8,
    pub(super) dir: u8,
    pub(super) kind: LockKind,
    pub(super) sequence: u8,
    pub(super) client: u8,
    pub(super) epoch: u8,
}

impl Lock {
    pub(super) fn name(&self) -> String {
        let Self {
            id, kind, sequence, ..
        } = *self;
        Mark { id, kind, sequence }.name()
    }

    /// Whether this one keeps `other` from holding; never among the nodes of one contender.
    fn is_ahead_of(&self, other: &Self) -> bool {
        let conflicts = self.kind != LockKind::Read || other.kind != LockKind::Read;
        self.dir == other.dir
            && self.client != other.client
            && conflicts
            && self.sequence <= other.sequence
    }
}

/// What the name of a node tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    pub(super) id: u8,
    kind: LockKind,
    sequence: u8,
}

impl Mark {
    pub(super) fn of(name: &str) -> Self {
        let kinds = [LockKind::Mutex, LockKind::Read, LockKind::Write];
        let kind = kinds.into_iter().find(|it| name.contains(it.marker()));
        let sequence = node_name::sequence(name).and_then(|it| u8::try_from(it).ok());
        Self {
            id: id_of(name),
            kind: kind.unwrap(),
            sequence: sequence.unwrap(),
        }
    }

    pub(super) fn name(self) -> String {
        let (id, marker, sequence) = (self.id, self.kind.marker(), self.sequence);
        format!("_c_00000000-0000-4000-8000-{id:012}-{marker}{sequence:010}")
    }
}

/// The number of a node, from its name.
pub(super) fn id_of(name: &str) -> u8 {
    name.get(27..39).and_then(|id| id.parse().ok()).unwrap()
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
    pub(super) next: u8,
    /// The highest tokens granted, of writers (and mutexes) and of anybody.
    pub(super) tokens: (u8, u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Ensemble {
    pub(super) dirs: Vec<Dir>,
    pub(super) locks: Vec<Lock>,
    pub(super) created: u8,
    /// The latest transactions, as many as some replica has not applied.
    pub(super) log: Vec<Vec<Change>>,
}

impl Ensemble {
    pub(super) fn lock(&self, id: u8) -> Option<&Lock> {
        self.locks.iter().find(|lock| lock.id == id)
    }

    pub(super) fn commit(&mut self, changes: Vec<Change>) {
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
        for lock in self.locks.iter_mut().chain(logged) {
            lock.client = numbers[usize::from(lock.client)];
        }
    }

    pub(super) fn make(&mut self, dir: u8, kind: LockKind, client: u8, epoch: u8) -> Lock {
        let counter = &mut self.dirs[usize::from(dir)].next;
        let sequence = *counter;
        *counter += 1;
        self.created += 1;
        let id = self.created;
        Lock {
            id,
            czxid: id,
            dir,
            kind,
            sequence,
            client,
            epoch,
        }
    }

    /// What a replica shows that has not applied this many of the last transactions.
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

/// Whether a node exists and nothing that conflicts with it is ahead of it.
pub(super) fn is_front(locks: &[Lock], id: u8) -> bool {
    let own = locks.iter().find(|lock| lock.id == id);
    own.is_some_and(|own| !locks.iter().any(|other| other.is_ahead_of(own)))
}

pub(super) fn conflict(a: &Lock, b: &Lock) -> bool {
    a.is_ahead_of(b) || b.is_ahead_of(a)
}
