//! A checker that compares all pairs agrees with the fast one on random histories.

use std::collections::BTreeSet;
use std::time::Duration;

use recipes_core::LockKind;

use super::attempt::{Attempt, Granted, History};
use super::check::{Rule, as_signed};
use super::event::{AttemptId, Event, Happening, Step};
use recipes_testing::internal::Random;

const WAIT_MAX: Duration = Duration::from_nanos(50);

/// Random events. The numbers are small, so that ties and conflicts are frequent.
fn events(random: &mut Random) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |at: u64, what: Happening| events.push(Event { at, what });
    for worker in 0..2 + u32::try_from(random.below(5)).unwrap() {
        let kinds = [
            LockKind::Mutex,
            LockKind::Read,
            LockKind::Write,
            LockKind::Latch,
            LockKind::Permit,
            LockKind::Permit,
        ];
        let kind = kinds[usize::try_from(random.below(6)).unwrap()];
        // A semaphore has a path of its own.
        let (directory, permits) = match kind {
            LockKind::Permit => ("leases", 1 + u32::try_from(random.below(2)).unwrap()),
            _ => ("locks", 1),
        };
        let (party, number) = (random.below(4), u32::try_from(random.below(2)).unwrap());
        let id = AttemptId {
            worker,
            number,
            member: 0,
        };
        let path = format!("/{directory}/{} and a space", random.below(2));
        let mut at = random.below(60);
        let mut step = |random: &mut Random, step: Step| {
            at += random.below(40);
            add(at, Happening::Of(id, step));
        };
        step(
            random,
            Step::Invoked {
                kind,
                permits,
                party,
                path,
            },
        );
        if random.below(4) > 0 {
            let token = i64::try_from(random.below(6)).unwrap();
            step(
                random,
                Step::Granted {
                    token,
                    node: format!("/locks/n-{worker}"),
                },
            );
            for end in [Step::Valid, Step::Lost, Step::Releasing, Step::Released] {
                if random.below(2) > 0 {
                    step(random, end);
                }
            }
        } else if random.below(2) > 0 {
            step(random, Step::Ended);
        }
    }
    for (start, end) in [
        (Happening::Down, Happening::Up),
        (Happening::Paused(0), Happening::Resumed(0)),
    ] {
        if random.below(3) == 0 {
            let at = random.below(100);
            add(at, start);
            add(at + random.below(60), end);
        }
    }
    if random.below(4) == 0 {
        add(200, Happening::Left("/locks/n-0".to_owned()));
    }
    events
}

fn conflict(one: &Attempt, other: &Attempt) -> bool {
    one.path == other.path && (one.kind, other.kind) != (LockKind::Read, LockKind::Read)
}

/// The broken rules, found by comparing every pair.
fn broken_by_pairs(history: &History) -> BTreeSet<(Rule, String)> {
    let mut broken: BTreeSet<_> = BTreeSet::new();
    let mut grants: Vec<(&Attempt, &Granted)> = history.grants().collect();
    grants.sort_by_key(|(attempt, granted)| (granted.at, attempt.id));
    for (index, (one, first)) in grants.iter().enumerate() {
        for (other, second) in &grants[index + 1..] {
            let is_group = one.party == other.party && first.token == second.token;
            if is_group || !conflict(one, other) {
                continue;
            }
            let is_permit = one.kind == LockKind::Permit;
            let is_mutex = !is_permit || permits_of(&grants, &one.path) == 1;
            for pair in history.pair_rules() {
                let is_counted = matches!(pair.rule, Rule::Exclusion | Rule::Told);
                if !is_mutex || is_permit && is_counted {
                    continue;
                }
                if (pair.value)((one, first)).is_some_and(|it| it >= (pair.limit)(second)) {
                    broken.insert((pair.rule, one.path.clone()));
                }
            }
        }
    }
    broken.extend(crowds_by_pairs(history, &grants));
    let left = history.left.iter().map(|node| (Rule::Orphan, node.clone()));
    broken.extend(left);
    let late: BTreeSet<_> = late_by_pairs(history).map(|it| it.path.clone()).collect();
    if late.is_empty() {
        broken.extend(hung(history).map(|path| (Rule::Wake, path)));
    }
    broken.extend(late.into_iter().map(|path| (Rule::Wake, path)));
    broken
}

fn permits_of(grants: &[(&Attempt, &Granted)], path: &str) -> u32 {
    let its = grants.iter().filter(|(it, _)| it.path == path);
    its.map(|(it, _)| it.permits).max().unwrap()
}

/// Counts, at each grant of a permit, the others that were granted before.
fn crowds_by_pairs(history: &History, grants: &[(&Attempt, &Granted)]) -> BTreeSet<(Rule, String)> {
    let mut broken = BTreeSet::new();
    let [exclusion, told, ..] = history.pair_rules();
    for (rule, pair) in [(Rule::Permits, exclusion), (Rule::Told, told)] {
        for (index, (one, granted)) in grants.iter().enumerate() {
            let others = grants[..index].iter().filter(|(other, it)| {
                let until = (pair.value)((other, it));
                other.path == one.path && until.is_some_and(|it| it >= as_signed(granted.at))
            });
            let permits = usize::try_from(permits_of(grants, &one.path)).unwrap();
            if one.kind == LockKind::Permit && others.count() >= permits {
                broken.insert((rule, one.path.clone()));
            }
        }
    }
    broken
}

fn late_by_pairs(history: &History) -> impl Iterator<Item = &Attempt> {
    let wait_max = as_signed(u64::try_from(WAIT_MAX.as_nanos()).unwrap());
    history.attempts.iter().filter(move |attempt| {
        let stop = history.waited_until(attempt);
        let place = |it: &Attempt| it.granted.as_ref().map(|it| it.place);
        let mut since = as_signed(attempt.invoked);
        for other in history.attempts.iter().filter(|it| conflict(it, attempt)) {
            let may_be_ahead = match (place(other), place(attempt)) {
                (Some(other), Some(own)) => other < own,
                _ => other.invoked <= stop,
            };
            if may_be_ahead && other.party != attempt.party {
                since = since.max(history.present_until(other));
            }
        }
        let pauses = history.pauses.get(&attempt.id.worker).into_iter().flatten();
        for (start, end) in pauses.chain(&history.outages) {
            if *start <= stop {
                since = since.max(as_signed(*end));
            }
        }
        as_signed(stop).saturating_sub(since) > wait_max
    })
}

/// The violation, if a contender waits at the end of a history in which nothing happened for long.
fn hung(history: &History) -> Option<String> {
    let is_hung = |it: &&Attempt| it.granted.is_none() && it.ended.is_none();
    let first = history.attempts.iter().find(is_hung)?;
    let mut last = 0;
    for attempt in &history.attempts {
        let until = attempt.ended.unwrap_or(history.end);
        last = last.max(if is_hung(&attempt) {
            attempt.invoked
        } else {
            until
        });
        let pauses = history.pauses.get(&attempt.id.worker).into_iter().flatten();
        let pauses = pauses.filter(|_| is_hung(&attempt));
        for (_, end) in pauses.chain(&history.outages) {
            last = last.max(*end);
        }
    }
    let wait_max = u64::try_from(WAIT_MAX.as_nanos()).unwrap();
    (history.end.saturating_sub(last) > wait_max).then(|| first.path.clone())
}

#[test]
fn all_pairs_say_the_same_as_the_sweep() {
    let mut seen: BTreeSet<Rule> = BTreeSet::new();
    let mut clean = 0;
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let history = History::new(events(&mut random)).unwrap();
        let violations = history.check(WAIT_MAX);
        let found: BTreeSet<_> = violations
            .into_iter()
            .map(|it| (it.rule, it.path))
            .collect();
        assert_eq!(
            found,
            broken_by_pairs(&history),
            "seed {seed}: {history:#?}"
        );
        clean += usize::from(found.is_empty());
        seen.extend(found.into_iter().map(|(rule, _)| rule));
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
    assert!(clean > 1000, "{clean}");
}

#[test]
fn events_are_read_as_they_are_written() {
    for seed in 0..1000 {
        for event in events(&mut Random::new(seed)) {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
    }
    for what in [
        Happening::Killed(3),
        Happening::Evicted(-7),
        Happening::Over,
    ] {
        let event = Event { at: u64::MAX, what };
        assert_eq!(event.to_string().parse(), Ok(event));
    }
}
