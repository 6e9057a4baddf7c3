//! Each rule catches a bad history, made by hand.

use std::time::Duration;

use super::attempt::{History, Malformed};
use super::check::{Rule, Violation};
use super::event::Event;

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
