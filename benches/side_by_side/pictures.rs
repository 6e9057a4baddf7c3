//! The figures as pictures.

use super::plan::{QUEUES, Quantity, SESSIONS, UNCONTENDED, contended, drain, drain_apart};
use super::plot::{Chart, Line, Scale, svg};
use super::record::{Record, Series};
use super::side::Kind;
use super::stage::Way;

const WAYS: [Way; 2] = [Way::Local, Way::Distant];
/// The percents of the samples that a line shows. The slowest samples show more about the machine
/// than about a lock.
const PERCENTS: std::ops::RangeInclusive<u32> = 1..=99;

pub(crate) struct Picture {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) svg: String,
}

/// The pictures for which there are figures.
pub(crate) fn pictures(record: &Record) -> Vec<Picture> {
    let pictures = [
        (
            "latency",
            "Latency of acquire and release, uncontended",
            Vec::from(WAYS.map(|way| latency(record, way))),
        ),
        (
            "queue",
            "Cost of a hand-off against the length of the queue",
            vec![queue(record)],
        ),
        (
            "sessions",
            "Throughput of one lock against the sessions that contend for it",
            Vec::from(WAYS.map(|way| sessions(record, way))),
        ),
    ];
    let pictures = pictures.into_iter().map(|(name, title, mut charts)| {
        charts.retain(|chart| !chart.lines.is_empty());
        let svg = (!charts.is_empty()).then(|| svg(&charts));
        svg.map(|svg| Picture { name, title, svg })
    });
    pictures.flatten().collect()
}

fn latency(record: &Record, way: Way) -> Chart {
    let lines = Kind::ALL.into_iter().filter_map(|side| {
        let series = record.get(UNCONTENDED, Quantity::Cycle, way, side)?;
        Some(Line {
            name: side.to_string(),
            points: spread(&series.samples),
        })
    });
    Chart {
        title: format!("{way}: % of acquires with their releases that take at most so many µs"),
        scales: [Scale::Logarithmic, Scale::Linear],
        lines: lines.collect(),
    }
}

/// For each percent of the samples, the longest time that they take.
fn spread(samples: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let percents = PERCENTS.map(|percent| (percent, sorted.len() * percent as usize / 100));
    let points =
        percents.filter_map(|(percent, index)| Some((*sorted.get(index)?, percent.into())));
    points.collect()
}

fn queue(record: &Record) -> Chart {
    let line = |name: String, way, side, case: &dyn Fn(usize) -> String| {
        let cost = |waiters| record.get(&case(waiters), Quantity::HandOff, way, side);
        points(name, &QUEUES, cost)
    };
    let lines = WAYS.map(|way| {
        [
            line(format!("ours, {way}"), way, Kind::Ours, &drain),
            line(format!("Curator, {way}"), way, Kind::Curator, &drain),
            line(
                format!("Curator, an object each, {way}"),
                way,
                Kind::Curator,
                &drain_apart,
            ),
        ]
    });
    Chart {
        title: "µs per hand-off, over the number of waiters".to_owned(),
        scales: [Scale::Logarithmic; 2],
        lines: lines.into_iter().flatten().flatten().collect(),
    }
}

fn sessions(record: &Record, way: Way) -> Chart {
    let lines = Kind::ALL.map(|side| {
        let rate = |sessions| record.get(&contended(sessions), Quantity::Rate, way, side);
        points(side.to_string(), &SESSIONS, rate)
    });
    Chart {
        title: format!("{way}: hand-offs in a second, over the number of sessions"),
        scales: [Scale::Linear; 2],
        lines: lines.into_iter().flatten().collect(),
    }
}

/// A line through the medians, if there are at least two.
fn points<'a>(
    name: String,
    numbers: &[usize],
    series: impl Fn(usize) -> Option<&'a Series>,
) -> Option<Line> {
    let points = numbers.iter().filter_map(|number| {
        let median = series(*number)?.median();
        Some((*number as f64, median))
    });
    let points: Vec<_> = points.collect();
    (points.len() > 1).then_some(Line { name, points })
}
