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
use crate::names::node_name::LockKind;
use crate::names::owner::Task;
use crate::rules::acquire::Patience;

/// An acquire that may wait for its own task logs a warning after this time.
const SELF_WAIT_WARNING: Duration = Duration::from_secs(5);

/// How long an acquire may take, over all its steps and all members of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// How long it waits for other contenders; `None` for a try.
    timeout: Option<Duration>,
    /// How long it waits for answers if it does not wait for other contenders. Otherwise, and if
    /// this is zero, the connect timeout.
    answers: Option<Duration>,
    started: Instant,
}

impl Deadline {
    /// Begins to count; [`Duration::MAX`] never passes.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            answers: None,
            started: Instant::now(),
        }
    }

    /// Begins to count for a try.
    pub(crate) fn of_try(answers: Option<Duration>) -> Self {
        Self {
            timeout: None,
            answers: answers.filter(|it| !it.is_zero()),
            started: Instant::now(),
        }
    }

    pub(crate) fn never() -> Self {
        Self::after(Duration::MAX)
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

    /// What an error says that it waited.
    pub(crate) fn waited(&self, connect_timeout: Duration) -> Duration {
        let given = self.timeout.or(self.answers);
        given.unwrap_or(connect_timeout)
    }

    /// Whether an acquire that does not wait for other contenders may wait until then to learn whether they
    /// live. It may not if the caller has said how long.
    pub(crate) fn waits_for_evidence(&self, until: Instant) -> bool {
        match (self.timeout, self.answers) {
            (None, Some(given)) => self
                .started
                .checked_add(given)
                .is_none_or(|passes| until < passes),
            (None, None) => true,
            (Some(given), _) => given.is_zero(),
        }
    }

    /// When it passes after such a wait. What the caller has said is a bound of all; otherwise this was no
    /// time of the store's to answer in.
    pub(crate) fn passes_after(&self, passes: Option<Instant>, wait: Duration) -> Option<Instant> {
        match self.answers {
            Some(_) => passes,
            None => passes?.checked_add(wait),
        }
    }

    /// When it passes; `None` if that is later than an `Instant` can be. An acquire that does not
    /// wait for other contenders has the connect timeout from now for the store's answers, unless
    /// it says how long.
    pub(crate) fn passes(&self, patience: Patience, connect_timeout: Duration) -> Option<Instant> {
        match (patience, self.timeout, self.answers) {
            (Patience::Wait, Some(given), _) | (_, None, Some(given)) => {
                self.started.checked_add(given)
            }
            _ => Instant::now().checked_add(connect_timeout),
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
    let mut locks = members.iter().filter(|it| it.kind() != LockKind::Permit);
    locks.any(|member| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_has_said_how_long_does_not_wait_for_evidence() {
        let second = Duration::from_secs(1);
        let until = Instant::now() + second;
        let waits = |deadline: Deadline| deadline.waits_for_evidence(until);
        assert!(waits(Deadline::of_try(None)));
        assert!(waits(Deadline::of_try(Some(Duration::ZERO))));
        assert!(waits(Deadline::of_try(Some(second * 2))));
        assert!(!waits(Deadline::of_try(Some(second))));
        assert!(waits(Deadline::of_try(Some(Duration::MAX))));
        assert!(waits(Deadline::after(Duration::ZERO)));
        assert!(!waits(Deadline::after(second * 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_evidence_is_no_time_of_the_store_unless_it_was_given() {
        let second = Duration::from_secs(1);
        let passes = Instant::now() + second;
        let after = |deadline: Deadline| deadline.passes_after(Some(passes), second * 2);
        assert_eq!(after(Deadline::of_try(None)), Some(passes + second * 2));
        assert_eq!(after(Deadline::of_try(Some(second))), Some(passes));
        let never = Deadline::of_try(None).passes_after(None, second);
        assert_eq!(never, None);
    }
}
