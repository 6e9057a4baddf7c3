//! Work under a lock, in one call.

use tracing::warn;

use crate::driver::guard::LockGuard;
use crate::driver::request::{Acquire, TryAcquire};
use crate::error::{Error, LostReason, ReleaseError};
use crate::lock::release::{ReleaseOutcome, Released, worst};
use crate::log::{Causes, LOCK};

/// Work that was done under a lock: [`Acquire::run`], [`TryAcquire::run`]. As far as this process could know, the lock was
/// held until the work's end.
#[derive(Clone, Debug)]
#[must_use = "the output may be an error, and the lock may not be free"]
#[non_exhaustive]
pub struct Done<T> {
    /// What the work has returned.
    pub output: T,
    /// Whether the lock is free for others. If not, it [will be](ReleaseOutcome::Pending), or the store
    /// [refuses](ReleaseError::Refused) to free it before the session ends. Never [`ReleaseError::Lost`]: a lock
    /// that is lost after the work's end is free, or will be once the store has ended the session.
    pub release: Result<ReleaseOutcome, Error>,
}

impl<G: AsRef<LockGuard> + Into<LockGuard>> Acquire<G> {
    /// Acquires, does the work for as long as the lock is held, and releases. A [`timeout`](Self::timeout) limits the
    /// acquire, and not the work.
    ///
    /// The work gets the guard: for the token, for transactions. It is stopped as
    /// [`LockGuard::run`] stops a future: loss is polled first, and the work is dropped as soon as the lock is lost.
    ///
    /// In an outage the release takes as long as [`LockGuard::release`] does: half a session timeout at most.
    ///
    /// # Errors
    /// - [`Error::Acquire`]: the lock was not acquired, and the work was not begun.
    /// - [`Error::Lost`]: the lock was lost before the work was done. What the work did until its last await stays
    ///   done, and what was in flight may still be done.
    ///
    /// # What must not be dropped
    /// The work is dropped at an await when the lock is lost. What must go on to its end, or is not safe to be dropped,
    /// belongs into a task of its own that the work awaits: `tokio::spawn(write).await`. Such is a commit whose answer
    /// decides what comes next, and with sqlx (0.9.0) the whole transaction: a `begin` that is dropped leaves its
    /// connection in the pool with an open transaction, in which later statements are lost. The task may write after the
    /// loss, so it writes under [`transaction`](LockGuard::transaction), [`fence`](LockGuard::fence) or a token.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue, or drops the work, and the lock is released in the
    /// background; likewise if the work panics.
    ///
    /// # Closures
    /// A closure with `?` says what it returns: `async |guard| -> Result<_, ServiceError> { .. }`. A function that takes
    /// such a closure and spawns it takes one that returns a future (`Fn(Job) -> F`, `F: Future + Send`), as Rust cannot
    /// yet say that the future of an `AsyncFn` is `Send`.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use recipes_core::{DistributedLock, Error};
    /// # use recipes_testing::MemoryEnsemble;
    /// async fn ship(lock: &dyn DistributedLock, order: &str) -> Result<String, Error> {
    ///     let shipped = lock
    ///         .acquire()
    ///         .timeout(Duration::from_secs(5))
    ///         .run(async |guard| format!("{order} under {:?}", guard.fencing_token()))
    ///         .await?;
    ///     Ok(shipped.output)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let session = MemoryEnsemble::new().session();
    /// # let lock = recipes_mutex::InterProcessMutex::new(&session, "/locks/orders")?;
    /// assert!(ship(&lock, "4711").await?.starts_with("4711"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(self, work: impl AsyncFnOnce(&G) -> T) -> Result<Done<T>, Error> {
        run(self.await?, work).await
    }
}

impl<G: AsRef<LockGuard> + Into<LockGuard>> TryAcquire<G> {
    /// Does the work if no conflicting contender is in a queue, and returns `None` otherwise. The rest is as
    /// [`Acquire::run`] has it.
    ///
    /// # Errors
    /// As [`Acquire::run`].
    ///
    /// # Cancel safety
    /// As [`Acquire::run`].
    pub async fn run<T>(self, work: impl AsyncFnOnce(&G) -> T) -> Result<Option<Done<T>>, Error> {
        match self.await? {
            Some(guard) => run(guard, work).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn run<G, T>(guard: G, work: impl AsyncFnOnce(&G) -> T) -> Result<Done<T>, Error>
where
    G: AsRef<LockGuard> + Into<LockGuard>,
{
    let output = guard.as_ref().run(work(&guard)).await?;
    let guard: LockGuard = guard.into();
    let path = guard.path().to_owned();
    let released = guard.release_each().await;
    let released = released.into_iter().map(after_the_work).collect();
    let release = worst(released).map_err(Error::from);
    if let Err(error) = &release {
        // Who takes the output alone does not see it, and others wait.
        warn!(target: LOCK, lock = path, cause = %Causes(error), "not released after the work");
    }
    Ok(Done { output, release })
}

/// The work is done, so a loss since then concerns nobody. But the lock may still be taken.
fn after_the_work(released: Released) -> Released {
    match released {
        Err(ReleaseError::Lost(lost)) => Ok(match lost.reason {
            LostReason::SessionExpired | LostReason::NodeRemoved => ReleaseOutcome::Released,
            // The store has not said that the session is over.
            LostReason::SessionClosed | LostReason::DeadlinePassed => ReleaseOutcome::Pending,
        }),
        released => released,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LostError;

    #[test]
    fn loss_after_the_work_is_a_release_that_may_be_pending() {
        for (reason, expected) in [
            (LostReason::SessionExpired, ReleaseOutcome::Released),
            (LostReason::NodeRemoved, ReleaseOutcome::Released),
            (LostReason::SessionClosed, ReleaseOutcome::Pending),
            (LostReason::DeadlinePassed, ReleaseOutcome::Pending),
        ] {
            let path = "/locks/orders".to_owned();
            let released = after_the_work(Err(LostError { path, reason }.into()));
            assert_eq!(released.unwrap(), expected, "{reason}");
        }
        let pending = after_the_work(Ok(ReleaseOutcome::Pending));
        assert_eq!(pending.unwrap(), ReleaseOutcome::Pending);
    }
}
