//! Acquires a set of locks for an owner: what it holds it enters again, for the rest it contends.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, select_all};
use tracing::Instrument;

use crate::attempt::wait_loop;
use crate::driver::deadline::{Limit, is_held_by_this_task};
use crate::driver::guard::LockGuard;
use crate::driver::internals::{LockInternals, SetName};
use crate::error::AcquireError;
use crate::lock::hold::{Share, Standing};
use crate::lock::lease::Lease;
use crate::lock::session::Session;
use crate::lock::table::{Claim, ClaimOver, Key, Present};
use crate::lock::target::{Target, Writer};
use crate::names::node_name::LockKind;
use crate::names::owner::{Owner, OwnerLabel};
use crate::rules::acquire::{Outcome, Patience};
use crate::telemetry::{Acquiring, SET};

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

/// Acquires all of these locks of one session or none, in the order in which they are waited for.
///
/// Locks that the owner holds already are re-entered. `None` only for [`Wait::Try`]. After an error
/// nothing stays acquired.
pub(crate) async fn acquire_all(
    members: &[LockInternals],
    owner: Option<&Owner>,
    wait: Wait,
) -> Result<Option<LockGuard>, AcquireError> {
    let kind = match members {
        [lock] => lock.kind().as_str(),
        _ => SET,
    };
    let mut acquiring = Acquiring::start(kind, &SetName(members));
    let span = acquiring.span();
    let outcome = acquire_within(members, owner, wait, &mut acquiring);
    let outcome = outcome.instrument(span).await;
    match &outcome {
        Ok(Some(guard)) => acquiring.granted(|| {
            let members = guard.members();
            let granted = members.iter();
            let granted = granted.map(|it| (it.node_path.clone(), it.fencing_token.to_string()));
            granted.unzip()
        }),
        Ok(None) => acquiring.busy(),
        Err(error) => acquiring.failed(error),
    }
    outcome
}

async fn acquire_within(
    members: &[LockInternals],
    owner: Option<&Owner>,
    wait: Wait,
    acquiring: &mut Acquiring,
) -> Result<Option<LockGuard>, AcquireError> {
    let Some(first) = members.first() else {
        return Ok(None);
    };
    let limit = Limit::new(wait, members, first.session().core().connect_timeout());
    let named = owner.cloned().or_else(Owner::current);
    let may_wait_for_itself = named.is_none() && is_held_by_this_task(members);
    // An acquire without an owner is recorded as its task, for operators who look for deadlocks.
    let label = named
        .as_ref()
        .map_or_else(OwnerLabel::task, OwnerLabel::from);
    let owner = named.unwrap_or_else(Owner::new);
    loop {
        let Survey {
            joined,
            missing,
            under_way,
        } = survey(members, &owner, label)?;
        let outcome = if let Some(other) = under_way {
            if limit.patience == Patience::Try {
                return limit.busy();
            }
            acquiring.contends();
            // The owner holds more or less once that is over.
            let over = other.wait().map(|()| Ok(Outcome::Stale));
            limit.apply(unless_lost(&joined, over), false).await?
        } else if missing.is_empty() {
            return Ok(LockGuard::new(in_order(joined)));
        } else {
            let keys = missing.iter();
            let keys = keys.map(|it| (it.key.clone(), it.target.beside.is_some()));
            let Some(claim) = Claim::stake(first.session(), keys.collect()) else {
                // The same owner began to acquire one of them on another thread meanwhile.
                continue;
            };
            acquiring.contends();
            let (wanted, targets): (Vec<_>, Vec<_>) =
                missing.into_iter().map(|it| (it.member, it.target)).unzip();
            // Not in the survey: an acquire may survey many times before it contends.
            if !targets.iter().all(Target::tie_writer) {
                // A writer was released in this moment.
                continue;
            }
            let attempt = attempt(first.session(), &targets, limit.patience);
            let attempt = unless_lost(&joined, attempt);
            let outcome = limit.apply(attempt, may_wait_for_itself).await?;
            let hold = |leases| wanted.into_iter().zip(claim.hold(leases));
            outcome.map(|outcome| outcome.map(|leases| hold(leases).collect::<Vec<_>>()))
        };
        match outcome? {
            Outcome::Granted(granted) => {
                let shares = in_order(joined.into_iter().chain(granted).collect());
                // One that is lost by now is contended for again, or reported by the survey.
                if shares.iter().all(|share| share.lease().check().is_ok()) {
                    return Ok(LockGuard::new(shares));
                }
            }
            Outcome::Busy => return limit.busy(),
            Outcome::Stale => {}
        }
    }
}

/// Gives an outcome, unless one of these is lost before: then the others alone are of no use.
async fn unless_lost<T>(
    joined: &[(usize, Share)],
    outcome: impl Future<Output = Result<Outcome<T>, AcquireError>>,
) -> Result<Outcome<T>, AcquireError> {
    tokio::select! {
        biased;
        () = any_lost(joined) => Ok(Outcome::Stale),
        outcome = outcome => outcome,
    }
}

/// Completes when one of these is lost.
async fn any_lost(joined: &[(usize, Share)]) {
    let losses = joined.iter().map(|(_, share)| share.lease().lost().boxed());
    let losses: Vec<_> = losses.collect();
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
    under_way: Option<ClaimOver>,
}

/// A lock that the owner does not hold.
struct Missing {
    member: usize,
    key: Key,
    target: Target,
}

fn survey(
    members: &[LockInternals],
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
            Present::Acquiring(other) => survey.under_way = Some(other),
            Present::Held(hold) => match hold.join() {
                Standing::Good(share) => survey.joined.push((member, share)),
                Standing::Lost(lost) => return Err(lost.into()),
                Standing::Over => {
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
                self.under_way = Some(other);
                return Ok(());
            }
            Present::Held(hold) => match hold.check() {
                Standing::Lost(lost) => return Err(lost.into()),
                Standing::Good(()) if key.kind == LockKind::Write => {
                    let path = key.path.to_string();
                    return Err(AcquireError::WouldDeadlock { path });
                }
                Standing::Good(()) => target.beside = Some(Writer::new(hold.lease().writer())?),
                Standing::Over => table.end_hold(hold.key(), &raw const *hold),
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

async fn attempt(
    session: &Session,
    targets: &[Target],
    patience: Patience,
) -> Result<Outcome<Vec<Lease>>, AcquireError> {
    if let [target] = targets {
        if let Some(queue) = target.lock.local_queue(target.kind) {
            // Every contender that gets the turn uses this node, so its record names no owner.
            let target = Target {
                owner: None,
                ..target.clone()
            };
            let begin = |target: Target, patience| {
                let session = target.lock.session.clone();
                async move { wait_loop::acquire(&session, &[target], patience).await }.boxed()
            };
            return queue.acquire(target, patience, begin).await;
        }
    }
    // A set has nodes of its own, because it must not wait for a turn while it holds a member.
    wait_loop::acquire(session, targets, patience).await
}

#[cfg(test)]
mod tests;
