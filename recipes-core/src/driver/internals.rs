//! The driver of every recipe: it handles owners, deadlines and attempts.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, select_all};
use tracing::Instrument;

use crate::attempt::requests::Target;
use crate::attempt::wait_loop::{self, Outcome};
use crate::driver::deadline::{Limit, is_held_by_this_task};
use crate::driver::guard::LockGuard;
use crate::error::{AcquireError, ConfigError};
use crate::lock::hold::{Entered, Reserved};
use crate::lock::lease::Lease;
use crate::lock::lock_path::LockPath;
use crate::lock::table::{Attempt, Contending, Key, Owner, PathTable, Present};
use crate::names::node_name::LockKind;
use crate::rules::acquire::Patience;
use crate::session::core::Session;
use crate::session::options::LockOptions;
use crate::telemetry::Acquiring;

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as it takes.
    Forever,
    /// At most this long, over all steps.
    AtMost(Duration),
    /// No waiting for other contenders.
    Try,
}

/// One lock of one kind, the core of every recipe.
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
        let lock = LockPath::open(session, path, kind, options)?;
        Ok(Self {
            target: Target {
                lock,
                kind,
                beside: None,
                owner: None,
            },
        })
    }

    /// The read half of a lock that is held for writing.
    pub(crate) fn reader_of(writer: &Lease) -> Self {
        let target = Target {
            lock: Arc::clone(writer.lock()),
            kind: LockKind::Read,
            beside: None,
            owner: None,
        };
        Self { target }
    }

    /// Whether both use the same directory in the same session.
    #[must_use]
    pub fn shares_directory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.target.lock, &other.target.lock)
    }

    /// Path of the lock directory.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.target.lock.path
    }

    /// Whether this is a mutex, or which half of a read/write lock it is.
    pub(crate) fn kind(&self) -> LockKind {
        self.target.kind
    }

    fn table(&self) -> &PathTable {
        &self.session().shared.paths
    }

    /// The session through which the lock is taken.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.target.lock.session
    }

    /// Acquires this lock; `None` only for [`Wait::Try`].
    pub(crate) async fn acquire(
        &self,
        owner: Option<&Owner>,
        wait: Wait,
    ) -> Result<Option<LockGuard>, AcquireError> {
        acquire_all(std::slice::from_ref(self), owner, wait).await
    }

    /// Whether some owner holds the lock through this session.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        let holds = self.session().shared.paths.holds(self.path());
        holds.iter().any(|hold| {
            hold.key().kind == self.target.kind
                && hold.guard_count() > 0
                && hold.lease().check().is_ok()
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

/// The outcome of an attempt. Its acquires enter the granted holds through the table.
#[derive(Clone, Debug)]
pub(crate) enum Attempted {
    /// Keeps the holds alive until the acquires have taken their guards.
    Granted {
        _holds: Arc<[Reserved]>,
    },
    Busy,
    /// The holds of the owner have changed: survey them again.
    Stale,
}

/// Checks that a set of locks can be held together.
///
/// # Errors
/// [`ConfigError::EmptySet`], [`ConfigError::DuplicateMember`].
#[doc(hidden)]
pub fn check_set(members: &[LockInternals]) -> Result<(), ConfigError> {
    if members.is_empty() {
        return Err(ConfigError::EmptySet);
    }
    for (index, member) in members.iter().enumerate() {
        let mut earlier = members.iter().take(index);
        if earlier.any(|it| it.shares_directory(member)) {
            let path = member.path().to_owned();
            return Err(ConfigError::DuplicateMember { path });
        }
    }
    Ok(())
}

/// The name of a set in logs and errors.
#[doc(hidden)]
#[must_use]
pub fn set_name(members: &[LockInternals]) -> String {
    let paths: Vec<_> = members.iter().map(LockInternals::path).collect();
    paths.join(", ")
}

/// Acquires all of these locks of one session or none, in the order in which they are waited for.
///
/// Locks that the owner holds already are re-entered. `None` only for [`Wait::Try`]. After an error
/// nothing stays acquired.
pub(crate) async fn acquire_all(
    members: &[LockInternals],
    owner: Option<&Owner>,
    wait: Wait,
) -> Result<Option<LockGuard>, AcquireError> {
    let mut acquiring = Acquiring::start(members);
    let span = acquiring.span();
    let outcome = enter_all(members, owner, wait, &mut acquiring);
    let outcome = outcome.instrument(span).await;
    acquiring.end(&outcome);
    outcome
}

async fn enter_all(
    members: &[LockInternals],
    owner: Option<&Owner>,
    wait: Wait,
    acquiring: &mut Acquiring,
) -> Result<Option<LockGuard>, AcquireError> {
    let Some(first) = members.first() else {
        return Ok(None);
    };
    let limit = Limit::new(wait, members, first.session().connect_timeout());
    let named = owner.cloned().or_else(Owner::current);
    let may_wait_for_itself = named.is_none() && is_held_by_this_task(members);
    // An acquire without an owner is recorded as its task, for operators who look for deadlocks.
    let contending = named
        .as_ref()
        .map_or_else(Contending::task, Contending::from);
    let owner = named.unwrap_or_else(Owner::new);
    let mut kept = None;
    loop {
        let survey = survey(members, &owner, contending)?;
        // The holds of the last round were entered again by the survey, or are over.
        drop(kept.take());
        let (attempt, is_ours) = match survey.acquiring {
            Some(_) if limit.patience == Patience::Try => return limit.busy(),
            Some(attempt) => (attempt, false),
            None if survey.missing.is_empty() => return Ok(LockGuard::new(survey.entered)),
            None => match begin(survey.missing, limit.patience) {
                Some(attempt) => (attempt, true),
                // The same owner began an attempt on another thread meanwhile.
                None => continue,
            },
        };
        acquiring.contends();
        let outcome = async {
            tokio::select! {
                biased;
                // A member that was held already is lost, and the others alone are of no use.
                () = any_lost(&survey.entered) => Ok(Attempted::Stale),
                outcome = attempt.outcome() => outcome,
            }
        };
        match limit.apply(outcome, may_wait_for_itself).await? {
            Ok(Attempted::Busy) if limit.patience == Patience::Try => return limit.busy(),
            Ok(Attempted::Stale) => {}
            Ok(outcome) => kept = Some((survey.entered, outcome)),
            Err(error) if is_ours => return Err(error),
            // Another acquire began the attempt. Its error need not apply to this one.
            Err(_) => {}
        }
    }
}

/// Completes when one of these is lost.
async fn any_lost(entered: &[Entered]) {
    let losses: Vec<_> = entered.iter().map(|it| it.lease().lost().boxed()).collect();
    match losses.is_empty() {
        true => future::pending().await,
        false => drop(select_all(losses).await),
    }
}

/// What the owner holds, lacks and is acquiring of a set.
#[derive(Default)]
struct Survey {
    entered: Vec<Entered>,
    missing: Vec<(Key, Target)>,
    acquiring: Option<Attempt>,
}

fn survey(
    members: &[LockInternals],
    owner: &Owner,
    contending: Contending,
) -> Result<Survey, AcquireError> {
    let mut survey = Survey::default();
    for member in members {
        let key = member.key(owner);
        let target = || Target {
            owner: Some(contending),
            ..member.target.clone()
        };
        match member.table().present(&key) {
            Present::Nothing => survey.seek(key, target())?,
            Present::Acquiring(attempt) => survey.acquiring = Some(attempt),
            Present::Held(hold) => match hold.enter() {
                Some(Ok(entered)) => survey.entered.push(entered),
                Some(Err(lost)) => return Err(lost.into()),
                None => {
                    member.table().end_hold(&key, &raw const *hold);
                    survey.seek(key, target())?;
                }
            },
        }
    }
    Ok(survey)
}

impl Survey {
    /// Notes a lock that the owner does not hold. If the owner uses the other half of a read/write
    /// lock, that decides how it gets this one, if at all.
    fn seek(&mut self, key: Key, mut target: Target) -> Result<(), AcquireError> {
        let other = key.kind.counterpart().map(|kind| Key {
            kind,
            ..key.clone()
        });
        let table = &target.lock.session.shared.paths;
        match other.map_or(Present::Nothing, |other| table.present(&other)) {
            Present::Nothing => {}
            Present::Acquiring(attempt) => {
                self.acquiring = Some(attempt);
                return Ok(());
            }
            Present::Held(hold) => match hold.check() {
                Some(Err(lost)) => return Err(lost.into()),
                Some(Ok(())) if key.kind == LockKind::Write => {
                    let path = key.path.to_string();
                    return Err(AcquireError::WouldDeadlock { path });
                }
                // `None` if the writer was released in this moment.
                Some(Ok(())) => target.beside = hold.lease().share(),
                None => {
                    let kind = hold.key().kind;
                    let other = Key {
                        kind,
                        ..key.clone()
                    };
                    table.end_hold(&other, &raw const *hold);
                }
            },
        }
        self.missing.push((key, target));
        Ok(())
    }
}

/// Starts an attempt for the locks that the owner does not hold. `None` if the owner is busy with
/// one of them since the survey.
fn begin(missing: Vec<(Key, Target)>, patience: Patience) -> Option<Attempt> {
    let (keys, targets): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    let session = targets.first()?.lock.session.clone();
    let id = session.shared.paths.next_attempt();
    let claim = Claim {
        session: session.clone(),
        id,
        keys: keys.clone(),
    };
    let beside: Vec<_> = targets.iter().map(|it| it.beside.is_some()).collect();
    let attempt = Attempt::new(attempt(claim, targets, patience).boxed());
    // If one of them is taken, dropping the attempt removes its claim on the others.
    let table = &session.shared.paths;
    let mut pairs = keys.iter().zip(beside);
    pairs
        .all(|(key, is_beside)| table.begin(key, is_beside, id, &attempt))
        .then_some(attempt)
}

async fn attempt(
    claim: Claim,
    targets: Vec<Target>,
    patience: Patience,
) -> Result<Attempted, AcquireError> {
    let outcome = match targets.as_slice() {
        [target] => match target.lock.local_queue(target.kind) {
            Some(queue) => {
                // Every contender that gets the turn uses this node, so its record names no owner.
                let target = Target {
                    owner: None,
                    ..target.clone()
                };
                queue.acquire(target, patience).await
            }
            None => wait_loop::acquire(&claim.session, &targets, patience).await,
        },
        // A set has nodes of its own, because it must not wait for a turn while it holds a member.
        targets => wait_loop::acquire(&claim.session, targets, patience).await,
    };
    let leases = match outcome? {
        Outcome::Granted(leases) => leases,
        Outcome::Busy => return Ok(Attempted::Busy),
        Outcome::Stale => return Ok(Attempted::Stale),
    };
    let members = leases.into_iter().zip(&claim.keys);
    let holds = members.map(|(lease, key)| Reserved::new(key.clone(), lease));
    Ok(Attempted::Granted {
        _holds: holds.collect(),
    })
}

/// Removes an attempt from the table when it is over or dropped.
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

#[cfg(test)]
mod tests;
