//! The error of an acquire that ran out of time, or has none to wait for other contenders.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::driver::internals::LockInternals;
use crate::driver::one_or_more::OneOrMore;
use crate::error::{AcquireError, TimeoutReason};
use crate::lock::local_queue::LocalQueue;
use crate::lock::target::Target;
use crate::names::node_name;
use crate::names::owner::Task;
use crate::rules::delay::{Ahead, Delay, Progress, delay};
use crate::store::nodes::NodesError;
use crate::sync::{AtomicBool, Mutex, lock};

/// An attempt, as one of the acquires sees it that may make it.
pub(crate) struct JoinedState {
    progress: Mutex<Arc<Mutex<Progress>>>,
    /// Whether this acquire makes the attempt. If not, another one of its process does.
    pub(crate) has_turn: AtomicBool,
}

impl JoinedState {
    /// Of an acquire that competes with other processes at once.
    pub(crate) fn alone() -> Self {
        Self {
            progress: Mutex::default(),
            has_turn: AtomicBool::new(true),
        }
    }

    /// Of an acquire that waits for its turn in its process first.
    pub(crate) fn in_queue(queue: &LocalQueue) -> Self {
        Self {
            progress: Mutex::new(Arc::clone(&queue.progress)),
            has_turn: AtomicBool::new(false),
        }
    }

    /// Where the attempt notes how far it has come.
    pub(crate) fn noted(&self) -> Arc<Mutex<Progress>> {
        Arc::clone(&lock(&self.progress))
    }

    /// Notes that this is the progress of the attempt that is waited for.
    pub(crate) fn follow(&self, progress: Arc<Mutex<Progress>>) {
        *lock(&self.progress) = progress;
    }

    fn progress(&self) -> Progress {
        let noted = self.noted();
        let progress = lock(&noted).clone();
        match self.has_turn.load(Ordering::Relaxed) {
            true => progress,
            false => progress.of_another(),
        }
    }
}

/// What keeps an acquire waiting.
#[derive(Clone, Copy)]
pub(crate) enum Obstacle<'a> {
    /// Another acquire of its owner, which is for the lock of this path among others.
    Owner(&'a str),
    /// Its attempt to acquire these locks.
    Attempt(&'a [Target], &'a JoinedState),
}

/// An acquire of these locks that waits no longer.
pub(crate) struct Late<'a> {
    pub(crate) members: &'a OneOrMore<LockInternals>,
    /// How long it was to wait: for other contenders, or if it is a try for answers.
    pub(crate) waited: Duration,
    pub(crate) obstacle: Obstacle<'a>,
}

impl Late<'_> {
    /// The error if it has found the lock busy.
    pub(crate) fn busy(&self) -> AcquireError {
        let ahead = match self.obstacle {
            Obstacle::Owner(_) => None,
            Obstacle::Attempt(_, standing) => standing.progress().ahead(),
        };
        self.error(self.busy_because_of(ahead), None)
    }

    /// The error if the deadline has passed.
    pub(crate) fn timed_out(&self) -> AcquireError {
        let (contact, error) = self.members.first().session().core().contact();
        let progress = match self.obstacle {
            Obstacle::Owner(_) => Progress::default(),
            Obstacle::Attempt(_, standing) => standing.progress(),
        };
        match delay(progress, contact, Instant::now()) {
            Delay::Busy(ahead) => self.error(self.busy_because_of(ahead), None),
            Delay::Silent(silence) => self.error(TimeoutReason::StoreSilent { silence }, error),
            Delay::Quarantined(left) => self.error(TimeoutReason::Quarantined { left }, None),
            Delay::NoSession => self.error(TimeoutReason::Reconnecting, None),
        }
    }

    fn busy_because_of(&self, ahead: Option<Ahead>) -> TimeoutReason {
        let targets = match self.obstacle {
            Obstacle::Owner(path) => {
                let lock = path.to_owned();
                return TimeoutReason::BusyOwner { lock };
            }
            Obstacle::Attempt(targets, _) => targets,
        };
        let member = match (&ahead, targets) {
            (Some(ahead), _) => targets.get(ahead.member),
            (None, [only]) => Some(only),
            // Without a known contender, some lock of the set is busy.
            (None, _) => None,
        };
        member.and_then(held_here).unwrap_or_else(|| {
            let all = || self.members.to_string();
            TimeoutReason::Busy {
                lock: member.map_or_else(all, |it| it.lock.path.to_string()),
                ahead: ahead.map(|it| it.node),
            }
        })
    }

    fn error(&self, reason: TimeoutReason, source: Option<NodesError>) -> AcquireError {
        AcquireError::TimedOut {
            path: self.members.to_string(),
            waited: self.waited,
            reason,
            source,
        }
    }
}

/// Whether another owner of this session holds the lock.
pub(crate) fn is_held_here(target: &Target) -> bool {
    held_here(target).is_some()
}

/// The reason if another owner of this session holds the lock, whoever else is ahead.
fn held_here(target: &Target) -> Option<TimeoutReason> {
    let lock = &target.lock;
    let holds = lock.session.paths().holds(&lock.path);
    let hold = holds.iter().find(|hold| {
        let excludes = hold.key().kind.excludes(target.kind);
        // A reader goes next to a writer of its own owner.
        excludes && target.beside.is_none() && hold.lease().check().is_ok()
    })?;
    Some(TimeoutReason::BusyHere {
        lock: lock.path.to_string(),
        node: node_name::last_part(hold.lease().node_path()).to_owned(),
        by_this_task: hold.acquired_by() == Task::current(),
    })
}

#[cfg(test)]
mod tests;
