//! The goals of the figures: ratios within one run, and counts.

use super::counts::Counts;
use super::goal::{Bound, Goal};
use super::plan::{PACED, Quantity, SATURATED, SET, TRY, UNCONTENDED};
use super::record::{Record, Series};
use super::side::Kind;

/// The goals whose cases were measured.
pub(crate) fn goals(record: &Record, counts: &[Counts]) -> Vec<Goal> {
    let claims = by_time(record).into_iter().chain(by_count(counts));
    let goals = claims.filter_map(|(what, measured, bound)| {
        measured.map(|measured| Goal {
            what: what.to_owned(),
            measured,
            bound,
        })
    });
    goals.collect()
}

/// The text, the figure if there is one, and the bound.
type Claim = (&'static str, Option<f64>, Bound);

fn by_time(record: &Record) -> Vec<Claim> {
    let to = |case: &str, quantity, side| {
        let ours = record.get(case, quantity, Kind::Ours)?;
        Some(ours.median() / record.get(case, quantity, side)?.median())
    };
    let fairness = |case: &str| {
        let ours = record.get(case, Quantity::Fairness, Kind::Ours);
        ours.map(Series::median)
    };
    // The highest ratio of the rounds, each to the other side's of the same round.
    let worst_pair = || {
        let ours = record.get(UNCONTENDED, Quantity::Cycle, Kind::Ours)?;
        let fair = record.get(UNCONTENDED, Quantity::Cycle, Kind::RedissonFair)?;
        let pairs = ours.values.iter().zip(&fair.values);
        pairs.map(|(ours, fair)| ours / fair).reduce(f64::max)
    };
    vec![
        (
            "acquire + release, to Redisson's fair lock, the worst pair",
            worst_pair(),
            Bound::AtMost(1.0),
        ),
        (
            "acquire + release, to the polled hash",
            to(UNCONTENDED, Quantity::Cycle, Kind::Polled),
            Bound::AtMost(1.3),
        ),
        (
            "release to next grant with 2 ms of work, to the hash that wakes all",
            to(PACED, Quantity::Gap, Kind::Woken),
            Bound::AtMost(0.75),
        ),
        (
            "least served to most served, with 2 ms of work",
            fairness(PACED),
            Bound::AtLeast(0.95),
        ),
        (
            "least served to most served, all the time",
            fairness(SATURATED),
            Bound::AtLeast(0.95),
        ),
        (
            "grants of 8 sessions all the time, to the hash that wakes all",
            to(SATURATED, Quantity::Rate, Kind::Woken),
            Bound::AtLeast(0.85),
        ),
    ]
}

fn by_count(counts: &[Counts]) -> Vec<Claim> {
    let scripts = |case: &str| {
        let mut counts = counts.iter();
        let ours = counts.find(|it| it.case == case && it.side == Kind::Ours);
        ours.map(|it| it.scripts)
    };
    // Opening a directory or a heartbeat may come in between.
    let some = 0.05;
    vec![
        (
            "scripts of acquire + release",
            scripts(UNCONTENDED),
            Bound::AtMost(2.0 + some),
        ),
        (
            "scripts of a multi-lock of 8, acquire + release",
            scripts(SET),
            Bound::AtMost(2.0 + some),
        ),
        (
            "scripts of a failed try",
            scripts(TRY),
            Bound::AtMost(1.0 + some),
        ),
        (
            "scripts of a hand-off with 2 ms of work",
            scripts(PACED),
            Bound::AtMost(3.0 + some),
        ),
        (
            "scripts of a hand-off all the time",
            scripts(SATURATED),
            Bound::AtMost(3.0 + some),
        ),
    ]
}
