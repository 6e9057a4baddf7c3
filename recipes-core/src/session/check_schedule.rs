//! When the epoch task looks at the nodes of leases. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A lock whose node may not be read is looked at again after this time. A change of its ACL is
/// noticed that much later.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Refusals older than this may be dropped; the next one of that lock is logged again.
const REFUSAL_KEPT: Duration = Duration::from_secs(3600);

/// This many refusals are kept before old ones are dropped.
const REFUSALS_KEPT: usize = 64;

/// Which leases to look at and when; each has one time. Those with the same time take turns: first
/// scheduled, first looked at.
#[derive(Debug, Default)]
pub(crate) struct CheckSchedule {
    at: BTreeMap<u64, (Instant, u64)>,
    order: BTreeMap<(Instant, u64), u64>,
    turns: u64,
}

impl CheckSchedule {
    /// Schedules a look at `at`, unless an earlier one is scheduled.
    pub(crate) fn schedule(&mut self, id: u64, at: Instant) {
        if let Some(planned) = self.at.get(&id) {
            if planned.0 <= at {
                return;
            }
            self.order.remove(planned);
        }
        self.turns += 1;
        self.at.insert(id, (at, self.turns));
        self.order.insert((at, self.turns), id);
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.order.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        self.next_at().filter(|at| *at <= now)?;
        let (_, id) = self.order.pop_first()?;
        self.at.remove(&id);
        Some(id)
    }
}

/// The locks whose nodes may not be read, by path: nodes come and go, their ACL stays.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    by_lock: BTreeMap<Arc<str>, RefusedCheck>,
    forget_at: usize,
}

#[derive(Debug)]
struct RefusedCheck {
    /// No look at a node of this lock before this time.
    next_at: Instant,
    logged_at: Instant,
}

impl Refusals {
    /// When to look at a node of this lock instead of now. `None` means now; looks at its other
    /// nodes have to wait then.
    pub(crate) fn postponed(&mut self, lock: &str, now: Instant) -> Option<Instant> {
        let refusal = self.by_lock.get_mut(lock)?;
        if now < refusal.next_at {
            return Some(refusal.next_at);
        }
        refusal.next_at = now + REFUSED_PAUSE;
        None
    }

    /// Notes that a look was refused; true if that is to be logged.
    pub(crate) fn refused(&mut self, lock: &Arc<str>, now: Instant) -> bool {
        if let Some(refusal) = self.by_lock.get_mut(lock) {
            if refusal.next_at <= now {
                refusal.next_at = now + REFUSED_PAUSE;
            }
            let is_news = refusal.logged_at + REFUSAL_KEPT <= now;
            if is_news {
                refusal.logged_at = now;
            }
            return is_news;
        }
        let refusal = RefusedCheck {
            next_at: now + REFUSED_PAUSE,
            logged_at: now,
        };
        self.by_lock.insert(Arc::clone(lock), refusal);
        if self.by_lock.len() > self.forget_at {
            self.by_lock
                .retain(|_, refusal| now < refusal.logged_at + REFUSAL_KEPT);
            self.forget_at = REFUSALS_KEPT.max(2 * self.by_lock.len());
        }
        true
    }

    /// Notes that a look was answered, so that the lock's other nodes need not wait. Its nodes may
    /// have different ACLs, so what was logged is not logged again.
    pub(crate) fn answered(&mut self, lock: &str, now: Instant) {
        if let Some(refusal) = self.by_lock.get_mut(lock) {
            refusal.next_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_lock_is_looked_at_once_a_minute_and_logged_once_an_hour() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        let lock: Arc<str> = "/a".into();
        assert_eq!(refusals.postponed(&lock, start), None, "never refused");
        assert!(refusals.refused(&lock, start));
        let mut logged = 0;
        let mut now = start;
        for minute in 1..=600 {
            let next_at = now + REFUSED_PAUSE;
            assert_eq!(refusals.postponed(&lock, now), Some(next_at));
            assert_eq!(refusals.postponed("/b", now), None);
            // Only one of all nodes of the lock that wait for this is looked at.
            assert_eq!(refusals.postponed(&lock, next_at), None);
            let later = next_at + REFUSED_PAUSE;
            assert_eq!(refusals.postponed(&lock, next_at), Some(later));
            // A late answer does not put off the next look.
            let is_logged = refusals.refused(&lock, next_at + REFUSED_PAUSE / 2);
            assert_eq!(refusals.postponed(&lock, next_at), Some(later));
            logged += u32::from(is_logged);
            assert!(logged <= 1 + minute / 60, "in minute {minute}");
            now = next_at;
        }
        assert!(logged >= 9, "{logged}");
    }

    #[test]
    fn answer_lets_the_other_nodes_be_looked_at_and_logs_nothing_again() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        let lock: Arc<str> = "/a".into();
        assert!(refusals.refused(&lock, start));
        refusals.answered(&lock, start);
        assert_eq!(refusals.postponed(&lock, start), None);
        refusals.answered(&lock, start);
        assert!(
            !refusals.refused(&lock, start),
            "of a node with another ACL"
        );
        let later = start + REFUSED_PAUSE;
        assert_eq!(refusals.postponed(&lock, start), Some(later));
    }

    #[test]
    fn refusals_of_long_ago_are_forgotten() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        for number in 0..10_000_u32 {
            let lock = format!("/{number}").into();
            refusals.refused(&lock, start + REFUSAL_KEPT / 100 * number);
        }
        assert!(refusals.by_lock.len() <= 2 * 100);
    }

    #[test]
    fn look_is_taken_once_at_the_earliest_of_its_times() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut looks = CheckSchedule::default();
        looks.schedule(1, start + second);
        looks.schedule(1, start + 2 * second);
        looks.schedule(2, start + 3 * second);
        looks.schedule(2, start);
        assert_eq!(looks.next_at(), Some(start));
        assert_eq!(looks.take_due(start), Some(2));
        assert_eq!(looks.take_due(start), None);
        assert_eq!(looks.next_at(), Some(start + second));
        assert_eq!(looks.take_due(start + second), Some(1));
        assert_eq!(looks.next_at(), None);
    }

    #[test]
    fn looks_at_the_same_time_take_turns() {
        let start = Instant::now();
        let mut looks = CheckSchedule::default();
        (1..=3).for_each(|id| looks.schedule(id, start));
        for id in [1, 2, 3, 1, 2, 3] {
            assert_eq!(looks.take_due(start), Some(id));
            looks.schedule(id, start);
        }
    }
}
