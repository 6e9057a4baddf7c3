//! Acquires locks of several sessions, one after the other.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use tracing::warn;

use crate::driver::acquire_all::Wait;
use crate::driver::guard::LockGuard;
use crate::driver::locks::Locks;
use crate::error::{AcquireError, ReleaseError};
use crate::lock::release::ReleaseOutcome;
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
                roll_back(held).await.log();
                return Ok(None);
            }
            Err(error) => return Err(roll_back(held).await.tell(of_the_whole(error, wait))),
        }
    }
    Ok(LockGuard::join(held))
}

/// Locks of a set that was not acquired, and that are not certainly free again.
#[derive(Default)]
struct Late {
    /// Their release goes on in the background.
    pending: Vec<String>,
    failures: Vec<ReleaseError>,
}

/// Releases all at the same time. The last lock is the first whose release is sent.
async fn roll_back(held: Vec<LockGuard>) -> Late {
    let releases = held.into_iter().rev().map(|guard| async {
        let path = guard.path().to_owned();
        (path, guard.release().await)
    });
    let mut late = Late::default();
    for (path, released) in join_all(releases).await {
        match released {
            Ok(ReleaseOutcome::Released) => {}
            Ok(ReleaseOutcome::Pending) => late.pending.push(path),
            Err(failure) => late.failures.push(failure),
        }
    }
    late
}

impl Late {
    fn log(self) {
        const LATE: &str = "lock of a set that is busy is released late";
        for lock in self.pending {
            warn!(target: LOCK, lock, "{LATE}");
        }
        for failure in self.failures {
            warn!(target: LOCK, %failure, "{LATE}");
        }
    }

    /// The error of the set, which says what is late.
    fn tell(self, error: AcquireError) -> AcquireError {
        let Self { pending, failures } = self;
        if pending.is_empty() && failures.is_empty() {
            return error;
        }
        AcquireError::RolledBackLate {
            source: Box::new(error),
            pending,
            failures,
        }
    }
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
