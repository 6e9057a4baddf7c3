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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// It may hold.
    Granted,
    /// It waits.
    WaitFor(Blockers<'a>),
    /// Its node is not in the listing.
    Absent,
}

/// The nodes that a contender waits for: of those that keep it from holding, the nearest two; for a
/// permit all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blockers<'a> {
    /// At least one.
    pub(crate) nearest_first: Vec<&'a str>,
    /// Whether the deletion of these nodes is the grant, without a listing in between. For a
    /// permit, the deletion of so many of them that it finds room.
    ///
    /// True if nothing else is ahead and nothing can get ahead, because sequences only grow. Never
    /// true for a writer, because a writer that downgrades puts a reader in its own place.
    pub(crate) deletions_grant: bool,
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
            let deletions_grant = ahead <= 2 && queues_behind(kind, own);
            let nearest_first = [Some(nearest), before].into_iter().flatten();
            Verdict::WaitFor(Blockers {
                nearest_first: nearest_first.map(|it| it.name).collect(),
                deletions_grant,
            })
        }
    }
}

/// Whether a contender waits for nothing but nodes that are ahead when it joins, because sequences only
/// grow. Not a writer: a writer that downgrades puts a reader in its own place.
pub(crate) fn queues_behind(kind: LockKind, own: &str) -> bool {
    kind != LockKind::Write && is_followed_by_all(own)
}

/// Whether everybody who comes later has a higher number.
fn is_followed_by_all(own: &str) -> bool {
    let near_wrap = node_name::count(own).is_some_and(|own| own >= SEQUENCE_NEAR_WRAP);
    node_name::sequence(own).is_some() && !near_wrap
}

/// Applies the rule of a semaphore with this many permits to a listing of its leases.
///
/// A lease may hold if fewer leases than there are permits are ahead of it. So all that hold are
/// among the first, whoever else comes or goes, and no contender needs to know how many the others
/// count. A child that is no lease counts as ahead.
///
/// Curator `InterProcessSemaphoreV2`; differs: it counts the leases behind its own too, of which
/// there are none as long as everybody makes one under the semaphore's mutex only. We make ours
/// together with the node of the mutex, and take it back if the mutex is busy.
pub(crate) fn admit_permit<'a>(permits: usize, children: &'a [String], own: &str) -> Verdict<'a> {
    let own_rank = Rank::new(LockKind::Permit, own);
    if !children.iter().any(|child| child == own) {
        return Verdict::Absent;
    }
    let others = children.iter().filter(|child| *child != own);
    let ranks = others.map(|child| Rank::new(LockKind::Permit, child));
    let is_ahead = |it: &Rank<'_>| {
        *it < own_rank || order::sequence_of_ours(LockKind::Permit, it.name).is_none()
    };
    let mut ahead: Vec<_> = ranks.filter(is_ahead).collect();
    if ahead.len() < permits {
        return Verdict::Granted;
    }
    ahead.sort_unstable_by(|a, b| b.cmp(a));
    Verdict::WaitFor(Blockers {
        nearest_first: ahead.into_iter().map(|it| it.name).collect(),
        deletions_grant: is_followed_by_all(own),
    })
}

/// The nearest node that a contender that joined now would wait for.
pub(crate) fn ahead_of_newcomers(kind: LockKind, children: &[String]) -> Option<&str> {
    let children = children.iter().map(String::as_str);
    // As in `admit_permit`.
    let is_no_lease =
        |it: &str| kind == LockKind::Permit && order::sequence_of_ours(kind, it).is_none();
    let precedes = |it: &str| is_no_lease(it) || order::precedes_newcomers(kind, it);
    let ahead = children.filter(|it| blocks(kind, it) && precedes(it));
    ahead.max_by_key(|it| Rank::new(kind, it))
}

/// Whether a contender of this kind waits for a child that is ahead of it.
pub(crate) fn blocks(kind: LockKind, child: &str) -> bool {
    match kind {
        LockKind::Mutex | LockKind::Write | LockKind::Permit | LockKind::Latch => true,
        LockKind::Read => order::is_writer(child),
    }
}

// The benchmark includes this file from another folder.
#[cfg(test)]
#[path = "admission/tests.rs"]
mod tests;
