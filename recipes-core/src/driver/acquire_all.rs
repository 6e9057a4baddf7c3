//! Acquires a set of locks for an owner: what it holds it enters again, for the rest it contends.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{self, select_all};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, debug};

use crate::driver::deadline::{Deadline, is_held_by_this_task, until, with_warning};
use crate::driver::guard::LockGuard;
use crate::driver::internals::LockInternals;
use crate::driver::late::{self, Late, Obstacle};
use crate::driver::one_or_more::OneOrMore;
use crate::driver::with_others::{attempt, standing};
use crate::error::AcquireError;
use crate::lock::hold::{self, Share};
use crate::lock::session::Session;
use crate::lock::table::{Claim, ClaimOver, Key, Present};
use crate::lock::target::{Target, Writer};
use crate::log::LOCK;
use crate::names::node_name::LockKind;
use crate::names::owner::{Owner, OwnerLabel};
use crate::rules::acquire::{Outcome, Patience};
use crate::telemetry::{Acquiring, SET};

/// Why an acquire ends without a guard.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A try found a conflicting contender. The error is what an acquire would return.
    Busy(AcquireError),
    Failed(AcquireError),
}

impl Refusal {
    pub(crate) fn into_error(self) -> AcquireError {
        match self {
            Self::Busy(error) | Self::Failed(error) => error,
        }
    }
}

impl<E: Into<AcquireError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Acquires all of these locks of one session or none, in the order in which they are waited for.
///
/// Locks that the owner holds already are re-entered. Without a guard, nothing stays acquired.
pub(crate) async fn acquire_all(
    members: &OneOrMore<LockInternals>,
    owner: Option<&Owner>,
    deadline: Deadline,
) -> Result<LockGuard, Refusal> {
    let kind = match members.others() {
        [] => members.first().kind().as_str(),
        [.., last] if last.kind() == LockKind::Permit => last.kind().as_str(),
        _ => SET,
    };
    let mut acquiring = Acquiring::start(kind, members);
    let span = acquiring.span();
    let mut acquisition = Acquisition::new(members, owner, deadline);
    let outcome = acquisition.run(&mut acquiring).instrument(span).await;
    match &outcome {
        Ok(guard) => acquiring.granted(|| {
            let members = guard.members();
            let granted = members.iter();
            let granted = granted.map(|it| (it.node_path.clone(), it.fencing_token.to_string()));
            granted.unzip()
        }),
        Err(Refusal::Busy(_)) => acquiring.busy(),
        Err(Refusal::Failed(error)) => acquiring.failed(error),
    }
    outcome
}

/// One acquire of a set by an owner.
struct Acquisition<'a> {
    members: &'a OneOrMore<LockInternals>,
    session: &'a Session,
    owner: Owner,
    /// An acquire without an owner is recorded as its task, for operators who look for deadlocks.
    label: OwnerLabel,
    may_wait_for_itself: bool,
    deadline: Deadline,
    patience: Patience,
    /// When the deadline passes.
    passes: Option<Instant>,
    /// Whether it has waited to learn who lives. It does so once.
    has_settled: bool,
}

impl<'a> Acquisition<'a> {
    fn new(
        members: &'a OneOrMore<LockInternals>,
        owner: Option<&Owner>,
        deadline: Deadline,
    ) -> Self {
        let named = owner.cloned().or_else(Owner::current);
        let session = members.first().session();
        let patience = deadline.patience();
        Self {
            members,
            session,
            label: named
                .as_ref()
                .map_or_else(OwnerLabel::task, OwnerLabel::from),
            may_wait_for_itself: named.is_none() && is_held_by_this_task(members),
            owner: named.unwrap_or_else(Owner::new),
            deadline,
            patience,
            passes: deadline.passes(patience, session.core().connect_timeout()),
            has_settled: false,
        }
    }

    async fn run(&mut self, acquiring: &mut Acquiring) -> Result<LockGuard, Refusal> {
        if self.session.core().options.read_only {
            let path = self.members.first().path().to_owned();
            return Err(AcquireError::ReadOnly { path }.into());
        }
        loop {
            let Survey {
                joined,
                missing,
                under_way,
            } = survey(self.members, &self.owner, self.label)?;
            let granted = match under_way {
                Some((path, other)) => {
                    acquiring.contends();
                    self.wait_for_owner(&path, other, &joined).await?;
                    // The owner holds more or less now.
                    continue;
                }
                None if missing.is_empty() => Vec::new(),
                None => match self.contend(missing, &joined, acquiring).await? {
                    Some(granted) => granted,
                    None => continue,
                },
            };
            // A share that is lost by now is contended for again, or reported by the survey.
            let shares = in_order(joined.into_iter().chain(granted).collect());
            let mut good = shares
                .into_iter()
                .filter(|share| share.lease().check().is_ok());
            if let Some(shares) = self.members.try_map(|_| good.next()) {
                return Ok(LockGuard::new(shares));
            }
        }
    }

    /// Waits until another acquire of the owner is over.
    async fn wait_for_owner(
        &self,
        path: &str,
        other: ClaimOver,
        joined: &[(usize, Share)],
    ) -> Result<(), Refusal> {
        let obstacle = Obstacle::Owner(path);
        if self.patience == Patience::Try {
            return Err(self.busy(obstacle));
        }
        let over = other.wait().map(|()| Ok(Outcome::<()>::Stale));
        match until(self.passes, unless_lost(joined, &[], over)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(self.timed_out(obstacle)),
        }
    }

    /// Makes an attempt to acquire what the owner lacks. `None` if what it holds has changed.
    async fn contend(
        &mut self,
        missing: Vec<Missing>,
        joined: &[(usize, Share)],
        acquiring: &mut Acquiring,
    ) -> Result<Option<Vec<(usize, Share)>>, Refusal> {
        let keys = missing.iter();
        let keys = keys.map(|it| (it.key.clone(), it.target.beside.is_some()));
        let Some(claim) = Claim::stake(self.session, keys.collect()) else {
            // The same owner began to acquire one of them on another thread meanwhile.
            return Ok(None);
        };
        acquiring.contends();
        let (wanted, targets): (Vec<_>, Vec<_>) =
            missing.into_iter().map(|it| (it.member, it.target)).unzip();
        // Not in the survey: an acquire may survey many times before it contends.
        if !Target::tie_writers(&targets) {
            // A writer was released in this moment.
            return Ok(None);
        }
        let standing = standing(&targets);
        let attempt = attempt(self.session, &targets, self.patience, &standing);
        let attempt = unless_lost(joined, &targets, attempt);
        let attempt = with_warning(self.members, self.may_wait_for_itself, attempt);
        let obstacle = Obstacle::Attempt(&targets, &standing);
        match until(self.passes, attempt).await {
            Ok(outcome) => match outcome? {
                // Its time may have passed before its session noted that.
                Outcome::Granted(_) if targets.iter().any(Target::has_lost_writer) => Ok(None),
                Outcome::Granted(leases) => {
                    Ok(Some(wanted.into_iter().zip(claim.hold(leases)).collect()))
                }
                Outcome::Busy => match self.settled(&targets).await {
                    true => Ok(None),
                    false => Err(self.busy(obstacle)),
                },
                Outcome::Stale => Ok(None),
            },
            Err(_) => Err(self.timed_out(obstacle)),
        }
    }

    /// Waits until the store knows which sessions live, if it does not and the caller has not said how long.
    /// Returns whether it has waited.
    async fn settled(&mut self, targets: &[Target]) -> bool {
        let until = self.session.core().in_doubt_until();
        let until = until.filter(|it| !self.has_settled && self.deadline.waits_for_evidence(*it));
        let Some(until) = until.filter(|_| !targets.iter().any(late::is_held_here)) else {
            return false;
        };
        self.has_settled = true;
        debug!(
            target: LOCK,
            lock = %self.members,
            "who holds it may be dead: nobody was there to see. Its session ends meanwhile if it is"
        );
        let began = Instant::now();
        // Boxed, because few acquires ever wait for it.
        Box::pin(sleep_until(until)).await;
        self.passes = self.deadline.passes_after(self.passes, began.elapsed());
        true
    }

    fn busy(&self, obstacle: Obstacle<'_>) -> Refusal {
        let late = self.late(obstacle);
        match self.deadline.is_try() {
            true => Refusal::Busy(late.busy()),
            false => Refusal::Failed(late.busy()),
        }
    }

    fn timed_out(&self, obstacle: Obstacle<'_>) -> Refusal {
        Refusal::Failed(self.late(obstacle).timed_out())
    }

    fn late<'b>(&'b self, obstacle: Obstacle<'b>) -> Late<'b> {
        let connect_timeout = self.session.core().connect_timeout();
        Late {
            members: self.members,
            waited: self.deadline.waited(connect_timeout),
            obstacle,
        }
    }
}

/// Gives an outcome, unless one of these is lost before, or a writer that one of the targets goes
/// next to: then the others alone are of no use.
async fn unless_lost<T>(
    joined: &[(usize, Share)],
    targets: &[Target],
    outcome: impl Future<Output = Result<Outcome<T>, AcquireError>>,
) -> Result<Outcome<T>, AcquireError> {
    tokio::select! {
        biased;
        () = any_lost(joined, targets) => Ok(Outcome::Stale),
        outcome = outcome => outcome,
    }
}

/// Completes when one of these is lost, or the writer of a target.
async fn any_lost(joined: &[(usize, Share)], targets: &[Target]) {
    let joined = joined.iter().map(|(_, share)| share.lease().lost().boxed());
    let writers = targets.iter().filter_map(|target| target.beside.as_ref());
    let writers = writers.map(|writer| writer.lease.lost().boxed());
    let losses: Vec<_> = joined.chain(writers).collect();
    match losses.is_empty() {
        true => future::pending().await,
        false => drop(select_all(losses).await),
    }
}

/// Shares in the order of their members.
fn in_order(mut shares: Vec<(usize, Share)>) -> Vec<Share> {
    shares.sort_by_key(|(member, _)| *member);
    shares.into_iter().map(|(_, share)| share).collect()
}

/// What the owner holds and lacks of a set, each with the number of its member.
#[derive(Default)]
struct Survey {
    joined: Vec<(usize, Share)>,
    missing: Vec<Missing>,
    /// Another acquire of the owner, which has to end first.
    under_way: Option<(Arc<str>, ClaimOver)>,
}

/// A lock that the owner does not hold.
struct Missing {
    member: usize,
    key: Key,
    target: Target,
}

fn survey(
    members: &OneOrMore<LockInternals>,
    owner: &Owner,
    label: OwnerLabel,
) -> Result<Survey, AcquireError> {
    let mut survey = Survey::default();
    for (member, internals) in members.iter().enumerate() {
        let key = internals.key(owner);
        let target = || Target {
            owner: Some(label),
            ..internals.target.clone()
        };
        match internals.table().present(&key) {
            Present::Nothing => survey.seek(member, key, target())?,
            Present::Acquiring(other) => survey.under_way = Some((key.path, other)),
            Present::Held(hold) => match hold.join() {
                hold::HoldState::Good(share) => survey.joined.push((member, share)),
                hold::HoldState::Lost(lost) => return Err(lost.into()),
                hold::HoldState::Over => {
                    internals.table().end_hold(&key, &raw const *hold);
                    survey.seek(member, key, target())?;
                }
            },
        }
    }
    Ok(survey)
}

impl Survey {
    /// Notes a lock that the owner does not hold. If the owner uses the other half of a read/write
    /// lock, that decides how it gets this one, if at all.
    fn seek(&mut self, member: usize, key: Key, mut target: Target) -> Result<(), AcquireError> {
        let other = key.kind.counterpart().map(|kind| Key {
            kind,
            ..key.clone()
        });
        let table = target.lock.session.paths();
        match other.map_or(Present::Nothing, |other| table.present(&other)) {
            Present::Nothing => {}
            Present::Acquiring(other) => {
                self.under_way = Some((key.path, other));
                return Ok(());
            }
            Present::Held(hold) => match hold.check() {
                hold::HoldState::Lost(lost) => return Err(lost.into()),
                hold::HoldState::Good(()) if key.kind == LockKind::Write => {
                    let path = key.path.to_string();
                    return Err(AcquireError::WouldDeadlock { path });
                }
                hold::HoldState::Good(()) => {
                    target.beside = Some(Writer::new(hold.lease().writer())?);
                }
                hold::HoldState::Over => table.end_hold(hold.key(), &raw const *hold),
            },
        }
        self.missing.push(Missing {
            member,
            key,
            target,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
