//! What goes wrong while the locks are contended for.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::worker::SESSION_TIMEOUT;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server, of several the leader, stops in good order and starts again.
    RestartServer,
    /// It is killed and starts again.
    KillServer,
    /// It does not run for a while; connections stay.
    PauseServer(Duration),
    /// All servers are stopped and started again, one after the other.
    RestartAll,
    /// All servers but one are killed, and start again after a while.
    LoseQuorum(Duration),
    /// A follower hears nothing of the others for a while, nor they of it.
    CutFollower(Duration),
    /// The same of the leader.
    CutLeader(Duration),
    /// A process of contenders does not run for a while.
    PauseWorker(usize, Duration),
    /// A process of contenders is killed, and another takes its place.
    KillWorker(usize),
    /// The session of whoever has a certain node is ended from outside.
    Evict,
}

/// Troubles and the pauses before them.
#[derive(Clone, Debug)]
pub(crate) struct Schedule(pub(crate) Vec<(Duration, Trouble)>);

impl Schedule {
    /// Everything that can happen to three servers, once, in any order.
    pub(crate) fn of_three(random: &mut Rng) -> Self {
        let pause = 2 * SESSION_TIMEOUT;
        let mut troubles = [
            Trouble::KillServer,
            Trouble::PauseServer(2 * pause),
            Trouble::RestartAll,
            Trouble::LoseQuorum(Duration::from_secs(5)),
            Trouble::CutFollower(pause),
            Trouble::CutLeader(2 * pause),
        ];
        random.shuffle(&mut troubles);
        let calm = Duration::from_millis(500);
        Self(troubles.map(|trouble| (calm, trouble)).to_vec())
    }

    /// Enough of them for this time.
    pub(crate) fn random(random: &mut Rng, workers: usize, length: Duration) -> Self {
        let mut schedule = Vec::new();
        let mut total = Duration::ZERO;
        while total < length {
            let calm = Duration::from_millis(random.u64(200..800));
            // From shorter than any deadline to longer than any session.
            let pause = Duration::from_millis(random.u64(50..2 * session_ms()));
            let worker = random.usize(..workers);
            let trouble = match random.u8(..10) {
                0 => Trouble::RestartServer,
                1 => Trouble::KillServer,
                2 | 3 => Trouble::PauseServer(pause),
                4 | 5 => Trouble::PauseWorker(worker, pause),
                6 | 7 => Trouble::KillWorker(worker),
                _ => Trouble::Evict,
            };
            total += calm + pause / 2;
            schedule.push((calm, trouble));
        }
        Self(schedule)
    }
}

fn session_ms() -> u64 {
    u64::try_from(SESSION_TIMEOUT.as_millis()).unwrap()
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (calm, trouble) in &self.0 {
            write!(f, "after {calm:?} {trouble:?}; ")?;
        }
        Ok(())
    }
}
