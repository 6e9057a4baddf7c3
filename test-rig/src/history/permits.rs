//! How many permits of a semaphore were held at one time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use recipes_core::LockKind;

use super::attempt::History;
use super::check::{Grant, PairRule, Rule, Violation};
use crate::txn_log::directory;

impl History {
    /// For each semaphore, the most permits that were certainly valid at one time.
    #[must_use]
    pub fn permits_at_once(&self) -> BTreeMap<&str, usize> {
        let [exclusion, ..] = self.pair_rules();
        let by_path = self.by_path().into_iter();
        let semaphores = by_path.filter(|(_, grants)| of(grants).is_some());
        let most = semaphores.map(|(path, grants)| {
            let counts = held_at_grants(&grants, &exclusion).map(|held| held.len());
            (path, counts.max().unwrap_or(0))
        });
        most.collect()
    }

    /// The directories with leases that were granted, and how many permits each has.
    pub(super) fn semaphores(&self) -> BTreeMap<String, usize> {
        let mut semaphores = BTreeMap::new();
        for grants in self.by_path().values() {
            let leases = grants.first().map(|(_, granted)| directory(&granted.node));
            if let (Some(leases), Some(permits)) = (leases, of(grants)) {
                semaphores.insert(leases.to_owned(), permits);
            }
        }
        semaphores
    }
}

/// How many permits the semaphore has to which these grants belong; `None` if it is no semaphore.
///
/// Each process has its own number. The highest of those that were granted a permit limits all.
pub(super) fn of(grants: &[Grant<'_>]) -> Option<usize> {
    let permits = grants.iter().map(|(attempt, _)| attempt);
    let permits = permits.filter(|attempt| attempt.kind == LockKind::Permit);
    let most = permits.map(|attempt| attempt.permits).max()?;
    usize::try_from(most).ok()
}

/// Finds the first grant at whose time more permits were held than there are. `until` has, for each
/// grant, until when it counts.
pub(super) fn crowd(
    grants: &[Grant<'_>],
    permits: usize,
    rule: Rule,
    until: &PairRule<'_>,
) -> Option<Violation> {
    let held = held_at_grants(grants, until).find(|held| held.len() > permits)?;
    let crowd: Vec<_> = held.iter().filter_map(|index| grants.get(*index)).collect();
    let (last, granted) = crowd.last()?;
    let count = crowd.len();
    Some(Violation {
        rule,
        path: last.path.clone(),
        attempts: crowd.iter().map(|(attempt, _)| attempt.id).collect(),
        detail: format!("{count} of {permits} permits were held at {}", granted.at),
    })
}

/// For each grant, the indexes of the grants that count at its time, with itself as the last.
///
/// Each of several permits that are acquired together is a grant of its own.
fn held_at_grants<'a>(
    grants: &'a [Grant<'a>],
    until: &'a PairRule<'a>,
) -> impl Iterator<Item = Vec<usize>> + 'a {
    let mut held: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
    grants.iter().enumerate().map(move |(index, grant)| {
        let at = (until.limit)(grant.1);
        while held.peek().is_some_and(|Reverse((end, _))| *end < at) {
            held.pop();
        }
        let mut indexes: Vec<_> = held.iter().map(|Reverse((_, index))| *index).collect();
        indexes.sort_unstable();
        indexes.push(index);
        if let Some(end) = (until.value)(*grant) {
            held.push(Reverse((end, index)));
        }
        indexes
    })
}
