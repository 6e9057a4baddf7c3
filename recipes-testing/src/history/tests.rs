//! Each rule catches a bad history, and a checker of all pairs agrees with the fast one.

use std::collections::BTreeSet;
use std::time::Duration;

use recipes_core::LockKind;

use super::attempt::{Attempt, Granted, History, Malformed};
use super::check::{Rule, Violation, as_signed};
use super::event::{AttemptId, Event, Happening, Step};
use crate::memory::random::Random;

const WAIT_MAX: Duration = Duration::from_nanos(50);

fn history(lines: &[&str]) -> History {
    History::parse(&lines.join("\n")).unwrap()
}

/// Which rules are broken, and by which attempts.
fn broken(lines: &[&str]) -> Vec<(Rule, String)> {
    let by = |it: &Violation| {
        let names: Vec<_> = it.attempts.iter().map(ToString::to_string).collect();
        names.join(" ")
    };
    let violations = history(lines).check(WAIT_MAX);
    violations.iter().map(|it| (it.rule, by(it))).collect()
}

/// Two writers, one after the other. Each line is a step, and each test changes some.
const IN_TURN: [&str; 10] = [
    "10 1.0.0 invoked write 1 /a",
    "11 2.0.0 invoked write 2 /a",
    "12 1.0.0 granted 100 /a/x-0",
    "13 1.0.0 valid",
    "20 1.0.0 releasing",
    "25 1.0.0 released",
    "24 2.0.0 granted 101 /a/y-1",
    "30 2.0.0 valid",
    "31 2.0.0 releasing",
    "32 2.0.0 released",
];

fn but(changes: &[(usize, &'static str)]) -> Vec<&'static str> {
    let mut lines = IN_TURN.to_vec();
    for (index, line) in changes {
        lines[*index] = line;
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[test]
fn holders_in_turn_break_nothing() {
    assert_eq!(broken(&IN_TURN), []);
    assert_eq!(broken(&[]), []);
}

#[test]
fn two_valid_at_one_time_are_named() {
    let lines = but(&[(6, "19 2.0.0 granted 101 /a/y-1")]);
    let pair = "1.0.0 2.0.0".to_owned();
    let want = [(Rule::Exclusion, pair.clone()), (Rule::Told, pair)];
    assert_eq!(broken(&lines), want);
    let violation = &history(&lines).check(WAIT_MAX)[0];
    assert_eq!(
        violation.to_string(),
        "Exclusion broken on /a by 1.0.0 2.0.0: \
         the first was valid at 20, when the second was granted at 19"
    );
}

#[test]
fn long_hold_is_seen_over_short_ones_in_it() {
    let mut lines = IN_TURN.to_vec();
    lines.extend([
        "0 3.0.0 invoked read 3 /a",
        "1 3.0.0 granted 99 /a/r-0",
        "33 3.0.0 valid",
    ]);
    assert_eq!(
        broken(&lines)[0],
        (Rule::Exclusion, "3.0.0 1.0.0".to_owned())
    );
    // On another lock it is no violation.
    lines[10] = "0 3.0.0 invoked read 3 /b";
    assert_eq!(broken(&lines), []);
}

#[test]
fn readers_hold_together_and_a_writer_does_not_join_them() {
    let readers = [
        "1 1.0.0 invoked read 1 /a",
        "1 2.0.0 invoked read 2 /a",
        "2 1.0.0 granted 100 /a/x-0",
        "2 2.0.0 granted 101 /a/y-1",
        "9 1.0.0 valid",
        "9 2.0.0 valid",
    ];
    assert_eq!(broken(&readers), []);
    let mut writer = readers.to_vec();
    writer.extend(["3 3.0.0 invoked write 3 /a", "5 3.0.0 granted 102 /a/z-2"]);
    assert_eq!(broken(&writer)[0].0, Rule::Exclusion);
}

#[test]
fn reader_beside_its_own_writer_is_no_conflict_and_beside_a_strangers_is() {
    let beside = |party: u64| {
        let invoked = format!("13 3.0.0 invoked read {party} /a");
        let lines = [
            IN_TURN[0],
            IN_TURN[2],
            &invoked,
            "14 3.0.0 granted 100 /a/r-0",
            IN_TURN[4],
        ];
        broken(&lines)
    };
    assert_eq!(beside(1), []);
    let rules: Vec<_> = beside(3).into_iter().map(|it| it.0).collect();
    assert_eq!(
        rules,
        [Rule::Exclusion, Rule::Told, Rule::Order, Rule::Token]
    );
}

#[test]
fn loss_told_after_the_next_grant_is_late_unless_the_process_was_paused() {
    let mut lines = but(&[(4, "26 1.0.0 lost"), (5, "27 1.0.0 let-go")]);
    assert_eq!(broken(&lines), [(Rule::Told, "1.0.0 2.0.0".to_owned())]);
    lines.extend(["15 paused 1", "25 resumed 1"]);
    assert_eq!(broken(&lines), []);
    lines[10] = "15 paused 2";
    lines[11] = "25 resumed 2";
    assert_eq!(broken(&lines), [(Rule::Told, "1.0.0 2.0.0".to_owned())]);
}

#[test]
fn grant_out_of_turn_is_found_by_place_and_by_token() {
    let lines = but(&[(2, "12 1.0.0 granted 102 /a/x-0")]);
    let pair = "1.0.0 2.0.0".to_owned();
    assert_eq!(
        broken(&lines),
        [(Rule::Order, pair.clone()), (Rule::Token, pair.clone())]
    );
    // The place from another source, such as the server's own log.
    let mut learned = history(&lines);
    learned.learn(|node| Some((if node == "/a/x-0" { 100 } else { 101 }, 1)));
    let rules: Vec<_> = learned.check(WAIT_MAX).iter().map(|it| it.rule).collect();
    assert_eq!(rules, [Rule::Token]);
}

#[test]
fn token_that_is_given_twice_is_found() {
    let lines = but(&[(6, "24 2.0.0 granted 100 /a/y-1")]);
    assert!(broken(&lines).contains(&(Rule::Token, "1.0.0 2.0.0".to_owned())));
}

#[test]
fn node_that_is_left_is_named_with_its_attempt() {
    let mut lines = IN_TURN.to_vec();
    lines.push("40 left /a/y-1");
    assert_eq!(broken(&lines), [(Rule::Orphan, "2.0.0".to_owned())]);
}

#[test]
fn contender_that_waits_with_nobody_ahead_is_late() {
    let late = but(&[
        (6, "80 2.0.0 granted 101 /a/y-1"),
        (7, "81 2.0.0 valid"),
        (8, "82 2.0.0 releasing"),
        (9, "83 2.0.0 released"),
    ]);
    assert_eq!(broken(&late), [(Rule::Wake, "1.0.0 2.0.0".to_owned())]);
    // Delays that the contender cannot prevent.
    for (start, end) in [("26 down", "40 up"), ("26 paused 2", "40 resumed 2")] {
        let mut hindered = late.clone();
        hindered.extend([start, end]);
        assert_eq!(broken(&hindered), []);
    }
    let mut queue = late.clone();
    queue.extend(["5 3.0.0 invoked write 3 /a", "45 3.0.0 ended"]);
    assert_eq!(
        broken(&queue),
        [],
        "the third may have been ahead until it gave up"
    );
    // Never granted, and then only the end of the history.
    let mut hung = but(&[(6, ""), (7, ""), (8, ""), (9, "")]);
    hung.push("90 3.0.0 invoked mutex 3 /b");
    assert_eq!(broken(&hung), [(Rule::Wake, "1.0.0 2.0.0".to_owned())]);
    hung.push("85 killed 2");
    assert_eq!(broken(&hung), [(Rule::Wake, "1.0.0 2.0.0".to_owned())]);
    hung[7] = "60 killed 2";
    assert_eq!(broken(&hung), []);
}

#[test]
fn set_waits_for_the_last_of_its_members() {
    let lines = [
        "0 1.0.0 invoked mutex 1 /a",
        "1 1.0.0 granted 100 /a/x-0",
        "2 2.0.0 invoked mutex 2 /a",
        "2 2.0.1 invoked mutex 2 /b",
        "80 1.0.0 releasing",
        "81 1.0.0 released",
        "90 2.0.0 granted 101 /a/y-1",
        "90 2.0.1 granted 102 /b/z-0",
    ];
    assert_eq!(broken(&lines), []);
    let mut late = lines;
    late[6] = "190 2.0.0 granted 101 /a/y-1";
    late[7] = "190 2.0.1 granted 102 /b/z-0";
    assert_eq!(broken(&late), [(Rule::Wake, "1.0.0 2.0.0".to_owned())]);
}

#[test]
fn holder_whose_session_is_ended_from_outside_counts_until_then() {
    let mut lines = but(&[
        (4, "26 1.0.0 lost"),
        (5, "27 1.0.0 let-go"),
        (3, "25 1.0.0 valid"),
    ]);
    assert_eq!(broken(&lines).len(), 2);
    lines.push("22 evicted 7");
    let mut history = history(&lines);
    history.learn(|node| Some(if node == "/a/x-0" { (100, 7) } else { (101, 8) }));
    assert_eq!(history.check(WAIT_MAX), []);
}

#[test]
fn events_that_cannot_be_are_refused() {
    for (lines, why) in [
        (vec!["1 1.0.0 valid"], "not invoked"),
        (vec![IN_TURN[0], "11 1.0.0 valid"], "not granted"),
        (vec![IN_TURN[0], IN_TURN[0]], "invoked before"),
        (vec![IN_TURN[0], IN_TURN[2], IN_TURN[2]], "granted before"),
        (
            vec![IN_TURN[0], IN_TURN[2], IN_TURN[5], IN_TURN[5]],
            "ended before",
        ),
        (vec!["1 up"], "not down"),
        (vec!["1 resumed 1"], "not paused"),
    ] {
        let refused = History::parse(&lines.join("\n")).unwrap_err();
        assert!(
            matches!(&refused, Malformed::Order { why: it, .. } if *it == why),
            "{refused}"
        );
    }
    for line in [
        "",
        "1",
        "x up",
        "1 up 2",
        "1 1.0 valid",
        "1 1.0.0.0 valid",
        "1 1.0.0 valid 2",
    ] {
        assert!(line.parse::<Event>().is_err(), "{line:?}");
    }
}

/// Random events. The numbers are small, so that ties and conflicts are frequent.
fn events(random: &mut Random) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |at: u64, what: Happening| events.push(Event { at, what });
    for worker in 0..2 + u32::try_from(random.below(5)).unwrap() {
        let kinds = [LockKind::Mutex, LockKind::Read, LockKind::Write];
        let kind = kinds[usize::try_from(random.below(3)).unwrap()];
        let (party, number) = (random.below(4), u32::try_from(random.below(2)).unwrap());
        let id = AttemptId {
            worker,
            number,
            member: 0,
        };
        let path = format!("/locks/{} and a space", random.below(2));
        let mut at = random.below(60);
        let mut step = |random: &mut Random, step: Step| {
            at += random.below(40);
            add(at, Happening::Of(id, step));
        };
        step(random, Step::Invoked { kind, party, path });
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
            for pair in history.pair_rules() {
                if (pair.value)((one, first)).is_some_and(|it| it >= (pair.limit)(second)) {
                    broken.insert((pair.rule, one.path.clone()));
                }
            }
        }
    }
    let left = history.left.iter().map(|node| (Rule::Orphan, node.clone()));
    broken.extend(left);
    let late: BTreeSet<_> = late_by_pairs(history).map(|it| it.path.clone()).collect();
    if late.is_empty() {
        broken.extend(hung(history).map(|path| (Rule::Wake, path)));
    }
    broken.extend(late.into_iter().map(|path| (Rule::Wake, path)));
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
fn contenders_that_all_wait_for_each_other_are_named() {
    let lines = [
        "0 1.0.0 invoked mutex 1 /a",
        "5 2.0.0 invoked mutex 2 /a",
        "9 3.0.0 invoked mutex 3 /a",
        "10 3.0.0 ended",
        "90 over",
    ];
    assert_eq!(broken(&lines), [(Rule::Wake, "1.0.0 2.0.0".to_owned())]);
    let mut held = lines.to_vec();
    held[3] = "10 3.0.0 granted 100 /a/x-0";
    assert_eq!(broken(&held), [], "somebody has it until the end");
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
    assert_eq!(seen.len(), 6, "{seen:?}");
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
