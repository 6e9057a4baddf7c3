//! The goals of the figures: ratios within one run, and counts.

use super::counts::Counts;
use super::goal::{Bound, Goal};
use super::ours::OURS;
use super::plan::Quantity;
use super::record::{Record, Series};

/// A goal of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    pub(crate) what: &'static str,
    pub(crate) measure: Measure,
    pub(crate) bound: Bound,
}

/// What of this library's figures has a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Measure {
    /// The median, to that of another side.
    Ratio(&'static str, Quantity, &'static str),
    /// The highest ratio of the rounds, each to the other side's of the same round.
    WorstPair(&'static str, Quantity, &'static str),
    /// The median, to a fixed value in the same unit.
    Multiple(&'static str, Quantity, f64),
    /// The median.
    Median(&'static str, Quantity),
    /// The median, with that of another side in the text.
    Beside(&'static str, Quantity, &'static str),
    /// The cost of an operation in this column.
    Count(&'static str, usize),
}

/// The goals whose cases were measured.
pub(crate) fn goals(aims: &[Aim], record: &Record, counts: &[Counts]) -> Vec<Goal> {
    let goals = aims.iter().filter_map(|aim| {
        let measured = measured(aim.measure, record, counts)?;
        Some(Goal {
            what: text(aim, record),
            measured,
            bound: aim.bound,
        })
    });
    goals.collect()
}

fn text(aim: &Aim, record: &Record) -> String {
    let other = match aim.measure {
        Measure::Beside(case, quantity, side) => record.get(case, quantity, side),
        _ => None,
    };
    match other {
        Some(other) => format!("{} ({}: {:.2})", aim.what, other.side, other.median()),
        None => aim.what.to_owned(),
    }
}

fn measured(measure: Measure, record: &Record, counts: &[Counts]) -> Option<f64> {
    let ours = |case, quantity| record.get(case, quantity, OURS);
    match measure {
        Measure::Ratio(case, quantity, side) => {
            let other = record.get(case, quantity, side)?;
            Some(ours(case, quantity)?.median() / other.median())
        }
        Measure::WorstPair(case, quantity, side) => {
            let other = record.get(case, quantity, side)?;
            let pairs = ours(case, quantity)?.values.iter().zip(&other.values);
            pairs.map(|(ours, other)| ours / other).reduce(f64::max)
        }
        Measure::Multiple(case, quantity, unit) => Some(ours(case, quantity)?.median() / unit),
        Measure::Median(case, quantity) | Measure::Beside(case, quantity, _) => {
            ours(case, quantity).map(Series::median)
        }
        Measure::Count(case, column) => {
            let mut counts = counts.iter();
            let ours = counts.find(|it| it.case == case && it.side == OURS)?;
            ours.values.get(column).copied()
        }
    }
}
