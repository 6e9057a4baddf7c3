//! The admission rule: whether a node may hold, decided from a listing of the lock directory.

use crate::names::node_name::{self, LockKind};
use crate::names::order::{self, Rank};

/// From here to 2^31 the counter may wrap while a contender waits. New nodes would then sort in
/// front of it, so a deletion alone proves nothing.
const SEQUENCE_NEAR_WRAP: i32 = i32::MAX - 1_000_000;

/// Where a contender's node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// At the tail of the queue, where the rule decides.
    Tail,
    /// Next to the node of a writer that this session holds, with the same sequence: the place of a
    /// reader whose owner holds the write lock. Admitted as soon as it exists, as the writer is.
    Beside {
        /// The session that holds the writer's node.
        session: i64,
    },
}

/// What a listing means for one contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// It may hold.
    Granted,
    /// It waits.
    WaitFor(Blocker<'a>),
    /// Its node is not in the listing.
    Absent,
}

/// The nodes that a contender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocker<'a> {
    /// The nearest node that keeps it from holding.
    pub(crate) name: &'a str,
    /// The nearest blocker ahead of `name`, if there is one.
    pub(crate) before: Option<&'a str>,
    /// Whether the deletion of these nodes is the grant, without a listing in between.
    ///
    /// True if nothing else is ahead and nothing can get ahead, because sequences only grow. Never
    /// true for a writer, because a writer that downgrades puts a reader in its own place.
    pub(crate) deletions_grant: bool,
}

impl Blocker<'_> {
    /// The nodes of these two that are not gone; `None` if both are.
    pub(crate) fn without(self, is_gone: impl Fn(&str) -> bool) -> Option<Self> {
        let nearest_first = [Some(self.name), self.before].into_iter().flatten();
        let mut left = nearest_first.filter(|name| !is_gone(name));
        Some(Self {
            name: left.next()?,
            before: left.next(),
            deletions_grant: self.deletions_grant,
        })
    }
}

/// Applies the rule of `kind` to a listing, for the contender named `own`.
///
/// Curator `StandardLockInternalsDriver.getsTheLock` and
/// `InterProcessReadWriteLock.readLockPredicate`; differs: a reader waits for the nearest earlier
/// writer, not for the first one. The verdicts are the same.
pub(crate) fn admit<'a>(kind: LockKind, children: &'a [String], own: &str) -> Verdict<'a> {
    let own_rank = Rank::new(kind, own);
    let mut present = false;
    let mut ahead = 0_usize;
    let mut nearest: Option<Rank<'_>> = None;
    let mut before: Option<Rank<'_>> = None;
    for child in children {
        if child == own {
            present = true;
            continue;
        }
        if !blocks(kind, child) {
            continue;
        }
        let rank = Rank::new(kind, child);
        if rank > own_rank {
            continue;
        }
        ahead += 1;
        if nearest.is_none_or(|nearest| rank > nearest) {
            before = nearest.replace(rank);
        } else if before.is_none_or(|before| rank > before) {
            before = Some(rank);
        }
    }
    match nearest {
        _ if !present => Verdict::Absent,
        None => Verdict::Granted,
        Some(nearest) => {
            let may_wrap = node_name::sequence(own).is_none_or(|own| own >= SEQUENCE_NEAR_WRAP);
            let deletions_grant = kind != LockKind::Write && ahead <= 2 && !may_wrap;
            Verdict::WaitFor(Blocker {
                name: nearest.name,
                before: before.map(|before| before.name),
                deletions_grant,
            })
        }
    }
}

/// Whether a contender that joined now would be admitted at once.
pub(crate) fn would_admit(kind: LockKind, children: &[String]) -> bool {
    ahead_of_newcomers(kind, children).is_none()
}

/// The nearest node that a contender that joined now would wait for.
pub(crate) fn ahead_of_newcomers(kind: LockKind, children: &[String]) -> Option<&str> {
    let children = children.iter().map(String::as_str);
    let ahead = children.filter(|it| blocks(kind, it) && order::precedes_newcomers(kind, it));
    ahead.max_by_key(|it| Rank::new(kind, it))
}

/// Whether a contender of this kind waits for a child that is ahead of it.
pub(crate) fn blocks(kind: LockKind, child: &str) -> bool {
    match kind {
        LockKind::Mutex | LockKind::Write => true,
        LockKind::Read => order::is_writer(child),
    }
}

// The benchmark includes this file from another folder.
#[cfg(test)]
#[path = "admission/tests.rs"]
mod tests;
