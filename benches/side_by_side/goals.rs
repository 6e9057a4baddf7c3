//! The goals of the figures: ratios within one run, and counts.

use super::counts::Counts;
use super::goal::{Bound, Goal};
use super::plan::{
    CONTENDERS, LOCAL_HANDED_ON, PARALLEL, PERMIT, QUEUES, Quantity, READ_WRITE, SET, TRY,
    UNCONTENDED, contended, drain,
};
use super::record::{Record, Series};
use super::side::Kind;
use super::stage::Way;

/// The goals whose cases were measured.
pub(crate) fn goals(record: &Record, counts: &[Counts]) -> Vec<Goal> {
    let all = [
        against_the_floor(record),
        against_curator(record),
        by_itself(record),
        by_count(counts),
    ];
    let goals = all.into_iter().flatten();
    let goals = goals.filter_map(|(what, measured, bound)| {
        measured.map(|measured| Goal {
            what,
            measured,
            bound,
        })
    });
    goals.collect()
}

/// The text, the figure if there is one, and the bound.
type Claim = (String, Option<f64>, Bound);

fn against_the_floor(record: &Record) -> Vec<Claim> {
    let floor = |quantity, way| {
        let ours = record.get(UNCONTENDED, quantity, way, Kind::Ours)?.median();
        Some(ours / record.get(UNCONTENDED, quantity, way, Kind::Raw)?.median())
    };
    let hand_off = || {
        let (rate, way) = (Quantity::Rate, Way::Distant);
        let rate = record
            .get(&contended(CONTENDERS), rate, way, Kind::Ours)?
            .median();
        let write = record
            .get(UNCONTENDED, Quantity::Acquire, way, Kind::Raw)?
            .median();
        Some(1e6 / rate / write)
    };
    vec![
        (
            "acquire at 1.5 ms, to a raw create".to_owned(),
            floor(Quantity::Acquire, Way::Distant),
            Bound::AtMost(1.1),
        ),
        (
            "acquire + release local, to a raw create and delete".to_owned(),
            floor(Quantity::Cycle, Way::Local),
            Bound::AtMost(1.15),
        ),
        (
            "hand-off between 8 at 1.5 ms, in round trips (of a raw create)".to_owned(),
            hand_off(),
            Bound::AtMost(1.15),
        ),
    ]
}

fn against_curator(record: &Record) -> Vec<Claim> {
    use Quantity::{Cycle, HandOff, Rate};
    use Way::{Distant, Local};
    let eight = &contended(CONTENDERS);
    let rows = [
        (
            "acquire + release at 1.5 ms",
            UNCONTENDED,
            Cycle,
            Distant,
            1.5,
        ),
        ("8 contending, local", eight, Rate, Local, 2.5),
        ("8 contending at 1.5 ms", eight, Rate, Distant, 2.5),
        (
            "drain of 1,000, local",
            &drain(QUEUES[3]),
            HandOff,
            Local,
            60.0,
        ),
        ("multi-lock of 8, local", SET, Cycle, Local, 6.0),
        ("multi-lock of 8 at 1.5 ms", SET, Cycle, Distant, 10.0),
        ("permit of 5 at 1.5 ms", PERMIT, Cycle, Distant, 3.0),
        ("32 in parallel, local", PARALLEL, Rate, Local, 2.0),
        ("32 in parallel at 1.5 ms", PARALLEL, Rate, Distant, 2.0),
        ("read/write at 1.5 ms", READ_WRITE, Rate, Distant, 2.0),
    ];
    let ratios = rows.map(|(what, case, quantity, way, bound)| {
        let better = || {
            let ours = record.get(case, quantity, way, Kind::Ours)?;
            Some(better(
                ours,
                record.get(case, quantity, way, Kind::Curator)?,
            ))
        };
        (what, better(), Bound::AtLeast(bound))
    });
    let worst_pair = || {
        let ours = record.get(UNCONTENDED, Cycle, Local, Kind::Ours)?;
        let curators = record.get(UNCONTENDED, Cycle, Local, Kind::Curator)?;
        let pairs = ours.values.iter().zip(&curators.values);
        pairs
            .map(|(ours, curators)| curators / ours)
            .reduce(f64::min)
    };
    let what = "acquire + release, local, the worst pair";
    let mut claims = vec![(what, worst_pair(), Bound::AtLeast(1.0))];
    claims.extend(ratios);
    let times_better =
        |(what, ratio, bound)| (format!("{what}: better than Curator by"), ratio, bound);
    claims.into_iter().map(times_better).collect()
}

/// The factor by which ours is better than another's.
pub(crate) fn better(ours: &Series, others: &Series) -> f64 {
    let ratio = others.median() / ours.median();
    if ours.quantity.is_cost() {
        ratio
    } else {
        1.0 / ratio
    }
}

fn by_itself(record: &Record) -> Vec<Claim> {
    let ours = |case: &str, quantity| {
        let series = record.get(case, quantity, Way::Local, Kind::Ours);
        series.map(Series::median)
    };
    let cost = |waiters| ours(&drain(waiters), Quantity::HandOff);
    let ends = cost(QUEUES[3]).zip(cost(QUEUES[1]));
    let growth = ends.map(|(long, short)| long / short);
    vec![
        (
            "our hand-off with 1,000 waiters, to that with 100".to_owned(),
            growth,
            Bound::AtMost(3.0),
        ),
        (
            "local hand-offs in a second, up to 1,000 in a row".to_owned(),
            ours(LOCAL_HANDED_ON, Quantity::Rate),
            Bound::AtLeast(50_000.0),
        ),
    ]
}

fn by_count(counts: &[Counts]) -> Vec<Claim> {
    let of_case = |case: &str| {
        let case = case.to_owned();
        counts
            .iter()
            .find(move |it| it.case == case && it.side == Kind::Ours)
    };
    let (a_try, a_drain) = (of_case(TRY), of_case(&drain(QUEUES[1])));
    let rows = [
        (
            "transactions of a cycle with up to 1,000 local hand-offs",
            of_case(LOCAL_HANDED_ON).map(|it| it.transactions),
            0.01,
        ),
        (
            "requests of acquire + release, uncontended",
            of_case(UNCONTENDED).map(|it| it.requests),
            // The first cycles still list the directory.
            2.1,
        ),
        ("requests of a failed try", a_try.map(|it| it.requests), 1.0),
        (
            "transactions of a failed try",
            a_try.map(|it| it.transactions),
            0.0,
        ),
        (
            "requests of a hand-off with 100 waiters",
            a_drain.map(|it| it.requests),
            2.0,
        ),
    ];
    let claims = rows.map(|(what, count, bound)| (what.to_owned(), count, Bound::AtMost(bound)));
    claims.to_vec()
}
