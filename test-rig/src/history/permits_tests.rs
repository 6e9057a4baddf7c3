//! Histories of semaphores and elections, made by hand, and what the rules find in them.

use std::time::Duration;

use super::attempt::History;
use super::check::{Rule, Violation};
use super::event::Event;
use crate::txn_log::{Change, LogRecord, TransactionLog};

const WAIT_MAX: Duration = Duration::from_nanos(50);

/// Which rules are broken, and by which attempts.
fn broken(lines: &[&str]) -> Vec<(Rule, String)> {
    let by = |it: &Violation| {
        let names: Vec<_> = it.attempts.iter().map(ToString::to_string).collect();
        names.join(" ")
    };
    let history = History::parse(&lines.join("\n")).unwrap();
    let violations = history.check(WAIT_MAX);
    violations.iter().map(|it| (it.rule, by(it))).collect()
}

/// Three permits: two contenders have all, one by one and two together. The third follows one of
/// them. Its lease is the oldest, and its token the lowest.
const THREE: [&str; 15] = [
    "1 1.0.0 invoked permit:3 1 /p",
    "2 2.0.0 invoked permit:3 2 /p",
    "2 2.0.1 invoked permit:3 2 /p",
    "3 3.0.0 invoked permit:3 3 /p",
    "10 1.0.0 granted 101 /p/x-1",
    "11 2.0.0 granted 102 /p/y-2",
    "11 2.0.1 granted 102 /p/y-3",
    "20 1.0.0 valid",
    "21 1.0.0 releasing",
    "25 1.0.0 released",
    "24 3.0.0 granted 100 /p/z-0",
    "30 2.0.0 valid",
    "30 2.0.1 valid",
    "40 2.0.0 lost",
    "40 2.0.1 lost",
];

fn but(changes: &[(usize, &'static str)]) -> Vec<&'static str> {
    let mut lines = THREE.to_vec();
    for (index, line) in changes {
        lines[*index] = line;
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[test]
fn all_permits_are_held_together_and_their_tokens_need_not_rise() {
    assert_eq!(broken(&THREE), []);
    let history = History::parse(&THREE.join("\n")).unwrap();
    assert_eq!(history.permits_at_once().get("/p"), Some(&3));
}

#[test]
fn one_permit_more_than_there_are_is_named_with_all_who_hold_one() {
    let lines = but(&[(10, "20 3.0.0 granted 103 /p/z-0")]);
    let all = "1.0.0 2.0.0 2.0.1 3.0.0".to_owned();
    let want = [(Rule::Permits, all.clone()), (Rule::Told, all)];
    assert_eq!(broken(&lines), want);
    let history = History::parse(&lines.join("\n")).unwrap();
    assert_eq!(
        history.check(WAIT_MAX)[0].to_string(),
        "Permits broken on /p by 1.0.0 2.0.0 2.0.1 3.0.0: 4 of 3 permits were held at 20"
    );
    assert_eq!(history.permits_at_once().get("/p"), Some(&4));
}

#[test]
fn permits_that_are_acquired_together_count_one_by_one() {
    // Two are free, and it takes three.
    let lines = [
        "1 1.0.0 invoked permit:3 1 /p",
        "1 2.0.0 invoked permit:3 2 /p",
        "1 2.0.1 invoked permit:3 2 /p",
        "1 2.0.2 invoked permit:3 2 /p",
        "2 1.0.0 granted 100 /p/x-0",
        "3 2.0.0 granted 101 /p/y-1",
        "3 2.0.1 granted 101 /p/y-2",
        "3 2.0.2 granted 101 /p/y-3",
        "4 1.0.0 valid",
    ];
    let all = "1.0.0 2.0.0 2.0.1 2.0.2".to_owned();
    assert_eq!(broken(&lines), [(Rule::Permits, all)]);
    assert_eq!(broken(&lines[..7]), []);
}

#[test]
fn holder_of_a_permit_told_after_its_successors_grant_is_late_unless_it_was_paused() {
    let mut lines = but(&[(8, "26 1.0.0 lost"), (9, "27 1.0.0 let-go")]);
    let all = "1.0.0 2.0.0 2.0.1 3.0.0".to_owned();
    assert_eq!(broken(&lines), [(Rule::Told, all)]);
    lines.extend(["15 paused 1", "25 resumed 1"]);
    assert_eq!(broken(&lines), []);
}

#[test]
fn permit_of_a_session_that_is_ended_from_outside_counts_until_then() {
    let mut lines = but(&[
        (7, "25 1.0.0 valid"),
        (8, "26 1.0.0 lost"),
        (9, "27 1.0.0 let-go"),
    ]);
    assert_eq!(broken(&lines).len(), 2);
    lines.push("22 evicted 7");
    let mut history = History::parse(&lines.join("\n")).unwrap();
    history.learn(|node| (node == "/p/x-1").then_some((101, 7)));
    assert_eq!(history.check(WAIT_MAX), []);
}

#[test]
fn highest_number_of_any_process_is_the_number_of_permits() {
    let lines = [
        "1 1.0.0 invoked permit:1 1 /p",
        "1 2.0.0 invoked permit:2 2 /p",
        "2 1.0.0 granted 100 /p/x-0",
        "3 2.0.0 granted 101 /p/y-1",
        "4 1.0.0 valid",
    ];
    assert_eq!(broken(&lines), []);
    let mut one = lines;
    one[1] = "1 2.0.0 invoked permit:1 2 /p";
    assert_eq!(broken(&one)[0], (Rule::Permits, "1.0.0 2.0.0".to_owned()));
}

#[test]
fn token_of_a_single_permit_rises() {
    let lines = [
        "1 1.0.0 invoked permit:1 1 /p",
        "1 2.0.0 invoked permit:1 2 /p",
        "2 1.0.0 granted 100 /p/x-0",
        "3 1.0.0 releasing",
        "5 1.0.0 released",
        "4 2.0.0 granted 99 /p/y-1",
    ];
    let pair = "1.0.0 2.0.0".to_owned();
    let want = [(Rule::Order, pair.clone()), (Rule::Token, pair)];
    assert_eq!(broken(&lines), want);
}

#[test]
fn contender_that_waits_for_free_permits_is_late() {
    let late = but(&[(10, "110 3.0.0 granted 103 /p/z-4")]);
    let mut late: Vec<_> = late;
    late.extend(["45 2.0.0 let-go", "45 2.0.1 let-go"]);
    assert_eq!(broken(&late), [(Rule::Wake, "2.0.0 3.0.0".to_owned())]);
}

#[test]
fn lease_that_is_left_is_named_with_its_attempt() {
    let mut lines = THREE.to_vec();
    lines.push("50 left /p/y-3");
    assert_eq!(broken(&lines), [(Rule::Orphan, "2.0.1".to_owned())]);
}

/// Three terms of an election. Each campaign is a party of its own.
const TERMS: [&str; 10] = [
    "1 1.0.0 invoked latch 1 /e",
    "2 2.0.0 invoked latch 2 /e",
    "10 1.0.0 granted 100 /e/x-0",
    "20 1.0.0 lost",
    "25 1.0.0 let-go",
    "24 2.0.0 granted 101 /e/y-1",
    "30 2.0.0 releasing",
    "32 2.0.0 released",
    "33 1.1.0 invoked latch 11 /e",
    "35 1.1.0 granted 102 /e/x-2",
];

#[test]
fn leaders_in_turn_break_nothing() {
    assert_eq!(broken(&TERMS), []);
}

#[test]
fn two_leaders_at_one_time_are_named() {
    let mut lines = TERMS.to_vec();
    lines.push("24 1.0.0 valid");
    assert_eq!(
        broken(&lines),
        [(Rule::Exclusion, "1.0.0 2.0.0".to_owned())]
    );
}

#[test]
fn term_that_is_not_above_all_earlier_ones_is_found() {
    for token in [99, 100, 101] {
        let last = format!("35 1.1.0 granted {token} /e/x-2");
        let mut lines = TERMS.to_vec();
        lines[9] = &last;
        let rules: Vec<_> = broken(&lines).into_iter().map(|it| it.0).collect();
        assert_eq!(rules, [Rule::Order, Rule::Token], "{token}");
    }
}

#[test]
fn number_of_permits_stands_with_permits_only() {
    for line in [
        "1 1.0.0 invoked permit 1 /p",
        "1 1.0.0 invoked permit:0 1 /p",
        "1 1.0.0 invoked permit:x 1 /p",
        "1 1.0.0 invoked mutex:1 1 /p",
        "1 1.0.0 invoked lease:1 1 /p",
    ] {
        assert!(line.parse::<Event>().is_err(), "{line:?}");
    }
}

/// Leases of a semaphore with two permits, as the server saw them.
const LEASES: [&str; 3] = [
    "/p/leases/_c_x-lease-0000000000",
    "/p/leases/_c_y-lease-0000000001",
    "/p/leases/_c_z-lease-0000000002",
];

fn leases_in_turn() -> Vec<(i64, Change)> {
    let create = |path: &str| Change::Create {
        path: path.to_owned(),
        ephemeral: true,
    };
    let delete = |path: &str| Change::Delete {
        path: path.to_owned(),
    };
    let [x, y, z] = LEASES;
    vec![
        (10, Change::Multi(vec![create(x)])),
        // Two at once: the second of them has to wait for the first contender's.
        (12, Change::Multi(vec![create(y), create(z)])),
        (20, delete(x)),
        (30, Change::Multi(vec![delete(y), delete(z)])),
    ]
}

/// What the log finds wrong with the second contender's grant of both permits at this time.
fn confirmed(granted_ms: u64, records: &[(i64, Change)]) -> Vec<Rule> {
    let [x, y, z] = LEASES;
    let events = [
        "9000000 1.0.0 invoked permit:2 1 /p/leases".to_owned(),
        "9000000 2.0.0 invoked permit:2 2 /p/leases".to_owned(),
        "9000000 2.0.1 invoked permit:2 2 /p/leases".to_owned(),
        format!("11000000 1.0.0 granted 100 {x}"),
        "19000000 1.0.0 releasing".to_owned(),
        format!("{granted_ms}000000 2.0.0 granted 101 {y}"),
        format!("{granted_ms}000000 2.0.1 granted 101 {z}"),
    ];
    let numbered = (100..).zip(records);
    let record = |(zxid, (at_ms, change)): (i64, &(i64, Change))| LogRecord {
        zxid,
        session: 1,
        at_ms: *at_ms,
        change: change.clone(),
    };
    let log: TransactionLog = numbered.map(record).collect();
    let mut history = History::parse(&events.join("\n")).unwrap();
    match history.confirm_at(&log, 0) {
        Ok(confirmed) => {
            assert_eq!((confirmed.grants, confirmed.nodes), (3, 3));
            Vec::new()
        }
        Err(violations) => violations.iter().map(|it| it.rule).collect(),
    }
}

#[test]
fn log_confirms_permits_and_finds_one_that_was_granted_while_all_were_taken() {
    assert_eq!(confirmed(21, &leases_in_turn()), []);
    // The first of its two leases had room.
    assert_eq!(confirmed(19, &leases_in_turn()), [Rule::Order]);
}

#[test]
fn log_finds_a_lease_that_nobody_deletes() {
    let mut records = leases_in_turn();
    records.pop();
    assert_eq!(confirmed(21, &records), [Rule::Orphan, Rule::Orphan]);
}
