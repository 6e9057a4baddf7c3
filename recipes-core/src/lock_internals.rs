//! The driver that every recipe is made of: owners, deadlines and attempts.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::acquire::Patience;
use crate::attempt::{self, Outcome};
use crate::error::{AcquireError, ConfigError};
use crate::hold::{Entered, Hold, Task};
use crate::lock::LockGuard;
use crate::lock_path::LockPath;
use crate::node_name::LockKind;
use crate::options::LockOptions;
use crate::owner::{Attempt, Key, Owner, Present};
use crate::requests::Target;
use crate::session::Session;

/// After this long an acquire that may wait for its own task says so.
const SELF_WAIT_WARNING: Duration = Duration::from_secs(5);

/// How long an acquire waits.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it takes.
    Forever,
    /// At most so long, over all steps.
    AtMost(Duration),
    /// Not for other holders.
    Try,
}

/// One lock of one kind: what a recipe is a face of.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct LockInternals {
    pub(crate) target: Target,
}

impl LockInternals {
    /// The lock of a path in a session.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`], [`ConfigError::OptionsDiffer`].
    pub fn new(
        session: &Session,
        path: &str,
        kind: LockKind,
        options: &LockOptions,
    ) -> Result<Self, ConfigError> {
        let lock = LockPath::open(session, path, options)?;
        Ok(Self {
            target: Target { lock, kind },
        })
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.target.lock.path
    }

    /// The session that the lock is taken through.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.target.lock.session
    }

    /// Acquires this lock; `None` only for [`Wait::Try`].
    ///
    /// # Errors
    /// As [`acquire_all`].
    pub async fn acquire(
        &self,
        owner: Option<&Owner>,
        wait: Wait,
    ) -> Result<Option<LockGuard>, AcquireError> {
        acquire_all(std::slice::from_ref(self), owner, wait).await
    }

    /// Whether some owner holds it through this session.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let holds = self.session().shared.paths.holds(self.path());
        holds.iter().any(|hold| {
            hold.key().kind == self.target.kind && hold.guards() > 0 && hold.lease().check().is_ok()
        })
    }

    fn key(&self, owner: &Owner) -> Key {
        let path = Arc::clone(&self.target.lock.path);
        Key {
            path,
            kind: self.target.kind,
            owner: owner.clone(),
        }
    }
}

/// What an attempt led to; whoever waited for it enters the holds through the table.
#[derive(Clone, Debug)]
pub(crate) enum Attempted {
    /// Keeps the holds until a guard has taken them.
    Granted {
        _holds: Arc<[Arc<Hold>]>,
    },
    Busy,
}

/// Acquires all of these locks of one session or none, in the order in which they are waited for.
///
/// What the owner holds already is re-entered. `None` only for [`Wait::Try`].
///
/// # Errors
/// As [`AcquireError`] says; nothing stays acquired.
#[doc(hidden)]
pub async fn acquire_all(
    members: &[LockInternals],
    owner: Option<&Owner>,
    wait: Wait,
) -> Result<Option<LockGuard>, AcquireError> {
    let Some(first) = members.first() else {
        return Ok(None);
    };
    let limit = Limit::new(wait, first);
    let named = owner.cloned().or_else(Owner::current);
    let may_wait_for_itself = named.is_none() && is_held_by_this_task(members);
    let owner = named.unwrap_or_else(Owner::new);
    let mut kept = None;
    loop {
        let survey = survey(members, &owner)?;
        // What was granted or held before is entered again by now, or over.
        drop(kept.take());
        let (attempt, is_ours) = match survey.acquiring {
            _ if survey.is_changing => {
                tokio::task::yield_now().await;
                continue;
            }
            Some(_) if limit.patience == Patience::Try => return limit.busy(),
            Some(attempt) => (attempt, false),
            None if survey.missing.is_empty() => return Ok(LockGuard::new(survey.entered)),
            None => match begin(&survey.missing, &owner, limit.patience) {
                Some(attempt) => (attempt, true),
                // The same owner was quicker, on another thread.
                None => continue,
            },
        };
        match limit.apply(attempt.outcome(), may_wait_for_itself).await? {
            Ok(Attempted::Busy) if limit.patience == Patience::Try => return limit.busy(),
            Ok(outcome) => kept = Some((survey.entered, outcome)),
            Err(error) if is_ours => return Err(error),
            // The error of another acquire; ours may fare better.
            Err(_) => {}
        }
    }
}

/// What the owner is doing with the members of a set.
struct Survey {
    entered: Vec<Entered>,
    missing: Vec<LockInternals>,
    acquiring: Option<Attempt>,
    is_changing: bool,
}

fn survey(members: &[LockInternals], owner: &Owner) -> Result<Survey, AcquireError> {
    let (entered, missing) = (Vec::with_capacity(members.len()), Vec::new());
    let mut survey = Survey {
        entered,
        missing,
        acquiring: None,
        is_changing: false,
    };
    for member in members {
        match member.session().shared.paths.present(&member.key(owner)) {
            Present::Nothing => survey.missing.push(member.clone()),
            Present::Acquiring(attempt) => survey.acquiring = Some(attempt),
            Present::Held(hold) => match hold.enter() {
                Some(Ok(entered)) => survey.entered.push(entered),
                Some(Err(lost)) => return Err(lost.into()),
                None => survey.is_changing = true,
            },
        }
    }
    Ok(survey)
}

/// Starts an attempt for the locks that the owner does not hold, unless it started one meanwhile.
fn begin(missing: &[LockInternals], owner: &Owner, patience: Patience) -> Option<Attempt> {
    let session = missing.first()?.session().clone();
    let table = &session.shared.paths;
    let keys: Vec<_> = missing.iter().map(|member| member.key(owner)).collect();
    let claim = Claim {
        session: session.clone(),
        id: table.next_attempt(),
        keys,
    };
    let (id, keys) = (claim.id, claim.keys.clone());
    let targets: Vec<_> = missing.iter().map(|member| member.target.clone()).collect();
    let attempt = Attempt::new(attempt(claim, targets, patience).boxed());
    // If one is taken, dropping the attempt takes the claim off the others.
    keys.iter()
        .all(|key| table.begin(key, id, &attempt))
        .then_some(attempt)
}

async fn attempt(
    claim: Claim,
    targets: Vec<Target>,
    patience: Patience,
) -> Result<Attempted, AcquireError> {
    let leases = match attempt::acquire(&claim.session, &targets, patience).await? {
        Outcome::Granted(leases) => leases,
        Outcome::Busy => return Ok(Attempted::Busy),
    };
    let members = leases.into_iter().zip(&claim.keys);
    let holds = members.map(|(lease, key)| {
        let hold = Arc::new(Hold::new(key.clone(), lease));
        claim.session.shared.paths.hold(key, &hold);
        hold
    });
    Ok(Attempted::Granted {
        _holds: holds.collect(),
    })
}

/// Takes an attempt out of the table when it is over or dropped.
struct Claim {
    session: Session,
    id: u64,
    keys: Vec<Key>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.keys
            .iter()
            .for_each(|key| self.session.shared.paths.end_attempt(key, self.id));
    }
}

/// The deadline of one acquire, over all its steps.
struct Limit<'a> {
    path: &'a str,
    patience: Patience,
    is_try: bool,
    waited: Duration,
    /// `None` where it lies beyond what the clock can tell.
    deadline: Option<Instant>,
}

impl<'a> Limit<'a> {
    fn new(wait: Wait, first: &'a LockInternals) -> Self {
        let connect_timeout = first.session().connect_timeout();
        let (patience, waited) = match wait {
            Wait::Forever => (Patience::Wait, Duration::MAX),
            // No time to wait for others, but a free lock is taken as by a try.
            Wait::AtMost(Duration::ZERO) | Wait::Try => (Patience::Try, connect_timeout),
            Wait::AtMost(waited) => (Patience::Wait, waited),
        };
        let deadline = Instant::now().checked_add(waited);
        Self {
            path: first.path(),
            patience,
            is_try: wait == Wait::Try,
            waited,
            deadline,
        }
    }

    fn busy(&self) -> Result<Option<LockGuard>, AcquireError> {
        if self.is_try {
            return Ok(None);
        }
        Err(AcquireError::TimedOut {
            path: self.path.to_owned(),
            waited: Duration::ZERO,
        })
    }

    async fn apply<T>(
        &self,
        outcome: impl Future<Output = T>,
        warns: bool,
    ) -> Result<T, AcquireError> {
        let outcome = async {
            tokio::select! {
                biased;
                outcome = outcome => outcome,
                never = warn_of_self_wait(self.path, warns) => match never {},
            }
        };
        let Some(deadline) = self.deadline else {
            return Ok(outcome.await);
        };
        let timed_out = |_| AcquireError::TimedOut {
            path: self.path.to_owned(),
            waited: self.waited,
        };
        timeout_at(deadline, outcome).await.map_err(timed_out)
    }
}

fn is_held_by_this_task(members: &[LockInternals]) -> bool {
    let task = Task::current();
    members.iter().any(|member| {
        let holds = member.session().shared.paths.holds(member.path());
        holds.iter().any(|hold| hold.acquired_by() == task)
    })
}

async fn warn_of_self_wait(path: &str, warns: bool) -> Infallible {
    if warns {
        tokio::time::sleep(SELF_WAIT_WARNING).await;
        warn!(
            lock = path,
            "the task that waits for this lock holds it already; to re-enter, acquire both times \
             inside one Owner::scope or with acquire_as"
        );
    }
    future::pending().await
}
