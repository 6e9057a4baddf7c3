//! The plan: the cases that are compared.

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
    /// From the call of release to the next grant, in microseconds.
    Gap,
    /// As `Gap`: 95 of 100 are shorter.
    LongGap,
    /// Grants per second.
    Rate,
    /// Grants per second that went to another session than the grant before.
    HandedOn,
    /// Grants of the session that got the fewest, to those of the one that got the most.
    Fairness,
}

impl Quantity {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Acquire | Self::Cycle | Self::Attempt | Self::Gap | Self::LongGap => "µs",
            Self::Rate | Self::HandedOn => "/s",
            Self::Fairness => "",
        }
    }

    /// What the row shows of its case.
    pub(crate) fn part(self) -> &'static str {
        match self {
            Self::Acquire => ": the acquire alone",
            Self::Gap => ": release to next grant",
            Self::LongGap => ": the same, 95 % within",
            Self::Rate => ": grants",
            Self::HandedOn => ": grants to another session than before",
            Self::Fairness => ": least served to most served",
            Self::Cycle | Self::Attempt => "",
        }
    }
}

/// Work that all sides do in the same way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
}

impl Case {
    /// How many times as long as others it lasts.
    pub(crate) fn stretch(&self) -> u32 {
        match self.work {
            // Each session has a turn in some 30 ms, and one more or less shall not look unfair.
            Work::Paced { .. } => 3,
            _ => 1,
        }
    }
}

const CONTENDERS: usize = 8;
pub(crate) const UNCONTENDED: &str = "acquire + release, uncontended";
pub(crate) const SATURATED: &str = "one lock, 8 sessions all the time";
pub(crate) const PACED: &str = "one lock, 8 sessions, 2 ms of work, 3 ms pause";
pub(crate) const TRY: &str = "failed try-acquire";
pub(crate) const SET: &str = "multi-lock of 8, acquire + release";
pub(crate) const DRAIN: &str = "a queue of 1,000 waiters of 8 sessions";
const PARALLEL: &str = "32 distinct locks in parallel on one session";
const READ_WRITE: &str = "read/write, 8 sessions, 10 % writes";
pub(crate) const CONFIGURATION: [&str; 2] = [
    "read/write, 4 sessions of 8 tasks, 10 % writes",
    "read/write, 4 sessions of 8 tasks, 1 % writes",
];
pub(crate) const CONFIGURATION_SHARED: [&str; 2] = [
    "10 % writes, readers of a session share a node for 10 ms",
    "1 % writes, readers of a session share a node for 10 ms",
];

/// All cases, in the order of the table. A round trip has a name of its own on each store.
pub(crate) fn cases(round_trip: &'static str) -> Vec<Case> {
    let sessions = CONTENDERS;
    let mix = |sessions, tasks, write_percent, shares| Work::ReadWrite {
        sessions,
        tasks,
        write_percent,
        shares,
    };
    let waiters = 1000;
    let drain = Work::Drain { sessions, waiters };
    let [often, seldom] = CONFIGURATION;
    let [often_shared, seldom_shared] = CONFIGURATION_SHARED;
    let cases = [
        (round_trip, Work::RoundTrip),
        (UNCONTENDED, Work::Uncontended),
        (PACED, Work::Paced { sessions }),
        (SATURATED, Work::Saturated { sessions }),
        (DRAIN, drain),
        (TRY, Work::Try),
        (SET, Work::Set { members: 8 }),
        (PARALLEL, Work::Parallel { locks: 32 }),
        (READ_WRITE, mix(sessions, 1, 10, false)),
        (often, mix(4, 8, 10, false)),
        (often_shared, mix(4, 8, 10, true)),
        (seldom, mix(4, 8, 1, false)),
        (seldom_shared, mix(4, 8, 1, true)),
    ];
    cases.map(|(name, work)| Case { name, work }).to_vec()
}
