//! The measured figures.

use std::time::Duration;

use super::contest::Contest;
use super::numbers::median;
use super::plan::Quantity;
use super::work::Work;

/// One quantity of one case, by round.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) case: &'static str,
    pub(crate) quantity: Quantity,
    pub(crate) side: &'static str,
    /// One value for each round.
    pub(crate) values: Vec<f64>,
}

/// The figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) series: Vec<Series>,
}

impl Record {
    pub(crate) fn add(
        &mut self,
        case: &'static str,
        side: &'static str,
        work: Work,
        figures: &[u64],
    ) {
        for (quantity, value) in quantities(work, figures) {
            let mut found = self.series.iter_mut();
            let found = found.find(|it| (it.case, it.quantity, it.side) == (case, quantity, side));
            match found {
                Some(series) => series.values.push(value),
                None => self.series.push(Series {
                    case,
                    quantity,
                    side,
                    values: vec![value],
                }),
            }
        }
    }

    /// The result of the latest round, as text.
    pub(crate) fn latest(&self, case: &str, side: &str) -> String {
        let of_case = self.series.iter();
        let of_case = of_case.filter(|it| (it.case, it.side) == (case, side));
        let words = of_case.map(|series| {
            let value = series.values.last().copied().unwrap_or_default();
            let (quantity, unit) = (series.quantity, series.quantity.unit());
            format!("{quantity:?} {value:.2} {unit}")
        });
        format!("{side}: {}", words.collect::<Vec<_>>().join(", "))
    }

    pub(crate) fn get(&self, case: &str, quantity: Quantity, side: &str) -> Option<&Series> {
        let mut series = self.series.iter();
        series.find(|it| (it.case, it.quantity, it.side) == (case, quantity, side))
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

/// What the numbers of a contest mean.
impl Contest {
    fn of_figures(figures: &[u64]) -> Self {
        let (head, rest) = figures.split_at(4);
        let (served, gaps) = rest.split_at(usize::try_from(head[3]).unwrap());
        Self {
            length: Duration::from_nanos(head[0]),
            handed_on: head[1],
            all: head[2],
            served: served.to_vec(),
            gaps: gaps.to_vec(),
        }
    }

    fn grants(&self) -> u64 {
        self.served.iter().sum()
    }

    /// Grants of the session that got the fewest, to those of the one that got the most.
    fn fairness(&self) -> f64 {
        let least = self.served.iter().min().copied().unwrap_or_default();
        let most = self.served.iter().max().copied().unwrap_or_default();
        least as f64 / most as f64
    }
}

/// How many operations a side completed: grants, or refused tries.
pub(crate) fn operations(work: Work, figures: &[u64]) -> u64 {
    let samples = u64::try_from(figures.len()).unwrap();
    match work {
        Work::Uncontended | Work::Set { .. } => samples / 2,
        Work::Saturated { .. } | Work::Paced { .. } => Contest::of_figures(figures).all,
        Work::Parallel { .. } | Work::ReadWrite { .. } | Work::Drain { .. } => figures[2],
        Work::RoundTrip | Work::Try | Work::Hold | Work::Free | Work::Queue { .. } => samples,
    }
}

/// The quantities of one round.
fn quantities(work: Work, figures: &[u64]) -> Vec<(Quantity, f64)> {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    match work {
        Work::Uncontended | Work::Set { .. } => {
            let pairs = figures.chunks_exact(2);
            let acquires: Vec<_> = pairs.clone().map(|pair| micros(pair[0])).collect();
            let cycles: Vec<_> = pairs.map(|pair| micros(pair.iter().sum())).collect();
            vec![
                (Quantity::Acquire, median(&acquires)),
                (Quantity::Cycle, median(&cycles)),
            ]
        }
        Work::RoundTrip | Work::Try => {
            let attempts: Vec<_> = figures.iter().map(|it| micros(*it)).collect();
            vec![(Quantity::Attempt, median(&attempts))]
        }
        Work::Parallel { .. } | Work::ReadWrite { .. } | Work::Drain { .. } => {
            let rate = figures[0] as f64 / figures[1] as f64 * 1e9;
            vec![(Quantity::Rate, rate)]
        }
        Work::Saturated { .. } => {
            let contest = Contest::of_figures(figures);
            let each = |count: u64| count as f64 / contest.length.as_secs_f64();
            vec![
                (Quantity::Rate, each(contest.grants())),
                (Quantity::HandedOn, each(contest.handed_on)),
                (Quantity::Fairness, contest.fairness()),
            ]
        }
        Work::Paced { .. } => {
            let contest = Contest::of_figures(figures);
            let mut gaps: Vec<_> = contest.gaps.iter().map(|it| micros(*it)).collect();
            gaps.sort_by(f64::total_cmp);
            let long = gaps.get(gaps.len() * 95 / 100).copied();
            vec![
                (Quantity::Gap, median(&gaps)),
                (Quantity::LongGap, long.unwrap_or(f64::NAN)),
                (Quantity::Fairness, contest.fairness()),
            ]
        }
        Work::Hold | Work::Free | Work::Queue { .. } => Vec::new(),
    }
}
