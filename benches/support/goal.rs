//! A goal of a figure, and the table that shows which are met.

use std::fmt::Write as _;

use super::numbers::figure;

/// A ratio or a count, and its bound.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.measured <= bound,
            Bound::AtLeast(bound) => self.measured >= bound,
        }
    }
}

/// One row for each goal.
pub(crate) fn table(goals: &[Goal]) -> String {
    let mut text = "| | measured | aim | |\n|---|--:|--:|---|\n".to_owned();
    for goal in goals {
        let bound = match goal.bound {
            Bound::AtMost(bound) => format!("at most {bound}"),
            Bound::AtLeast(bound) => format!("at least {bound}"),
        };
        let verdict = if goal.is_met() { "met" } else { "**missed**" };
        writeln!(
            text,
            "| {} | {} | {bound} | {verdict} |",
            goal.what,
            figure(goal.measured)
        )
        .unwrap();
    }
    text
}
