//! How long each session certainly lives, and by when its client must have been notified of
//! something. Both follow from the request log and from the faults, not from the lock's code.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use recipes_testing::{MemoryEnsemble, Operation, Request};
use tokio::time::Instant;

use crate::plan::Plan;

/// Timers have a resolution of a millisecond, and a message and its answer take three of them.
const COARSE: Duration = Duration::from_millis(5);
/// How long a holder that did not wait goes without a watch on its node.
const UNWATCHED: Duration = Duration::from_millis(250);

/// When a session has last sent requests, by the clock that goes on while the machine sleeps.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    answered: Option<Duration>,
    committed: Option<Duration>,
}

impl Sent {
    fn note(&mut self, newer: Self) {
        self.answered = self.answered.max(newer.answered);
        self.committed = self.committed.max(newer.committed);
    }
}

/// A node that an operator deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    at: Instant,
    pub(crate) zxid: i64,
    pub(crate) session: i64,
    /// When the node's session is notified, if it was connected.
    told_by: Instant,
}

/// All sessions of one world.
pub(crate) struct Lifelines {
    ensemble: MemoryEnsemble,
    session_timeout: Option<Duration>,
    start: Instant,
    slept: Duration,
    round_trip: Duration,
    stopped: bool,
    halted: bool,
    /// When the ensemble went on after its last halt.
    went_on: Option<Instant>,
    cut: BTreeSet<i64>,
    /// Sessions that are connected to a deposed leader.
    behind: BTreeSet<i64>,
    sent: BTreeMap<i64, Sent>,
    /// Requests that wait for a connection.
    queued: BTreeMap<i64, Sent>,
}

impl Lifelines {
    pub(crate) fn new(plan: &Plan, ensemble: MemoryEnsemble) -> Self {
        let faults = &plan.faults;
        let again = match faults.undone_per_mille {
            0 => Duration::ZERO,
            // A look at a node that is undone is repeated after so long.
            _ => UNWATCHED,
        };
        let one_way = plan.latency + faults.delay_max + faults.request_delay_max;
        Self {
            ensemble,
            session_timeout: plan.session_timeout,
            start: Instant::now(),
            slept: Duration::ZERO,
            round_trip: one_way + COARSE + again,
            stopped: false,
            halted: false,
            went_on: None,
            cut: BTreeSet::new(),
            behind: BTreeSet::new(),
            sent: BTreeMap::new(),
            queued: BTreeMap::new(),
        }
    }

    pub(crate) fn requested(&mut self, request: &Request) {
        let is_write = match request.operation {
            Operation::Create | Operation::Delete | Operation::Multi => true,
            Operation::Sync | Operation::Beat => false,
            _ => return,
        };
        let (session, now) = (request.session, Some(self.now()));
        let newer = Sent {
            answered: now,
            committed: now.filter(|_| is_write),
        };
        if self.is_cut(session) {
            return self.queued.entry(session).or_default().note(newer);
        }
        // A deposed leader never answers it. It does not answer later requests either, but that
        // does not matter here.
        if is_write && self.behind.contains(&session) {
            return;
        }
        self.sent.entry(session).or_default().note(newer);
    }

    /// When the lease of a session is over, whether or not it is checked. The session's server, or
    /// the next one, may expire it some time later.
    fn deadline(&self, session: i64) -> Option<Duration> {
        let (timeout, sent) = (self.session_timeout?, self.sent.get(&session)?);
        let answered = sent.answered.map(|sent| sent + timeout / 2);
        let committed = sent.committed.map(|sent| sent + timeout - timeout / 12);
        answered.into_iter().chain(committed).min()
    }

    pub(crate) fn is_over(&self, session: i64) -> bool {
        self.deadline(session).is_some_and(|at| at <= self.now())
    }

    /// When a session has last sent a request that a leader answers; now if never.
    pub(crate) fn last_answered(&self, session: i64) -> Duration {
        let sent = self.sent.get(&session).and_then(|sent| sent.answered);
        sent.unwrap_or_else(|| self.now())
    }

    /// The clock of a machine, which goes on while it sleeps.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed() + self.slept
    }

    pub(crate) fn slept(&mut self, pause: Duration) {
        self.slept += pause;
    }

    /// The removal of a node just now, for a session.
    pub(crate) fn removal(&self, session: i64) -> Removal {
        let at = Instant::now();
        Removal {
            at,
            zxid: self.ensemble.zxid(),
            session,
            told_by: self.ensemble.told_by(session).unwrap_or(at),
        }
    }

    /// Whether a store that has forgotten when it last heard a session may end it before its lease is
    /// over. Until then it grants nobody a lock.
    pub(crate) fn may_be_swept(&self, session: i64, forgot_at: Option<Instant>) -> bool {
        let until = forgot_at.zip(self.session_timeout);
        let until = until.map(|(at, timeout)| at + timeout);
        let is_swept = !self.ensemble.sessions().contains(&session);
        is_swept
            && self.is_out_of_contact(session)
            && until.is_some_and(|until| Instant::now() <= until)
    }

    /// Whether a session that watches a node may not have been notified yet that it was deleted:
    /// the message is in flight, or there is no connection for it. Its lease still ends.
    pub(crate) fn is_unheard(&self, removal: Removal, session: i64) -> bool {
        if self.halted {
            return true;
        }
        let Some(caught_up) = self.ensemble.caught_up_by(session) else {
            // Otherwise the session has ended, which is reported at once.
            return self.is_out_of_contact(session) || self.behind.contains(&session);
        };
        // If its data changed just before, the node must be watched again. The same is true after a
        // reconnect. The last member of a set is not watched. Its listing, perhaps by a replica
        // that lags, is followed by listings of the others and a look at its number.
        let told_by = self.answers_since(removal.told_by.max(caught_up)) + 4 * self.round_trip;
        Instant::now() <= told_by
    }

    /// [`is_unheard`](Self::is_unheard) for a session that was granted the node at some time and
    /// did not wait.
    pub(crate) fn is_unheard_by_holder(
        &self,
        removal: Removal,
        session: i64,
        granted: Instant,
    ) -> bool {
        let watched_by = self.answers_since(granted) + UNWATCHED + 2 * self.round_trip;
        let is_watched = Instant::now() > watched_by && removal.at > granted;
        self.is_unheard(removal, session) || !is_watched
    }
}

impl Lifelines {
    pub(crate) fn is_cut(&self, session: i64) -> bool {
        self.stopped || self.cut.contains(&session)
    }

    /// It is cut off, or about to go on over another connection.
    pub(crate) fn is_out_of_contact(&self, session: i64) -> bool {
        self.is_cut(session) || self.ensemble.is_connecting(session)
    }

    pub(crate) fn disconnected(&mut self, session: i64) {
        self.cut.insert(session);
        self.behind.remove(&session);
    }

    /// The requests that have waited are sent now.
    pub(crate) fn reconnected(&mut self, session: i64) {
        self.cut.remove(&session);
        self.send_queued();
    }

    /// What is asked from then on is answered.
    fn answers_since(&self, then: Instant) -> Instant {
        self.went_on.map_or(then, |at| at.max(then))
    }

    pub(crate) fn halted(&mut self) {
        self.halted = true;
    }

    pub(crate) fn went_on(&mut self) {
        if mem::take(&mut self.halted) {
            self.went_on = Some(Instant::now());
        }
    }

    pub(crate) fn stopped(&mut self) {
        self.stopped = true;
        self.behind.clear();
    }

    pub(crate) fn restarted(&mut self) {
        self.stopped = false;
        self.send_queued();
    }

    /// Call after sessions have moved from one leader to another.
    pub(crate) fn note_leaders(&mut self) {
        self.behind = self.ensemble.sessions_behind().into_iter().collect();
    }

    fn send_queued(&mut self) {
        if self.stopped {
            return;
        }
        for (session, sent) in mem::take(&mut self.queued) {
            let of = match self.cut.contains(&session) {
                true => &mut self.queued,
                false => &mut self.sent,
            };
            of.entry(session).or_default().note(sent);
        }
    }
}
