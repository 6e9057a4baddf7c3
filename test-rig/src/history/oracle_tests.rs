//! Tests of the comparison with the server's log, each with a history made by hand.

use std::time::Duration;

use super::attempt::History;
use super::check::Rule;
use crate::txn_log::{Change, LogRecord, TransactionLog};

const A: &str = "/a/_c_x-__WRIT__0000000000";
const B: &str = "/a/_c_y-__WRIT__0000000001";
const BESIDE: &str = "/a/_c_z-__READ__0000000000";

fn create(path: &str) -> Change {
    Change::Create {
        path: path.to_owned(),
        ephemeral: true,
    }
}

fn delete(path: &str) -> Change {
    Change::Delete {
        path: path.to_owned(),
    }
}

fn write(node: &str) -> Change {
    let check = Change::Check {
        path: node.to_owned(),
    };
    let set = Change::Set {
        path: "/register".to_owned(),
        data: Vec::new(),
    };
    Change::Multi(vec![check, set])
}

/// Transactions 100, 101 and so on, each with its time in milliseconds, session and change.
fn log(records: &[(i64, i64, Change)]) -> TransactionLog {
    let numbered = (100..).zip(records);
    let record = |(zxid, (at_ms, session, change)): (i64, &(i64, i64, Change))| LogRecord {
        zxid,
        session: *session,
        at_ms: *at_ms,
        change: change.clone(),
    };
    numbered.map(record).collect()
}

/// Two writers in turn, as the server saw them.
fn in_turn() -> Vec<(i64, i64, Change)> {
    vec![
        (10, 1, create(A)),
        (11, 2, create(B)),
        (15, 1, write(A)),
        (20, 1, delete(A)),
        (25, 2, write(B)),
        (30, 2, delete(B)),
    ]
}

const FIRST: [&str; 5] = [
    "9 1.0.0 invoked write 1 /a",
    "12 1.0.0 granted 100 @A",
    "",
    "",
    "",
];
const SECOND: [&str; 3] = [
    "10 2.0.0 invoked write 2 /a",
    "22 2.0.0 granted 101 @B",
    "29 2.0.0 releasing",
];

/// A history from lines with stamps in milliseconds. Lines with equal stamps keep their order.
fn history(lines: &[&str]) -> History {
    let lines = lines.iter().filter(|line| !line.is_empty()).enumerate();
    let events = lines.map(|(index, line)| {
        let (at, what) = line.split_once(' ').unwrap();
        let what = what.replace("@A", A).replace("@B", B).replace("@R", BESIDE);
        format!("{at}{index:06} {what}\n")
    });
    History::parse(&events.collect::<String>()).unwrap()
}

/// The rules that a history breaks according to this log, and how.
fn broken(lines: &[&str], records: &[(i64, i64, Change)]) -> Vec<(Rule, String)> {
    let outcome = history(lines).confirm_at(&log(records), 0);
    let violations = outcome.err().unwrap_or_default();
    violations
        .into_iter()
        .map(|it| (it.rule, it.detail))
        .collect()
}

#[track_caller]
fn assert_broken(lines: &[&str], records: &[(i64, i64, Change)], rule: Rule, how: &str) {
    let broken = broken(lines, records);
    assert!(
        broken.len() == 1 && broken[0].0 == rule && broken[0].1.contains(how),
        "{broken:?}"
    );
}

fn both() -> Vec<&'static str> {
    let mut lines = FIRST.to_vec();
    lines[2] = "19 1.0.0 releasing";
    lines.extend(SECOND);
    lines
}

#[test]
fn holders_in_turn_are_confirmed() {
    let confirmed = history(&both()).confirm_at(&log(&in_turn()), 0).unwrap();
    assert_eq!(
        (confirmed.grants, confirmed.writes, confirmed.nodes),
        (2, 2, 2)
    );
    assert_eq!(confirmed.told_before, []);
}

#[test]
fn grant_before_the_older_node_was_to_be_deleted_is_early() {
    let mut lines = both();
    lines[6] = "19 2.0.0 granted 101 @B";
    assert_broken(&lines, &in_turn(), Rule::Order, "ahead at 19 ms");
}

#[test]
fn grant_without_a_node_and_with_anothers_token_is_found() {
    let mut records = in_turn();
    records.remove(0);
    assert_broken(&FIRST, &records, Rule::Order, "not in the server's log");
    let mut lines = both();
    lines[1] = "12 1.0.0 granted 7 @A";
    assert_broken(&lines, &in_turn(), Rule::Token, "log says 100");
}

#[test]
fn reader_beside_its_writer_has_the_writers_token() {
    let mut records = in_turn();
    let check = Change::Check { path: A.to_owned() };
    records.insert(3, (16, 1, Change::Multi(vec![check, create(BESIDE)])));
    records.insert(4, (17, 1, delete(BESIDE)));
    let mut lines = both();
    lines[3] = "15 3.0.0 invoked read 1 /a";
    lines[4] = "16 3.0.0 granted 100 @R";
    assert_eq!(broken(&lines, &records), []);
    lines[4] = "16 3.0.0 granted 103 @R";
    assert_broken(&lines, &records, Rule::Token, "log says 100");
    // The writer's node goes first. The reader's goes after the next writer has written.
    let late = records.remove(4);
    records.insert(6, (28, late.1, late.2));
    lines[4] = "16 3.0.0 granted 100 @R";
    let found = broken(&lines, &records);
    assert_eq!(
        found.len(),
        2,
        "the next writer was granted, and wrote: {found:?}"
    );
}

#[test]
fn guard_that_outlives_its_session_is_found_and_one_that_does_not_is_measured() {
    let mut records = in_turn();
    records[3] = (20, 1, Change::CloseSession);
    let mut lines = both();
    lines[2] = "14 1.0.0 lost";
    lines[3] = "16 1.0.0 let-go";
    let confirmed = history(&lines).confirm_at(&log(&records), 0).unwrap();
    assert_eq!(confirmed.told_before, [Duration::from_millis(6)]);
    lines[2] = "21 1.0.0 valid";
    lines[3] = "";
    assert_broken(
        &lines,
        &records,
        Rule::Exclusion,
        "valid at 21 ms, its node gone at 20 ms",
    );
    lines[2] = "21 1.0.0 lost";
    assert_broken(
        &lines,
        &records,
        Rule::Told,
        "told at 21 ms, its node gone at 20 ms",
    );
    lines.extend(["13 paused 1", "21 resumed 1"]);
    assert_eq!(broken(&lines, &records), []);
}

#[test]
fn session_that_is_ended_from_outside_is_nobodys_fault() {
    let mut records = in_turn();
    records[3] = (20, 1, Change::CloseSession);
    let mut lines = both();
    lines[2] = "21 1.0.0 valid";
    lines[3] = "21 1.0.0 lost";
    lines[4] = "18 evicted 1";
    assert_eq!(broken(&lines, &records), []);
}

#[test]
fn holder_that_is_not_told_counts_until_its_session_ends() {
    let mut records = in_turn();
    records[3] = (20, 1, Change::CloseSession);
    let mut lines = both();
    lines[2] = "28 1.0.0 releasing";
    let judged = |lines: &[&str], other: u32| {
        let (mut history, log) = (history(lines), log(&records));
        history.end_with_sessions_at(|worker| worker == other, &log, 0);
        let confirmed = history.confirm_at(&log, 0);
        let mut violations = confirmed.err().unwrap_or_default();
        violations.extend(history.check(Duration::MAX));
        violations.into_iter().map(|it| it.rule).collect::<Vec<_>>()
    };
    assert_eq!(judged(&lines, 1), []);
    // Only the processes that were named.
    assert!(judged(&lines, 2).contains(&Rule::Exclusion));
    // Until the session ends, the grant excludes others.
    lines[6] = "19 2.0.0 granted 101 @B";
    assert!(judged(&lines, 1).contains(&Rule::Exclusion));
}

#[test]
fn write_outside_the_life_of_its_node_is_found() {
    let mut records = in_turn();
    records.swap(2, 3);
    assert_broken(&both(), &records, Rule::Token, "after the end of its node");
    let mut records = in_turn();
    records[3].2 = write(B);
    records[4].2 = delete(A);
    let found = broken(&both(), &records);
    assert!(found[0].1.contains("ahead at 22 ms"), "{found:?}");
    assert!(found[1].1.contains("was ahead"), "{found:?}");
}

#[test]
fn node_that_nobody_deletes_is_left() {
    let mut records = in_turn();
    records.pop();
    assert_broken(&both(), &records, Rule::Orphan, "session 0x2 lives");
}
