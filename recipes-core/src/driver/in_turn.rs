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
use crate::lock::release::ReleaseOutcome;
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
                let late = roll_back(first, others).await;
                return Err(late.refuse(refusal));
            }
        }
    }
    Ok(first.join(others))
}

/// Locks of a set that was not acquired, and that are not certainly free again.
#[derive(Default)]
struct LateRelease {
    /// Their release goes on in the background.
    pending: Vec<String>,
    failures: Vec<ReleaseError>,
}

/// Releases all at the same time. The last lock is the first whose release is sent.
async fn roll_back(first: LockGuard, others: Vec<LockGuard>) -> LateRelease {
    let held: Vec<_> = std::iter::once(first).chain(others).collect();
    let releases = held.into_iter().rev().map(|guard| async {
        let path = guard.path().to_owned();
        (path, guard.released().await)
    });
    let mut late = LateRelease::default();
    for (path, released) in join_all(releases).await {
        match released {
            Ok(ReleaseOutcome::Released) => {}
            Ok(ReleaseOutcome::Pending) => late.pending.push(path),
            Err(failure) => late.failures.push(failure),
        }
    }
    late
}

impl LateRelease {
    /// The refusal of the set, which says what is late; a set that is busy says it to the log.
    fn refuse(self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Failed(error) => self.tell(error).into(),
            Refusal::Busy(_) => {
                self.log();
                refusal
            }
        }
    }

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
