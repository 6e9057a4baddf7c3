//! The results of a window, or of all of them.

use std::collections::BTreeMap;
use std::fmt;

use lock_recipes::LockKind;
use test_rig::TransactionLog;
use test_rig::history::{Attempt, History, Rule, Violation};

use super::curator;
use crate::orders::is_election;
use crate::stage::WAIT_MAX;

/// The results of one window or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(super) grants: BTreeMap<String, usize>,
    pub(super) troubles: BTreeMap<String, usize>,
    confirmed_writes: usize,
    /// Holders that were notified of a loss.
    losses: usize,
    /// Those whose session ended then or later, according to the servers: they were notified in
    /// time.
    told_before: usize,
    /// Nodes that are left after all contenders had finished.
    pub(super) left: usize,
    pub(crate) violations: usize,
    /// Violations that involve only threads of Curator.
    curators_own: usize,
    /// Grants of Curator after the session had already ended.
    curators_stale: usize,
}

impl Tally {
    pub(crate) fn grants(&self) -> usize {
        self.grants.values().sum()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (all, some) in [
            (&mut self.grants, &other.grants),
            (&mut self.troubles, &other.troubles),
        ] {
            for (name, count) in some {
                *all.entry(name.clone()).or_default() += count;
            }
        }
        self.confirmed_writes += other.confirmed_writes;
        self.losses += other.losses;
        self.told_before += other.told_before;
        self.left += other.left;
        self.violations += other.violations;
        self.curators_own += other.curators_own;
        self.curators_stale += other.curators_stale;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: &BTreeMap<String, usize>| {
            let each = counts.iter().map(|(name, count)| format!("{name} {count}"));
            each.collect::<Vec<_>>().join(", ")
        };
        write!(
            f,
            "{} violations; {} nodes left; grants: {}; troubles: {}; writes under a lock: {}; \
             losses told: {}, of them before the end of a session: {}; Curator alone broke {} \
             rules and granted {} times after its session",
            self.violations,
            self.left,
            list(&self.grants),
            list(&self.troubles),
            self.confirmed_writes,
            self.losses,
            self.told_before,
            self.curators_own,
            self.curators_stale,
        )
    }
}

/// Judges a window. Returns all violations, Curator's own as well.
pub(super) fn judge(events: &str, log: &TransactionLog, tally: &mut Tally) -> Vec<Violation> {
    let mut history = History::parse(events).unwrap();
    let believed = curators_grants(&history);
    history.end_with_sessions(curator::is_one, log);
    let confirmed = history.confirm(log);
    let mut violations = confirmed.as_ref().err().cloned().unwrap_or_default();
    violations.extend(history.check(WAIT_MAX));
    tally.losses = history.grants().filter(|(_, it)| it.is_lost).count();
    tally.curators_stale = believed - curators_grants(&history);
    if let Ok(confirmed) = confirmed {
        tally.confirmed_writes = confirmed.writes;
        tally.told_before = confirmed.told_before.len();
    }
    let mut set_sizes: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for attempt in history.attempts() {
        *set_sizes
            .entry((attempt.id.worker, attempt.id.number))
            .or_default() += 1;
    }
    for (attempt, _) in history.grants().filter(|(it, _)| it.id.member == 0) {
        let kind = match (
            attempt.kind,
            set_sizes[&(attempt.id.worker, attempt.id.number)],
        ) {
            _ if is_election(&attempt.path) => "term",
            // Several at once are one set, too.
            (LockKind::Permit, _) | (_, 1) => attempt.kind.as_str(),
            _ => "set",
        };
        let whose = match curator::is_one(attempt.id.worker) {
            true => "Curator's ",
            false => "",
        };
        *tally.grants.entry(format!("{whose}{kind}")).or_default() += 1;
    }
    tally.curators_own = violations.iter().filter(|it| is_curators_own(it)).count();
    tally.violations = violations.len() - tally.curators_own;
    violations
}

fn curators_grants(history: &History) -> usize {
    let theirs = |(attempt, _): &(&Attempt, _)| curator::is_one(attempt.id.worker);
    history.grants().filter(theirs).count()
}

/// Whether the violation involves only Curator: two of its threads, or one that waits in vain.
fn is_curators_own(violation: &Violation) -> bool {
    let mut attempts = violation.attempts.iter();
    match (violation.rule, attempts.len()) {
        (Rule::Wake, _) => attempts
            .next_back()
            .is_some_and(|it| curator::is_one(it.worker)),
        (_, 0 | 1) => false,
        _ => attempts.all(|it| curator::is_one(it.worker)),
    }
}
