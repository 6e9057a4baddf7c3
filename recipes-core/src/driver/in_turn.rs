//! Acquires locks of several sessions, one after the other.

use std::sync::Arc;

use futures::future::join_all;
use tracing::warn;

use crate::driver::acquire_all::Refusal;
use crate::driver::deadline::Deadline;
use crate::driver::guard::LockGuard;
use crate::driver::locks::Locks;
use crate::driver::one_or_more::OneOrMore;
use crate::error::{AcquireError, ReleaseError};
use crate::log::LOCK;
use crate::names::owner::Owner;

/// Acquires in the given order. The first failure ends it and releases the locks before it.
pub(crate) async fn acquire(
    locks: Arc<OneOrMore<Locks>>,
    owner: Option<Owner>,
    deadline: Deadline,
) -> Result<LockGuard, Refusal> {
    let owner = owner.or_else(Owner::current).unwrap_or_else(Owner::new);
    let first = locks.first().acquire(Some(owner.clone()), deadline).await?;
    let mut others = Vec::with_capacity(locks.others().len());
    for lock in locks.others() {
        match lock.acquire(Some(owner.clone()), deadline).await {
            Ok(guard) => others.push(guard),
            Err(refusal) => {
                let failures = roll_back(first, others).await;
                return Err(with_failures(refusal, failures));
            }
        }
    }
    Ok(first.join(others))
}

/// Releases all at the same time. The last lock is the first whose release is sent.
async fn roll_back(first: LockGuard, others: Vec<LockGuard>) -> Vec<ReleaseError> {
    let held = std::iter::once(first).chain(others);
    let held: Vec<_> = held.collect();
    let releases = held.into_iter().rev().map(LockGuard::release);
    let released = join_all(releases).await;
    released.into_iter().filter_map(Result::err).collect()
}

fn with_failures(refusal: Refusal, failures: Vec<ReleaseError>) -> Refusal {
    match refusal {
        Refusal::Failed(error) if !failures.is_empty() => {
            let source = Box::new(error);
            AcquireError::RolledBackLate { source, failures }.into()
        }
        Refusal::Busy(_) => {
            for failure in failures {
                warn!(target: LOCK, %failure, "lock of a set that is busy is released late");
            }
            refusal
        }
        Refusal::Failed(_) => refusal,
    }
}
