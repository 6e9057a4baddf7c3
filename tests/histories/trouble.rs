//! Faults that happen while contenders compete for the locks.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::worker::SESSION_TIMEOUT;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server, in an ensemble the leader, stops in good order and starts again.
    RestartServer,
    /// The server is killed, and starts again after a while.
    KillServer(Which, Duration),
    /// The server is halted for a while. Its connections stay.
    PauseServer(Which, Duration),
    /// All servers are stopped and started again, one after the other.
    RestartAll,
    /// All servers but one are killed, and start again after a while.
    LoseQuorum(Duration),
    /// The server is cut off from the others for a while.
    CutOff(Which, Duration),
    /// The leader hands its office to a follower.
    MoveLeader,
    /// The member is replaced by another, which has no data.
    ReplaceServer(Which),
    /// The connections of all contenders are cut.
    CutConnections,
    /// The server's clock is set forward by so many microseconds, or back if negative.
    SetClock(i64),
    /// The server is killed, and starts again without what it wrote in this last time.
    ForgetLast(Duration),
    /// The server is killed, and its replica, which was cut off for so long, takes its place.
    Promote(Duration),
    /// The replica, which was cut off for so long, and its primary change places. Neither ends.
    Swap(Duration),
    /// A process of contenders is halted for a while.
    PauseWorker(usize, Duration),
    /// A process of contenders is killed, and another takes its place.
    KillWorker(usize),
    /// The session of a random node is ended from outside.
    Evict,
}

/// One of the servers. A single server leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Leader,
    Follower,
}

impl Trouble {
    /// Anything that can happen to three servers and their clients.
    pub(crate) fn any(random: &mut Rng, workers: usize) -> Self {
        let which = *random.choice(&[Which::Leader, Which::Follower]).unwrap();
        // From a hiccup to several times as long as a session.
        let pause = Duration::from_millis(random.u64(200..5 * session_ms()));
        let worker = random.usize(..workers);
        match random.u8(..20) {
            0..4 => Self::KillServer(which, pause),
            4..8 => Self::PauseServer(which, pause),
            8..12 => Self::CutOff(which, pause),
            12 => Self::LoseQuorum(Duration::from_secs(5)),
            13 => Self::RestartAll,
            14 | 15 => Self::KillWorker(worker),
            16 | 17 => Self::PauseWorker(worker, pause),
            _ => Self::Evict,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RestartServer => "leader restarted",
            Self::KillServer(Which::Leader, _) => "leader killed",
            Self::KillServer(Which::Follower, _) => "follower killed",
            Self::PauseServer(Which::Leader, _) => "leader paused",
            Self::PauseServer(Which::Follower, _) => "follower paused",
            Self::RestartAll => "all restarted in turn",
            Self::LoseQuorum(_) => "quorum lost",
            Self::CutOff(Which::Leader, _) => "leader cut off",
            Self::CutOff(Which::Follower, _) => "follower cut off",
            Self::MoveLeader => "leader moved",
            Self::ReplaceServer(Which::Leader) => "leader replaced",
            Self::ReplaceServer(Which::Follower) => "follower replaced",
            Self::CutConnections => "connections cut",
            Self::SetClock(_) => "clock set",
            Self::ForgetLast(_) => "last writes forgotten",
            Self::Promote(_) => "replica promoted",
            Self::Swap(_) => "replica swapped",
            Self::PauseWorker(..) => "worker paused",
            Self::KillWorker(_) => "worker killed",
            Self::Evict => "session ended",
        }
    }
}

/// Faults in their order.
#[derive(Clone, Debug)]
pub(crate) struct Schedule(pub(crate) Vec<Step>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The pause before it.
    pub(crate) calm: Duration,
    pub(crate) trouble: Trouble,
    /// A process of contenders that is halted meanwhile, and notices nothing.
    pub(crate) unseen_by: Option<usize>,
}

impl Step {
    fn new(calm: Duration, trouble: Trouble) -> Self {
        Self {
            calm,
            trouble,
            unseen_by: None,
        }
    }
}

impl Schedule {
    /// Each fault that can happen to three servers and their clients, and these, once, in random order. A process is
    /// halted during some of those that hit servers.
    pub(crate) fn of_three(random: &mut Rng, workers: usize, more: Vec<Trouble>) -> Self {
        let pause = 2 * SESSION_TIMEOUT;
        let mut troubles = vec![
            Trouble::KillServer(Which::Leader, Duration::ZERO),
            Trouble::RestartAll,
            Trouble::LoseQuorum(Duration::from_secs(5)),
            Trouble::CutOff(Which::Follower, pause),
            Trouble::CutOff(Which::Leader, 2 * pause),
            Trouble::KillWorker(random.usize(..workers)),
        ];
        // Shorter than the sessions of any store live, hardly longer, and much longer.
        for pause_ms in [1_000, 3_500, 3_500, 5_000] {
            let pause = Duration::from_millis(pause_ms);
            troubles.push(Trouble::PauseWorker(random.usize(..workers), pause));
        }
        troubles.extend(more);
        random.shuffle(&mut troubles);
        let steps = troubles.into_iter().map(|trouble| {
            let of_servers = !matches!(trouble, Trouble::PauseWorker(..) | Trouble::KillWorker(_));
            Step {
                // The sessions connect again, and locks are granted.
                calm: SESSION_TIMEOUT,
                trouble,
                unseen_by: (of_servers && random.u8(..3) == 0).then(|| random.usize(..workers)),
            }
        });
        Self(steps.collect())
    }

    /// Random faults for this length of time.
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
                1 => Trouble::KillServer(Which::Leader, Duration::ZERO),
                2 | 3 => Trouble::PauseServer(Which::Leader, pause),
                4 | 5 => Trouble::PauseWorker(worker, pause),
                6 | 7 => Trouble::KillWorker(worker),
                _ => Trouble::Evict,
            };
            total += calm + pause / 2;
            schedule.push(Step::new(calm, trouble));
        }
        Self(schedule)
    }
}

fn session_ms() -> u64 {
    u64::try_from(SESSION_TIMEOUT.as_millis()).unwrap()
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            write!(f, "after {:?} {:?}", step.calm, step.trouble)?;
            if let Some(worker) = step.unseen_by {
                write!(f, " unseen by {worker}")?;
            }
            write!(f, "; ")?;
        }
        Ok(())
    }
}
