//! When what happens.

use std::time::Duration;

use fastrand::Rng;

use crate::trouble::{Schedule, Step, Trouble, Which};
use crate::worker::SESSION_TIMEOUT;

use super::{Keeps, Machine};

const YEAR_US: i64 = 365 * 24 * 3_600 * 1_000_000;

/// Random faults of servers and their clients for this length of time.
pub(super) fn of<M: Machine>(
    random: &mut Rng,
    workers: usize,
    length: Duration,
    keeps: Keeps,
) -> Schedule {
    let session_ms = u64::try_from(SESSION_TIMEOUT.as_millis()).unwrap();
    let mut schedule = Vec::new();
    let mut total = Duration::ZERO;
    while total < length {
        let mut calm = Duration::from_millis(random.u64(300..1500));
        let pause = Duration::from_millis(random.u64(50..2 * session_ms));
        // A server that flushes once a second forgets this much when its machine stops.
        let last = Duration::from_millis(random.u64(..1000));
        let worker = random.usize(..workers);
        let others = M::troubles(keeps, last);
        let trouble = match random.usize(..13 + others.len()) {
            0 => Trouble::RestartServer,
            1 | 2 => Trouble::KillServer(Which::Leader, pause / 4),
            3..=5 => Trouble::PauseServer(Which::Leader, pause),
            6 => Trouble::CutConnections,
            7 | 8 => {
                // The quarantine and the deadlines of sessions allow for one such step.
                calm += 2 * SESSION_TIMEOUT;
                Trouble::SetClock(*random.choice(&[-YEAR_US, YEAR_US, 2_000_000]).unwrap())
            }
            9 | 10 => Trouble::PauseWorker(worker, pause),
            11 | 12 => Trouble::KillWorker(worker),
            other => others[other - 13],
        };
        total += calm + pause / 2;
        let is_unseen = match trouble {
            Trouble::PauseWorker(..) | Trouble::KillWorker(_) | Trouble::Evict => false,
            // Whoever runs learns at once what became of its session.
            Trouble::SetClock(_) => true,
            _ => random.bool(),
        };
        schedule.push(Step {
            calm,
            trouble,
            unseen_by: is_unseen.then_some(worker),
        });
    }
    Schedule(schedule)
}
