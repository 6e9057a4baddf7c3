//! The events and the actions of the state machine.

use crate::names::node_name::LockKind;

/// What to do when the lock is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    /// Queue up and wait.
    Wait,
    /// Look first, queue up only if the lock is free, and leave if it turns out to be busy.
    Try,
}

/// How an attempt that was not refused ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<T> {
    Granted(T),
    /// Another contender holds some lock; only with [`Patience::Try`].
    Busy,
    /// What the owner holds has changed, so what it lacks has to be found out again.
    Stale,
}

impl<T> Outcome<T> {
    pub(crate) fn map<U>(self, granted: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Granted(it) => Outcome::Granted(granted(it)),
            Self::Busy => Outcome::Busy,
            Self::Stale => Outcome::Stale,
        }
    }
}

/// A lock node of ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// Last part of its path.
    pub(crate) name: String,
    /// Transaction that created it, once known.
    pub(crate) czxid: Option<i64>,
}

/// A lock node of ours that was granted; its number makes the fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GrantedNode {
    /// Last part of its path.
    pub(crate) name: String,
    /// Transaction that created it.
    pub(crate) czxid: i64,
}

/// A node that a create made, and the listing that left together with the create.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) node: Node,
    /// `None` if no listing was sent, or if it failed.
    pub(crate) children: Option<Vec<String>>,
}

/// A node as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// The session that owns it.
    pub(crate) owner: i64,
    pub(crate) czxid: i64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// This session serves the attempt from now on; nodes of an earlier one are not ours any more.
    SessionStarted(i64),
    /// Answer to [`Action::Probe`]: one listing for each member.
    Probed(Vec<Vec<String>>),
    /// Answer to [`Action::Enter`]: all nodes were created, in the order requested.
    Entered(Vec<Entry>),
    /// Answer to [`Action::Enter`]: nothing was created because a parent is missing.
    NoParent,
    /// Answer to [`Action::Enter`]: nothing was created because the writer's node, which a member
    /// goes next to, is gone.
    WriterGone(usize),
    /// Answer to [`Action::Enter`]: it is unknown whether the nodes were created.
    EnterUnknown,
    /// Answer to [`Action::MakeParents`].
    ParentsMade,
    /// Answer to [`Action::MakeParents`]: the path of the semaphore has this node, given as a path, of
    /// another recipe.
    BesideOthers(String, LockKind),
    /// Answer to [`Action::Search`]: for each member, in the order requested, all nodes that our
    /// creates made.
    Searched(Vec<Vec<Found>>),
    /// Answer to [`Action::List`].
    Listed(usize, Vec<String>),
    /// Answer to [`Action::Stat`]; `None` if the node is gone.
    Stated(usize, Option<Found>),
    /// A watched node that a member waits for was deleted, or was gone when the watch was set.
    BlockerGone(usize, String),
    /// As [`Event::BlockerGone`], and when that node was deleted nothing was ahead of it.
    FirstGone(usize, String),
    /// The data of a watched node that a member waits for changed, or nodes may be watched that
    /// were not: what is awaited is to be watched again.
    BlockerChanged,
    /// A member's own node exists and is watched: its deletion will be reported before that of any
    /// node that is watched later.
    OwnWatched(usize),
    /// A member's own node was deleted, not by us.
    OwnGone(usize),
    /// The data of a member's own node changed, and the node is not watched any more.
    OwnChanged(usize),
    /// The connection is a new one: nothing that was watched before counts any more.
    Reconnected {
        /// The store may have nodes again that were deleted: nothing that was listed counts either.
        forgot: bool,
    },
    /// Instead of a grant: the evidence is so old that the session may be over, or there is no
    /// connection or a new one.
    Lapsed,
    /// Answer to [`Action::Commit`].
    Committed,
    /// The semaphore has this many permits from now on.
    Permits(usize),
}

/// Actions to take now. Requests are sent in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// List every member's directory.
    Probe,
    /// Create nodes for these members, all or none, and list their directories in the same flush.
    Enter(Vec<usize>),
    /// Make the parents of these members' nodes.
    MakeParents(Vec<usize>),
    /// Look for nodes that creates of unknown outcome may have made: commit, list, stat.
    Search(Vec<usize>),
    /// Take a node that was found as the member's.
    Adopt(usize, String),
    /// Have something committed, which proves that the session lives.
    Commit,
    /// List a member's directory.
    List(usize),
    /// Stat a member's own node.
    Stat(usize),
    /// Watch a member's own node, unless it is watched.
    WatchOwn(usize),
    /// Watch exactly these nodes for a member: set the missing watches, drop all others.
    Watch(usize, Vec<String>),
    /// Decide by this number of permits: report a higher one at once, and one that is lower than what
    /// is wanted. Report any other at the latest before the grant.
    HeedPermits(usize),
    /// A member's node was deleted, not by us: nobody deletes it, but a store that forgets may have it again.
    Gone(usize),
    /// Delete these nodes, now or as soon as possible; nothing is reported back.
    Withdraw(Vec<(usize, String)>),
    /// The set is held.
    Grant(Vec<GrantedNode>),
    /// The lock is busy and nothing of ours is left.
    Busy,
    /// Waiting longer cannot succeed.
    Fail(Failure),
}

/// Why waiting longer cannot succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// The directory's counter has passed 2^31 - 1; the order of nodes means nothing any more.
    SequenceExhausted { member: usize, sequence: i32 },
    /// The parents were gone again each time they had been made.
    ParentsVanish { member: usize },
    /// The writer that a member goes next to is not held any more.
    WriterGone { member: usize },
    /// This child of a member's directory is of another recipe.
    OtherRecipe {
        member: usize,
        node: String,
        found: LockKind,
    },
    /// This node, given as a path, is beside the directories of a semaphore.
    BesideOthers {
        member: usize,
        node: String,
        found: LockKind,
    },
}
