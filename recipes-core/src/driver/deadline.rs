//! How long an acquire may take.

use std::convert::Infallible;
use std::time::Duration;

use futures::future;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::driver::acquire_all::Wait;
use crate::driver::guard::LockGuard;
use crate::driver::internals::{LockInternals, set_name};
use crate::error::AcquireError;
use crate::log::LOCK;
use crate::names::owner::Task;
use crate::rules::acquire::Patience;

/// An acquire that may wait for its own task logs a warning after this time.
const SELF_WAIT_WARNING: Duration = Duration::from_secs(5);

/// The deadline of one acquire, over all its steps.
pub(crate) struct Limit<'a> {
    members: &'a [LockInternals],
    pub(crate) patience: Patience,
    is_try: bool,
    waited: Duration,
    /// `None` if the deadline is later than an `Instant` can be.
    deadline: Option<Instant>,
}

impl<'a> Limit<'a> {
    pub(crate) fn new(wait: Wait, members: &'a [LockInternals], connect_timeout: Duration) -> Self {
        let (patience, waited) = match wait {
            Wait::Forever => (Patience::Wait, Duration::MAX),
            // No time to wait for other contenders, but a free lock is taken, as by a try.
            Wait::AtMost(Duration::ZERO) | Wait::Try => (Patience::Try, connect_timeout),
            Wait::AtMost(waited) => (Patience::Wait, waited),
        };
        Self {
            members,
            patience,
            is_try: wait == Wait::Try,
            waited,
            deadline: Instant::now().checked_add(waited),
        }
    }

    pub(crate) fn busy(&self) -> Result<Option<LockGuard>, AcquireError> {
        if self.is_try {
            return Ok(None);
        }
        Err(self.timed_out(Duration::ZERO))
    }

    fn timed_out(&self, waited: Duration) -> AcquireError {
        let path = set_name(self.members);
        AcquireError::TimedOut { path, waited }
    }

    pub(crate) async fn apply<T>(
        &self,
        outcome: impl Future<Output = T>,
        warns: bool,
    ) -> Result<T, AcquireError> {
        let outcome = async {
            tokio::select! {
                biased;
                outcome = outcome => outcome,
                never = warn_of_self_wait(self.members, warns) => match never {},
            }
        };
        let Some(deadline) = self.deadline else {
            return Ok(outcome.await);
        };
        let outcome = timeout_at(deadline, outcome).await;
        outcome.map_err(|_| self.timed_out(self.waited))
    }
}

pub(crate) fn is_held_by_this_task(members: &[LockInternals]) -> bool {
    let task = Task::current();
    members.iter().any(|member| {
        let holds = member.session().paths().holds(member.path());
        holds.iter().any(|hold| hold.acquired_by() == task)
    })
}

async fn warn_of_self_wait(members: &[LockInternals], warns: bool) -> Infallible {
    if warns {
        tokio::time::sleep(SELF_WAIT_WARNING).await;
        warn!(
            target: LOCK,
            lock = %set_name(members),
            "the task that waits for this lock holds it already; to re-enter, acquire both times \
             inside one Owner::scope, or name one owner with acquire().owner(..)"
        );
    }
    future::pending().await
}
