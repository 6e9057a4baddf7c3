//! When the nodes of leases are looked at. Pure.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// The node of a lease that is not watched, since too many are, is looked at again within this time,
/// and not before half of it. A removal by an operator, or a request to give it up, is heard of
/// that much later.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// When to look at which leases, each once.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    at: BTreeMap<u64, Instant>,
    order: BTreeSet<(Instant, u64)>,
}

impl Looks {
    /// Not later than this.
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

    /// Some time after the last one, not together with those of others.
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

#[cfg(test)]
mod tests {
    use super::*;

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
