//! When the keeper looks at the nodes of leases. Pure.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// A lease's node that is not watched, because too many are, is looked at again within this time,
/// and not before half of it. A removal by an operator, or a request to give the lock up, is
/// noticed that much later.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// A lock whose node may not be read is looked at again after this time. A change of its ACL is
/// noticed that much later.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Refusals older than this may be dropped; the next one of that lock is logged again.
const REFUSAL_KEPT: Duration = Duration::from_secs(3600);

/// This many refusals are kept before old ones are dropped.
const REFUSALS_KEPT: usize = 64;

/// Which leases to look at and when; each has one time.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    at: BTreeMap<u64, Instant>,
    order: BTreeSet<(Instant, u64)>,
}

impl Looks {
    /// Schedules a look at `at`, unless an earlier one is scheduled.
    pub(crate) fn schedule(&mut self, id: u64, at: Instant) {
        match self.at.entry(id) {
            Entry::Occupied(planned) if *planned.get() <= at => return,
            Entry::Occupied(mut planned) => {
                self.order.remove(&(planned.insert(at), id));
            }
            Entry::Vacant(unplanned) => {
                unplanned.insert(at);
            }
        }
        self.order.insert((at, id));
    }

    /// Schedules the next look after half of [`LOOK_WITHIN`], spread over the second half by the
    /// lease's number, so that looks do not come all at once.
    pub(crate) fn schedule_next(&mut self, id: u64, now: Instant) {
        const PARTS: u32 = 64;
        let part = u32::try_from(id % u64::from(PARTS)).unwrap_or_default();
        self.schedule(id, now + LOOK_WITHIN / 2 + LOOK_WITHIN / 2 * part / PARTS);
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
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
    asked_at: BTreeMap<Arc<str>, Instant>,
    forget_at: usize,
}

impl Refusals {
    /// When to look at a node of this lock instead of now. `None` means now; looks at its other
    /// nodes have to wait then.
    pub(crate) fn postponed(&mut self, lock: &str, now: Instant) -> Option<Instant> {
        let asked_at = self.asked_at.get_mut(lock)?;
        let next_at = *asked_at + REFUSED_PAUSE;
        if now < next_at {
            return Some(next_at);
        }
        *asked_at = now;
        None
    }

    /// Notes that a look was refused; true if that is news.
    pub(crate) fn refused(&mut self, lock: &Arc<str>, now: Instant) -> bool {
        let before = self.asked_at.insert(Arc::clone(lock), now);
        if self.asked_at.len() > self.forget_at {
            self.asked_at
                .retain(|_, asked_at| now < *asked_at + REFUSAL_KEPT);
            self.forget_at = REFUSALS_KEPT.max(2 * self.asked_at.len());
        }
        before.is_none_or(|before| before + REFUSAL_KEPT <= now)
    }

    /// Notes that a look was answered.
    pub(crate) fn answered(&mut self, lock: &str) {
        self.asked_at.remove(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_lock_is_looked_at_once_a_minute_and_told_once_an_hour() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        let lock: Arc<str> = "/a".into();
        assert_eq!(refusals.postponed(&lock, start), None, "never refused");
        assert!(refusals.refused(&lock, start));
        let mut now = start;
        for _ in 0..100 {
            let next_at = now + REFUSED_PAUSE;
            assert_eq!(refusals.postponed(&lock, now), Some(next_at));
            assert_eq!(refusals.postponed("/b", now), None);
            // Only one of all nodes of the lock that wait for this is looked at.
            assert_eq!(refusals.postponed(&lock, next_at), None);
            let later = next_at + REFUSED_PAUSE;
            assert_eq!(refusals.postponed(&lock, next_at), Some(later));
            assert!(!refusals.refused(&lock, next_at));
            now = next_at;
        }
        assert!(refusals.refused(&lock, now + REFUSAL_KEPT));
        refusals.answered(&lock);
        assert_eq!(refusals.postponed(&lock, now), None);
    }

    #[test]
    fn refusals_of_long_ago_are_forgotten() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        for number in 0..10_000_u32 {
            let lock = format!("/{number}").into();
            refusals.refused(&lock, start + REFUSAL_KEPT / 100 * number);
        }
        assert!(refusals.asked_at.len() <= 2 * 100);
    }

    #[test]
    fn look_is_taken_once_at_the_earliest_of_its_times() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut looks = Looks::default();
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
    fn next_looks_are_spread_over_the_second_half_of_the_time() {
        let start = Instant::now();
        let mut looks = Looks::default();
        (0..1_000).for_each(|id| looks.schedule_next(id, start));
        assert!(
            looks
                .take_due(start + LOOK_WITHIN / 2 - Duration::from_nanos(1))
                .is_none()
        );
        let mut before = 0;
        for part in 1..=10_u32 {
            let now = start + LOOK_WITHIN / 2 + LOOK_WITHIN / 20 * part;
            let due = std::iter::from_fn(|| looks.take_due(now)).count();
            assert!((64..=128).contains(&due), "{due}");
            before += due;
        }
        assert_eq!(before, 1_000);
    }
}
