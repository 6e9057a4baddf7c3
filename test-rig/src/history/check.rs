//! The rules.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::attempt::{Attempt, Granted, History};
use super::event::AttemptId;
use super::highest::Highest;
use super::permits;

/// What a history must not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Conflicting guards are never valid at one time. Leaders are, like all mutexes, in conflict.
    Exclusion,
    /// No more permits of a semaphore are valid at one time than it has.
    Permits,
    /// A holder is notified of a loss before another is granted, unless its process was paused.
    Told,
    /// Conflicting grants come in the order of their nodes.
    Order,
    /// Tokens rise over conflicting grants, so those of terms always do.
    Token,
    /// No node is left at the end.
    Orphan,
    /// A contender with no node ahead is granted within a bound.
    Wake,
}

/// A broken rule, and the attempts that broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Path of the lock, or of the node that is left.
    pub path: String,
    /// The two attempts, the earlier grant first; only one if no other attempt is involved. For
    /// permits, all attempts that had one then.
    pub attempts: Vec<AttemptId>,
    /// The times or numbers that show it.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken on {} by", self.rule, self.path)?;
        for attempt in &self.attempts {
            write!(f, " {attempt}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// Grants that may be held at the same time: guards of one party with one place.
type Group = (u64, i64);

pub(super) type Grant<'a> = (&'a Attempt, &'a Granted);

impl History {
    /// Checks all rules. Returns the first violation of each rule by each lock.
    ///
    /// `wait_max` is how long a contender may wait with no node ahead while the ensemble is up and
    /// its process runs. Use twice the session timeout: the node of a dead process goes after one,
    /// and connecting may take another.
    #[must_use]
    pub fn check(&self, wait_max: Duration) -> Vec<Violation> {
        let mut violations = Vec::new();
        for grants in self.by_path().values() {
            violations.extend(match permits::of(grants) {
                Some(permits) => self.check_permits(grants, permits),
                None => self.check_pairs(grants),
            });
        }
        violations.extend(self.left.iter().map(|node| self.orphan(node)));
        violations.extend(self.wakes(wait_max));
        violations
    }

    /// The grants of each lock, in the order of their stamps.
    pub(super) fn by_path(&self) -> BTreeMap<&str, Vec<Grant<'_>>> {
        let mut by_path: BTreeMap<&str, Vec<Grant<'_>>> = BTreeMap::new();
        for grant in self.grants() {
            by_path.entry(&grant.0.path).or_default().push(grant);
        }
        for grants in by_path.values_mut() {
            grants.sort_by_key(|(attempt, granted)| (granted.at, attempt.id));
        }
        by_path
    }

    fn check_pairs(&self, grants: &[Grant<'_>]) -> Vec<Violation> {
        let pairs = self.pair_rules().into_iter();
        pairs.filter_map(|pair| sweep(grants, &pair)).collect()
    }

    fn check_permits(&self, grants: &[Grant<'_>], permits: usize) -> Vec<Violation> {
        let [exclusion, told, order, token] = self.pair_rules();
        let mut violations = Vec::new();
        violations.extend(permits::crowd(grants, permits, Rule::Permits, &exclusion));
        violations.extend(permits::crowd(grants, permits, Rule::Told, &told));
        // Holders of several permits do not exclude each other. One may be granted later and see it
        // first, so neither places nor tokens rise.
        if permits == 1 {
            violations.extend([order, token].iter().filter_map(|pair| sweep(grants, pair)));
        }
        violations
    }

    /// The rules on pairs of conflicting grants.
    pub(super) fn pair_rules(&self) -> [PairRule<'_>; 4] {
        [
            PairRule {
                rule: Rule::Exclusion,
                value: Box::new(|(_, granted)| Some(as_signed(granted.valid_until))),
                limit: |granted| as_signed(granted.at),
                says: "the first was valid at",
                but: "when the second was granted at",
            },
            PairRule {
                rule: Rule::Told,
                value: Box::new(|(attempt, granted)| {
                    let told = granted.told?;
                    let paused = self.was_paused(attempt.id.worker, granted.at, told);
                    (!paused).then(|| as_signed(told))
                }),
                limit: |granted| as_signed(granted.at),
                says: "the first was told at",
                but: "when the second was granted at",
            },
            PairRule {
                rule: Rule::Order,
                value: Box::new(|(_, granted)| Some(granted.place)),
                limit: |granted| granted.place,
                says: "the first to be granted has place",
                but: "the second",
            },
            PairRule {
                rule: Rule::Token,
                value: Box::new(|(_, granted)| Some(granted.token)),
                limit: |granted| granted.token,
                says: "the first to be granted has token",
                but: "the second",
            },
        ]
    }

    fn orphan(&self, node: &str) -> Violation {
        let its = self.grants().filter(|(_, granted)| granted.node == node);
        Violation {
            rule: Rule::Orphan,
            path: node.to_owned(),
            attempts: its.map(|(attempt, _)| attempt.id).collect(),
            detail: "it was there when all was over".to_owned(),
        }
    }
}

/// A rule on two conflicting grants: the earlier one's value must be below the later one's limit.
pub(super) struct PairRule<'a> {
    pub(super) rule: Rule,
    /// The earlier grant's value; `None` if the rule does not apply to it.
    pub(super) value: Box<dyn Fn(Grant<'_>) -> Option<i64> + 'a>,
    pub(super) limit: fn(&Granted) -> i64,
    says: &'static str,
    but: &'static str,
}

/// Goes through the grants of one lock in the order of their stamps.
fn sweep(grants: &[Grant<'_>], pair: &PairRule<'_>) -> Option<Violation> {
    let mut exclusive = Highest::default();
    let mut all = Highest::default();
    for (index, (attempt, granted)) in grants.iter().enumerate() {
        let group: Group = (attempt.party, granted.token);
        let conflicting = if attempt.is_shared() {
            &exclusive
        } else {
            &all
        };
        let limit = (pair.limit)(granted);
        let earlier = conflicting
            .outside(group)
            .filter(|(value, _)| *value >= limit);
        if let Some((value, (earlier, _))) =
            earlier.and_then(|(value, earlier)| Some((value, grants.get(earlier)?)))
        {
            return Some(Violation {
                rule: pair.rule,
                path: attempt.path.clone(),
                attempts: vec![earlier.id, attempt.id],
                detail: format!("{} {value}, {} {limit}", pair.says, pair.but),
            });
        }
        if let Some(value) = (pair.value)((attempt, granted)) {
            all.insert(value, group, index);
            if !attempt.is_shared() {
                exclusive.insert(value, group, index);
            }
        }
    }
    None
}

/// Three centuries of nanoseconds since the machine was started fit.
pub(super) fn as_signed(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}
