//! The names of nodes: ours, those of clients that give no uuid, and those that are no lock's.

use super::*;
use crate::names::node_name;

/// Lock nodes without a uuid are numbered from here. Such a name shows only kind and sequence, so a
/// re-created node looks like the one before it.
const STRANGERS: u8 = 100;
/// How many sequences are distinguished among strangers of one kind.
const SEQUENCES: u8 = 32;
/// Nodes that are no lock's are numbered from here.
const FOREIGN: u8 = 200;

const KINDS: [LockKind; 4] = [
    LockKind::Mutex,
    LockKind::Read,
    LockKind::Write,
    LockKind::Permit,
];

/// A name that is no lock's, ahead of all lock nodes or after them. If it is ahead, it keeps some
/// kinds waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Foreign {
    /// Ahead of writers and of mutexes; readers ignore it.
    Front,
    /// Ahead of readers and writers.
    Writer,
    /// After all.
    Back,
}

impl Foreign {
    const ALL: [Self; 3] = [Self::Front, Self::Writer, Self::Back];

    fn name(self) -> &'static str {
        match self {
            Self::Front => "-foreign",
            Self::Writer => "__WRIT__",
            Self::Back => "foreign",
        }
    }

    pub(super) fn mark(self) -> Mark {
        let (kind, sequence) = match self {
            Self::Front => (LockKind::Read, i32::MIN),
            Self::Writer => (LockKind::Write, i32::MIN),
            Self::Back => (LockKind::Read, i32::MAX),
        };
        let id = FOREIGN + self as u8;
        Mark { id, kind, sequence }
    }
}

/// What the name of a node shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    pub(super) id: u8,
    pub(super) kind: LockKind,
    pub(super) sequence: i32,
}

impl Mark {
    /// The mark of a lock node of a client that gives no uuid.
    pub(super) fn stranger(kind: LockKind, sequence: i32) -> Self {
        let low = sequence.rem_euclid(i32::from(SEQUENCES));
        let id = STRANGERS + kind as u8 * SEQUENCES + u8::try_from(low).unwrap();
        Self { id, kind, sequence }
    }

    pub(super) fn of(name: &str) -> Self {
        if let Some(foreign) = Foreign::ALL.into_iter().find(|it| it.name() == name) {
            return foreign.mark();
        }
        let kind = KINDS.into_iter().find(|it| name.contains(it.marker()));
        let (kind, sequence) = (kind.unwrap(), node_name::count(name).unwrap());
        let id = name.get(27..39).map(|id| id.parse().unwrap());
        match id {
            Some(id) => Self { id, kind, sequence },
            None => Self::stranger(kind, sequence),
        }
    }

    pub(super) fn name(self) -> String {
        let (id, marker, sequence) = (self.id, self.kind.marker(), self.sequence);
        match id {
            FOREIGN.. => Foreign::ALL[usize::from(id - FOREIGN)].name().to_owned(),
            STRANGERS.. => format!("{marker}{sequence:010}"),
            _ => format!("_c_00000000-0000-4000-8000-{id:012}-{marker}{sequence:010}"),
        }
    }

    pub(super) fn is_lock(self) -> bool {
        self.id < FOREIGN
    }

    /// Whether it may hold, and no newcomer of its kind gets ahead: a lock node below the end of
    /// the counter.
    pub(super) fn is_in_order(self) -> bool {
        self.is_lock() && (0..i32::MAX).contains(&self.sequence)
    }
}

/// The number of a node, from its name.
pub(super) fn id_of(name: &str) -> u8 {
    Mark::of(name).id
}
