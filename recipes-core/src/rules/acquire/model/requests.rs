//! The requests of a contender, and what comes back.

use super::names::Mark;
use super::*;

/// What is in flight or watched; at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    Members,
    List(usize),
    Stat(usize),
    OwnWatch(usize),
    /// The own watch, once it is set and the driver knows of it.
    Own(usize),
    Blocker(usize, Mark),
}

impl Slot {
    pub(super) fn is_of(self, member: usize) -> bool {
        match self {
            Self::Members => false,
            Self::List(it) | Self::Stat(it) | Self::OwnWatch(it) | Self::Own(it) => it == member,
            Self::Blocker(it, _) => it == member,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Probe,
    Parents(Vec<usize>),
    /// A create and, once it is carried out, what is known of it.
    Enter(Vec<usize>, Option<Entering>),
    Search(Vec<usize>),
    /// The rest of a search after its commit.
    Find(Vec<usize>),
    Commit,
    List(usize),
    Read(u8),
    Watch(u8),
    /// The client sets a watch again on another connection, in any order.
    Rewatch(u8),
    Delete(Vec<u8>),
}

/// A create that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Entering {
    pub(super) entries: Vec<Entry>,
    /// Members still to be listed.
    pub(super) unlisted: Vec<usize>,
    /// Nodes that were in front when they were listed.
    pub(super) shown: Vec<u8>,
}

/// A request that was sent. Without a slot, nothing waits for the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) slot: Option<Slot>,
    pub(super) what: What,
    /// Sent before the deadline passed, so its answer does not extend the deadline.
    pub(super) is_old: bool,
}

impl Request {
    pub(super) fn new(slot: Option<Slot>, what: What) -> Self {
        Self {
            slot,
            what,
            is_old: false,
        }
    }
}

/// A reply or a watch event in flight to the contender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) slot: Slot,
    pub(super) event: Event,
    pub(super) arrived: bool,
    pub(super) is_old: bool,
    /// Own nodes that were in front when this was generated.
    pub(super) front: Vec<u8>,
    /// Own nodes that this shows, and that were in front when the server read them.
    pub(super) shown: Vec<u8>,
}

impl Item {
    /// Whether this proves that the request was committed.
    pub(super) fn is_committed(&self) -> bool {
        matches!(
            self.event,
            Event::Entered(_)
                | Event::NoParent
                | Event::WriterGone(_)
                | Event::ParentsMade
                | Event::Searched(_)
                | Event::Committed
        )
    }
}
