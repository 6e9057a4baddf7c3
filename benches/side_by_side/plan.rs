//! The plan: the cases that are compared.

use super::numbers::grouped;
use super::side::Kind;
use super::stage::Way;
use super::work::Work;

/// The quantities that are measured of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Duration of an acquire, in microseconds.
    Acquire,
    /// Duration of an acquire and its release, in microseconds.
    Cycle,
    /// Duration of one attempt, in microseconds.
    Attempt,
    /// Duration of a hand-off, in microseconds.
    HandOff,
    /// Cycles per second.
    Rate,
}

impl Quantity {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Acquire | Self::Cycle | Self::Attempt | Self::HandOff => "µs",
            Self::Rate => "/s",
        }
    }

    pub(crate) fn is_cost(self) -> bool {
        self != Self::Rate
    }
}

/// Work that all sides do in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) sides: Vec<Kind>,
    pub(crate) ways: Vec<Way>,
    /// The highest number of repetitions, if it is lower than that of the run.
    pub(crate) repetitions_max: usize,
    /// The case to compare with, for sides that have no part in this one.
    pub(crate) beside: Option<String>,
    /// Left out of the short form.
    pub(crate) is_long: bool,
    /// A point of a plot, and no row of the table.
    pub(crate) is_point: bool,
}

pub(crate) const CONTENDERS: usize = 8;
pub(crate) const UNCONTENDED: &str = "acquire + release, uncontended";
pub(crate) const ROUND_TRIP: &str = "round trip: a read of a node";
pub(crate) const SET: &str = "multi-lock of 8, acquire + release";
pub(crate) const PERMIT: &str = "semaphore of 5, acquire + release of one permit";
pub(crate) const PARALLEL: &str = "32 distinct locks in parallel on one session";
pub(crate) const READ_WRITE: &str = "read/write, 8 sessions, 10 % writes";
/// With its own nodes, and with readers that share one, at so many writes in a hundred.
pub(crate) const CONFIGURATION: [(&str, &str, u8); 2] = [
    (
        "read/write, 4 sessions of 8 tasks, 10 % writes",
        "10 % writes, readers of a session share a node for 10 ms",
        10,
    ),
    (
        "read/write, 4 sessions of 8 tasks, 1 % writes",
        "1 % writes, readers of a session share a node for 10 ms",
        1,
    ),
];
pub(crate) const LOCAL: &str = "one lock, 8 contenders of one session";
/// This library hands the lock on among these contenders.
pub(crate) const LOCAL_HANDED_ON: &str =
    "one lock, 8 contenders of one session, up to 1,000 local hand-offs";
pub(crate) const TRY: &str = "failed try-acquire";
/// Lengths of queues. Both sides are also measured over the distant way up to the third.
pub(crate) const QUEUES: [usize; 5] = [10, 100, 200, 1_000, 10_000];
/// Waiters with a session each.
pub(crate) const CROWDS: [usize; 3] = [8, 100, 1_000];
/// Sessions that contend for one lock.
pub(crate) const SESSIONS: [usize; 5] = [1, 2, 4, CONTENDERS, 16];

const BOTH_WAYS: [Way; 2] = [Way::Local, Way::Distant];
const PAIR: [Kind; 2] = [Kind::Ours, Kind::Curator];

pub(crate) fn contended(sessions: usize) -> String {
    format!("one lock, {sessions} sessions contending")
}

pub(crate) fn drain(waiters: usize) -> String {
    format!(
        "drain {} waiters over {CONTENDERS} sessions",
        grouped(waiters as f64)
    )
}

/// Curator's queue in which each waiter has a lock object of its own.
pub(crate) fn drain_apart(waiters: usize) -> String {
    format!("{}, an object each", drain(waiters))
}

pub(crate) fn one_release(waiters: usize) -> String {
    let waiters = grouped(waiters as f64);
    format!("one release, {waiters} waiters with a session each")
}

impl Case {
    fn new(name: impl Into<String>, work: Work, sides: &[Kind]) -> Self {
        Self {
            name: name.into(),
            work,
            sides: sides.to_vec(),
            ways: BOTH_WAYS.to_vec(),
            repetitions_max: usize::MAX,
            beside: None,
            is_long: false,
            is_point: false,
        }
    }

    fn beside(mut self, case: String) -> Self {
        self.beside = Some(case);
        self
    }

    fn only(mut self, way: Way) -> Self {
        self.ways = vec![way];
        self
    }

    fn only_counted(mut self) -> Self {
        self.ways = Vec::new();
        self
    }

    fn at_most(mut self, repetitions: usize) -> Self {
        self.repetitions_max = repetitions;
        self
    }

    fn long(mut self) -> Self {
        self.is_long = true;
        self
    }

    fn point(mut self, is_point: bool) -> Self {
        self.is_point = is_point;
        self
    }
}

/// All rows and points, in the order of the table.
pub(crate) fn cases() -> Vec<Case> {
    let sessions_of = |sessions| Work::Contended { sessions };
    let with_all = [Kind::Ours, Kind::Curator, Kind::BuiltIn, Kind::Kazoo];
    let mut cases = vec![
        Case::new(ROUND_TRIP, Work::Read, &[Kind::Raw]),
        Case::new(UNCONTENDED, Work::Uncontended, &Kind::ALL),
        Case::new(contended(CONTENDERS), sessions_of(CONTENDERS), &with_all),
        Case::new(SET, Work::Set { members: 8 }, &PAIR),
        Case::new(PERMIT, Work::Permit { permits: 5 }, &PAIR),
        Case::new(
            PARALLEL,
            Work::Parallel { locks: 32 },
            &[Kind::Ours, Kind::Curator, Kind::Raw],
        ),
    ];
    let mix = |sessions, tasks, write_percent, shares| Work::ReadWrite {
        sessions,
        tasks,
        write_percent,
        shares,
    };
    cases.push(Case::new(READ_WRITE, mix(CONTENDERS, 1, 10, false), &PAIR));
    for (name, shared, percent) in CONFIGURATION {
        cases.push(Case::new(name, mix(4, 8, percent, false), &PAIR));
        let case = Case::new(shared, mix(4, 8, percent, true), &[Kind::Ours]);
        cases.push(case.beside(name.to_owned()));
    }
    let with_kazoo = [Kind::Ours, Kind::Curator, Kind::Kazoo];
    let local = |handoffs| Work::Local {
        contenders: CONTENDERS,
        handoffs,
    };
    cases.push(Case::new(LOCAL, local(0), &PAIR));
    cases.push(Case::new(LOCAL_HANDED_ON, local(1_000), &[Kind::Ours]).beside(LOCAL.to_owned()));
    cases.push(Case::new(TRY, Work::Try, &with_kazoo));
    cases.extend(queues());
    let others = SESSIONS.into_iter().filter(|it| *it != CONTENDERS);
    cases.extend(others.map(|sessions| {
        let case = Case::new(contended(sessions), sessions_of(sessions), &PAIR);
        case.at_most(3).point(true)
    }));
    cases.extend(CROWDS.map(|waiters| {
        let sides = [Kind::Ours, Kind::Herd];
        Case::new(one_release(waiters), Work::Crowd { waiters }, &sides).only_counted()
    }));
    cases
}

fn queues() -> impl Iterator<Item = Case> {
    let [shortest, short, middle, long, longest] = QUEUES;
    let queue = |waiters, apart| Work::Queue {
        sessions: CONTENDERS,
        waiters,
        apart,
    };
    let case =
        move |waiters, sides: &[Kind]| Case::new(drain(waiters), queue(waiters, false), sides);
    let apart = move |waiters| {
        let work = queue(waiters, true);
        let apart = Case::new(drain_apart(waiters), work, &[Kind::Curator]);
        apart.beside(drain(waiters))
    };
    [
        case(shortest, &PAIR).point(true).at_most(3),
        case(short, &PAIR),
        case(middle, &PAIR),
        apart(middle).at_most(3),
        case(long, &PAIR).only(Way::Local).long(),
        apart(long).only(Way::Local).at_most(2).long(),
        Case::new(drain(long), queue(long, false), &[Kind::Ours])
            .only(Way::Distant)
            .long(),
        case(longest, &[Kind::Ours])
            .only(Way::Local)
            .at_most(1)
            .long(),
    ]
    .into_iter()
}

impl Case {
    /// The number of repetitions of a side. Curator takes about a minute for its longest queue.
    pub(crate) fn repetitions(&self, side: Kind, repetitions: usize) -> usize {
        let is_slow = self.is_long && side == Kind::Curator;
        repetitions
            .min(self.repetitions_max)
            .min(if is_slow { 2 } else { usize::MAX })
    }
}
