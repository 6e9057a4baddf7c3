//! Whether every contender with no node ahead is granted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::{Attempt, History};
use super::check::{Rule, Violation, as_signed};
use super::event::AttemptId;
use super::highest::Highest;

/// Until when another attempt was ahead, and which one.
type Ahead = Option<(i64, usize)>;

impl History {
    /// Finds contenders that waited too long. The members of a set are granted together.
    pub(super) fn wakes(&self, wait_max: Duration) -> Vec<Violation> {
        let mut by_path: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, attempt) in self.attempts.iter().enumerate() {
            by_path.entry(&attempt.path).or_default().push(index);
        }
        let mut ahead: Vec<Ahead> = vec![None; self.attempts.len()];
        for indexes in by_path.values() {
            self.queue(indexes, &mut ahead);
        }
        let mut sets: BTreeMap<(u32, u32), (&Attempt, Ahead)> = BTreeMap::new();
        for (attempt, ahead) in self.attempts.iter().zip(ahead) {
            let set = (attempt.id.worker, attempt.id.number);
            let (_, longest) = sets.entry(set).or_insert((attempt, None));
            *longest = (*longest).max(ahead);
        }
        let wait_max = i64::try_from(wait_max.as_nanos()).unwrap_or(i64::MAX);
        let late = sets
            .into_values()
            .filter_map(|(attempt, ahead)| self.is_late(attempt, ahead, wait_max));
        let mut late: Vec<_> = late.collect();
        if late.is_empty() {
            late.extend(self.deadlock(wait_max));
        }
        late
    }

    /// Finds contenders that wait for each other, or for a lock that is not held. Of two attempts
    /// without a grant, either may be ahead of the other, but not both.
    fn deadlock(&self, wait_max: i64) -> Option<Violation> {
        let (hung, others): (Vec<_>, Vec<_>) = self.attempts.iter().partition(|it| it.is_pending());
        let first = hung.first()?;
        let others = others.into_iter().map(|it| self.present_until(it));
        let asked = hung.iter().map(|it| as_signed(it.invoked));
        let hindered = hung.iter().map(|it| self.hindered_until(it, self.end));
        let since = others.chain(asked).chain(hindered).max()?;
        let waited = as_signed(self.end).saturating_sub(since);
        (waited > wait_max).then(|| Violation {
            rule: Rule::Wake,
            path: first.path.clone(),
            attempts: hung.iter().map(|it| it.id).collect(),
            detail: format!(
                "they wait from {since} until {}, and nobody holds",
                self.end
            ),
        })
    }

    /// The end of the last outage or pause of its process that began before the contender stopped.
    fn hindered_until(&self, attempt: &Attempt, stop: u64) -> i64 {
        let own = self.pauses.get(&attempt.id.worker).into_iter().flatten();
        let hindered = own.chain(&self.outages).filter(|it| it.0 <= stop);
        hindered.map(|it| as_signed(it.1)).max().unwrap_or(0)
    }

    /// The latest time until which it waited.
    pub(super) fn waited_until(&self, attempt: &Attempt) -> u64 {
        let granted = attempt.granted.as_ref().map(|granted| granted.at);
        granted.or(attempt.ended).unwrap_or(self.end)
    }

    /// The latest time until which its node may have been in the queue, its clean-up aside.
    pub(super) fn present_until(&self, attempt: &Attempt) -> i64 {
        as_signed(attempt.ended.unwrap_or(self.end))
    }

    /// Finds out, for the attempts on one lock, until when another attempt was ahead of each.
    ///
    /// An attempt that was granted has a known place. Any other may have been anywhere in the
    /// queue.
    fn queue(&self, indexes: &[usize], ahead: &mut [Ahead]) {
        let all = indexes
            .iter()
            .filter_map(|index| Some((*index, self.attempts.get(*index)?)));
        let mut granted: Vec<_> = all
            .clone()
            .filter_map(|(index, it)| Some((it.granted.as_ref()?.place, index, it)))
            .collect();
        granted.sort_by_key(|(place, index, _)| (*place, *index));
        let mut seen = [Highest::default(), Highest::default()];
        for (_, index, attempt) in granted {
            note(ahead, index, outside(&seen, attempt));
            insert(&mut seen, attempt, self.present_until(attempt), index);
        }
        // In the order of the starts, compared with attempts that started before this one stopped
        // waiting.
        let mut stops: Vec<_> = all
            .clone()
            .map(|(index, it)| (self.waited_until(it), index, it))
            .collect();
        stops.sort_by_key(|(stop, index, _)| (*stop, *index));
        let mut asked = all.peekable();
        let mut anybody = [Highest::default(), Highest::default()];
        let mut ungranted = [Highest::default(), Highest::default()];
        for (stop, index, attempt) in stops {
            while let Some((index, other)) = asked.next_if(|(_, it)| it.invoked <= stop) {
                let until = self.present_until(other);
                insert(&mut anybody, other, until, index);
                if other.granted.is_none() {
                    insert(&mut ungranted, other, until, index);
                }
            }
            let seen = if attempt.granted.is_some() {
                &ungranted
            } else {
                &anybody
            };
            note(ahead, index, outside(seen, attempt));
        }
    }

    fn is_late(&self, attempt: &Attempt, ahead: Ahead, wait_max: i64) -> Option<Violation> {
        let stop = self.waited_until(attempt);
        let hindered = self.hindered_until(attempt, stop);
        let (until, blocker) = ahead.map_or((0, None), |(until, by)| (until, Some(by)));
        let since = as_signed(attempt.invoked).max(hindered).max(until);
        let waited = as_signed(stop).saturating_sub(since);
        if waited <= wait_max {
            return None;
        }
        let blocker = blocker.and_then(|it| self.attempts.get(it));
        let ids: Vec<AttemptId> = blocker
            .into_iter()
            .map(|it| it.id)
            .chain([attempt.id])
            .collect();
        Some(Violation {
            rule: Rule::Wake,
            path: attempt.path.clone(),
            attempts: ids,
            detail: format!("the last waited from {since} until {stop}, and nobody was ahead"),
        })
    }
}

/// The highest of the exclusive ones, and of all.
type Seen = [Highest<u64, i64>; 2];

fn insert([exclusive, all]: &mut Seen, attempt: &Attempt, until: i64, index: usize) {
    all.insert(until, attempt.party, index);
    if !attempt.is_shared() {
        exclusive.insert(until, attempt.party, index);
    }
}

fn outside([exclusive, all]: &Seen, attempt: &Attempt) -> Ahead {
    let seen = if attempt.is_shared() { exclusive } else { all };
    seen.outside(attempt.party)
}

fn note(ahead: &mut [Ahead], index: usize, until: Ahead) {
    if let Some(ahead) = ahead.get_mut(index) {
        *ahead = (*ahead).max(until);
    }
}
