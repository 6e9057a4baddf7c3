//! Acquires locks of several sessions, one after the other.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use tracing::warn;

use crate::driver::acquire_all::Wait;
use crate::driver::guard::LockGuard;
use crate::driver::locks::Locks;
use crate::error::{AcquireError, ReleaseError};
use crate::log::LOCK;
use crate::names::owner::Owner;

/// Acquires in the given order. The first failure ends it and releases the locks before it.
pub(crate) async fn acquire(
    locks: Arc<[Locks]>,
    owner: Option<Owner>,
    wait: Wait,
) -> Result<Option<LockGuard>, AcquireError> {
    let owner = owner.or_else(Owner::current).unwrap_or_else(Owner::new);
    let started = Instant::now();
    let mut held = Vec::with_capacity(locks.len());
    for lock in locks.iter() {
        let left = match wait {
            Wait::AtMost(limit) => Wait::AtMost(limit.saturating_sub(started.elapsed())),
            wait => wait,
        };
        match lock.acquire(Some(owner.clone()), left).await {
            Ok(Some(guard)) => held.push(guard),
            Ok(None) => {
                for failure in roll_back(held).await {
                    warn!(target: LOCK, %failure, "lock of a set that is busy is released late");
                }
                return Ok(None);
            }
            Err(error) => {
                let failures = roll_back(held).await;
                return Err(with_failures(of_the_whole(error, wait), failures));
            }
        }
    }
    Ok(LockGuard::join(held))
}

/// Releases all at the same time. The last lock is the first whose release is sent.
async fn roll_back(held: Vec<LockGuard>) -> Vec<ReleaseError> {
    let releases = held.into_iter().rev().map(LockGuard::release);
    let released = join_all(releases).await;
    released.into_iter().filter_map(Result::err).collect()
}

/// The member got only the time that was left, so the error gets the timeout of the whole set.
fn of_the_whole(error: AcquireError, wait: Wait) -> AcquireError {
    match (error, wait) {
        (AcquireError::TimedOut { path, .. }, Wait::AtMost(waited)) => {
            AcquireError::TimedOut { path, waited }
        }
        (error, _) => error,
    }
}

fn with_failures(error: AcquireError, failures: Vec<ReleaseError>) -> AcquireError {
    if failures.is_empty() {
        return error;
    }
    let source = Box::new(error);
    AcquireError::RolledBackLate { source, failures }
}
