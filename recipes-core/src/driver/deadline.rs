//! How long an acquire may take.

use std::convert::Infallible;
use std::time::Duration;

use futures::future;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::driver::internals::LockInternals;
use crate::driver::one_or_more::OneOrMore;
use crate::log::LOCK;
use crate::names::owner::Task;
use crate::rules::acquire::Patience;

/// An acquire that may wait for its own task logs a warning after this time.
const SELF_WAIT_WARNING: Duration = Duration::from_secs(5);

/// How long an acquire may take, over all its steps and all members of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// How long it waits for other contenders; `None` for a try.
    timeout: Option<Duration>,
    started: Instant,
}

impl Deadline {
    /// Begins to count; [`Duration::MAX`] never passes, and `None` is a try.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        let started = Instant::now();
        Self { timeout, started }
    }

    pub(crate) fn never() -> Self {
        Self::after(Some(Duration::MAX))
    }

    pub(crate) fn is_try(&self) -> bool {
        self.timeout.is_none()
    }

    /// Without time to wait for other contenders, a free lock is taken, as by a try.
    pub(crate) fn patience(&self) -> Patience {
        match self.timeout {
            Some(timeout) if self.started.elapsed() < timeout => Patience::Wait,
            Some(_) | None => Patience::Try,
        }
    }

    /// What an error says that it waited, of one that waits only for answers at most this long.
    pub(crate) fn waited(&self, for_answers: Duration) -> Duration {
        let timeout = self.timeout.filter(|timeout| !timeout.is_zero());
        timeout.unwrap_or(for_answers)
    }

    /// When it passes; `None` if that is later than an `Instant` can be. An acquire that does not
    /// wait for other contenders has this long from now for the store's answers.
    pub(crate) fn passes(&self, patience: Patience, for_answers: Duration) -> Option<Instant> {
        match (patience, self.timeout) {
            (Patience::Wait, Some(timeout)) => self.started.checked_add(timeout),
            _ => Instant::now().checked_add(for_answers),
        }
    }
}

/// Waits for an outcome until the deadline passes.
pub(crate) async fn until<T>(
    passes: Option<Instant>,
    outcome: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    match passes {
        Some(passes) => timeout_at(passes, outcome).await,
        None => Ok(outcome.await),
    }
}

pub(crate) fn is_held_by_this_task(members: &OneOrMore<LockInternals>) -> bool {
    let task = Task::current();
    members.iter().any(|member| {
        let holds = member.session().paths().holds(member.path());
        holds.iter().any(|hold| hold.acquired_by() == task)
    })
}

/// Waits for an outcome, with a warning if that takes long and the task may wait for itself.
pub(crate) async fn with_warning<T>(
    members: &OneOrMore<LockInternals>,
    may_wait_for_itself: bool,
    outcome: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        outcome = outcome => outcome,
        never = warn_of_self_wait(members, may_wait_for_itself) => match never {},
    }
}

async fn warn_of_self_wait(members: &OneOrMore<LockInternals>, warns: bool) -> Infallible {
    if warns {
        tokio::time::sleep(SELF_WAIT_WARNING).await;
        warn!(
            target: LOCK,
            lock = %members,
            "the task that waits for this lock holds it already; to re-enter, acquire both times \
             inside one Owner::scope, or name one owner with acquire().owner(..)"
        );
    }
    future::pending().await
}
