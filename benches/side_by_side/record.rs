//! The measured figures.

use super::numbers::median;
use super::plan::Quantity;
use super::side::Kind;
use super::stage::Way;
use super::work::Work;

/// One quantity of one case, by repetition.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) case: String,
    pub(crate) quantity: Quantity,
    pub(crate) way: Way,
    pub(crate) side: Kind,
    /// One value for each repetition.
    pub(crate) values: Vec<f64>,
    /// The single operations of all repetitions, if each was timed.
    pub(crate) samples: Vec<f64>,
}

/// The figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) series: Vec<Series>,
}

impl Record {
    pub(crate) fn add(&mut self, case: &str, way: Way, side: Kind, work: Work, figures: &[u64]) {
        for (quantity, value, samples) in quantities(work, figures) {
            let found = self.series.iter_mut().find(|series| {
                (
                    series.case.as_str(),
                    series.quantity,
                    series.way,
                    series.side,
                ) == (case, quantity, way, side)
            });
            if let Some(series) = found {
                series.values.push(value);
                series.samples.extend(samples);
            } else {
                self.series.push(Series {
                    case: case.to_owned(),
                    quantity,
                    way,
                    side,
                    values: vec![value],
                    samples,
                });
            }
        }
    }

    /// The result of the latest repetition, as text.
    pub(crate) fn latest(&self, case: &str, way: Way, side: Kind) -> String {
        let of_case = self
            .series
            .iter()
            .filter(|series| (series.case.as_str(), series.way, series.side) == (case, way, side));
        let words = of_case.map(|series| {
            let value = series.values.last().copied().unwrap_or_default();
            format!(
                "{:?} {value:.0} {}",
                series.quantity,
                series.quantity.unit()
            )
        });
        format!("{side}: {}", words.collect::<Vec<_>>().join(", "))
    }

    pub(crate) fn get(
        &self,
        case: &str,
        quantity: Quantity,
        way: Way,
        side: Kind,
    ) -> Option<&Series> {
        self.series.iter().find(|series| {
            (
                series.case.as_str(),
                series.quantity,
                series.way,
                series.side,
            ) == (case, quantity, way, side)
        })
    }
}

impl Series {
    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }

    pub(crate) fn lowest(&self) -> f64 {
        self.values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn highest(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }
}

/// How many operations a side completed: grants, or refused tries.
pub(crate) fn operations(work: Work, figures: &[u64]) -> u64 {
    let samples = u64::try_from(figures.len()).unwrap();
    match work {
        Work::Uncontended | Work::Set { .. } | Work::Permit { .. } => samples / 2,
        Work::Try | Work::Read => samples,
        _ => figures[2],
    }
}

/// The quantities of one repetition, each with its value and the samples whose median it is.
fn quantities(work: Work, figures: &[u64]) -> Vec<(Quantity, f64, Vec<f64>)> {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let timed = |quantity, samples: Vec<f64>| (quantity, median(&samples), samples);
    match work {
        Work::Uncontended | Work::Set { .. } | Work::Permit { .. } => {
            let pairs = figures.chunks_exact(2);
            let acquires = pairs.clone().map(|pair| micros(pair[0]));
            let cycles = pairs.map(|pair| micros(pair.iter().sum()));
            vec![
                timed(Quantity::Acquire, acquires.collect()),
                timed(Quantity::Cycle, cycles.collect()),
            ]
        }
        Work::Try | Work::Read => {
            let samples = figures.iter().map(|it| micros(*it)).collect();
            vec![timed(Quantity::Attempt, samples)]
        }
        Work::Contended { .. }
        | Work::Local { .. }
        | Work::Parallel { .. }
        | Work::ReadWrite { .. } => {
            let rate = figures[0] as f64 / figures[1] as f64 * 1e9;
            vec![(Quantity::Rate, rate, Vec::new())]
        }
        Work::Drain | Work::Queue { .. } => {
            let each = micros(figures[1]) / figures[0] as f64;
            vec![(Quantity::HandOff, each, Vec::new())]
        }
        Work::Hold | Work::Free | Work::Crowd { .. } | Work::Release | Work::Disperse => Vec::new(),
    }
}
