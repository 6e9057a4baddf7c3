//! An acquire as a value: who acquires, and how long it may take, can be set until it is polled.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::driver::acquire_all::Refusal;
use crate::driver::deadline::Deadline;
use crate::driver::guard::LockGuard;
use crate::driver::locks::Locks;
use crate::error::Error;
use crate::names::owner::Owner;

/// A request for a lock, or for a set of locks: a future that returns the guard `G`.
///
/// It sends nothing before it is polled, and owns what it needs. So `select!`, `join!`,
/// `tokio::spawn` and `timeout` take it as it is.
///
/// It waits as long as it takes, unless it has a [`timeout`](Self::timeout): through lost
/// connections, and through the end of the store's session, by queueing up again in the next one.
/// It belongs to the owner that [`owner`](Self::owner) names. Otherwise it belongs to the owner
/// whose [`scope`](Owner::scope) runs when it is polled for the first time, and outside of any
/// scope to a new owner.
///
/// A request that was polled and is then changed starts over when it is polled again: it gives up
/// its place in the queue, and its timeout counts from that poll.
///
/// A place that was requested from the store, and given up before the store answered, goes to the
/// next request of the session for the same lock. So requests that wait for less time than the
/// store needs do not pile up in it, and get on.
///
/// # Errors
/// [`AcquireError`](crate::AcquireError), if waiting on cannot succeed. No node of the request stays in a queue, and
/// nothing of a set stays held.
/// - [`AcquireError::TimedOut`](crate::AcquireError::TimedOut) if it has a timeout. A try always has
///   [one](TryAcquire::timeout), for the store's answers. The [reason](crate::TimeoutReason) says whether the lock was busy or the
///   store did not answer.
/// - [`AcquireError::Lost`](crate::AcquireError::Lost) while its owner has guards of the lock, or of a member of the
///   set, that it lost.
/// - [`AcquireError::WouldDeadlock`](crate::AcquireError::WouldDeadlock) if it requests to write, and its owner holds
///   the lock for reading only.
///
/// # Cancel safety
/// Dropping the request gives up the place in the queue and releases what it has acquired of a set.
/// The nodes are deleted in the background, unless another request takes their place. A request
/// that was never polled has none.
///
/// # Panics
/// - When it is polled after it has returned.
/// - When it is polled outside of a tokio runtime whose timers are enabled, as tokio's own timers
///   do: always if it has a [`timeout`](Self::timeout), before anything is sent, and otherwise as
///   soon as it has to pause. A timeout around it, as `tokio::time::timeout`, needs the same.
///
/// # Examples
/// ```no_run
/// # use std::time::Duration;
/// # use recipes_core::{DistributedLock, Error, Owner};
/// # async fn example(lock: &dyn DistributedLock, alice: &Owner) -> Result<(), Error> {
/// let first = lock.acquire().owner(alice).await?;
/// let again = lock.acquire().owner(alice).timeout(Duration::from_secs(5)).await?;
/// assert_eq!(again.hold_count(), 2);
/// # drop(first);
/// # Ok(())
/// # }
/// ```
#[must_use = "an acquire does nothing until it is awaited"]
pub struct Acquire<G> {
    request: Request<G>,
}

impl<G> Acquire<G> {
    /// Makes the request for these locks.
    #[doc(hidden)]
    pub fn new(locks: Locks, guard: fn(LockGuard) -> G) -> Self {
        let request = Request::new(locks, false, guard);
        Self { request }
    }

    /// Acquires for this owner. What it holds is re-entered.
    pub fn owner(self, owner: &Owner) -> Self {
        let request = self.request.owner(owner);
        Self { request }
    }

    /// Sets a timeout, which covers all steps of the acquire and all members of a set. It counts from the first
    /// poll. [`Duration::MAX`] waits for ever.
    ///
    /// [`Duration::ZERO`] takes a free lock, and writes nothing if the lock is busy. It waits for
    /// the store's answers as a [try](TryAcquire::timeout) does: in an outage for as long as the
    /// session's connect timeout, which is 15 s unless it is set. So a caller that has no time left
    /// must not pass what is left.
    pub fn timeout(self, timeout: Duration) -> Self {
        let request = self.request.timeout(timeout);
        Self { request }
    }
}

impl<G> Future for Acquire<G> {
    type Output = Result<G, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.request.poll(cx));
        let guard = self.request.guard;
        Poll::Ready(
            outcome
                .map(guard)
                .map_err(|refusal| refusal.into_error().into()),
        )
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt_as("Acquire", f)
    }
}

/// A request for a lock, or for a set of locks, that does not wait for other contenders: a future
/// that returns the guard `G`, or `None` if a conflicting contender is in a queue.
///
/// A busy lock costs one read and no write. The try waits for the store's answers only, usually one
/// or two round trips. In an outage it waits for the session's connect timeout (15 s unless it is
/// set), or as long as its [`timeout`](Self::timeout) says.
///
/// On Redis and databases, a session that is opened after a time in which nobody was connected cannot
/// know at once whether a holder is alive. A try that it makes then, without a timeout, waits for that
/// once: 10 s if all sessions have a timeout of 12 s.
///
/// [`Acquire`] says who owns the request, what its errors are, what is left if it is dropped, and when
/// it panics: outside of a tokio runtime always, because it never waits for ever.
///
/// # Examples
/// ```no_run
/// # use recipes_core::{DistributedLock, Error, Owner};
/// # async fn example(lock: &dyn DistributedLock, alice: &Owner) -> Result<(), Error> {
/// let Some(guard) = lock.try_acquire().owner(alice).await? else {
///     return Ok(());
/// };
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[must_use = "a try does nothing until it is awaited"]
pub struct TryAcquire<G> {
    request: Request<G>,
}

impl<G> TryAcquire<G> {
    /// Makes the request for these locks.
    #[doc(hidden)]
    pub fn new(locks: Locks, guard: fn(LockGuard) -> G) -> Self {
        let request = Request::new(locks, true, guard);
        Self { request }
    }

    /// Acquires for this owner. What it holds is re-entered.
    pub fn owner(self, owner: &Owner) -> Self {
        let request = self.request.owner(owner);
        Self { request }
    }

    /// Sets how long the store may take to answer, over all steps and all members of a set. It counts from the first
    /// poll. After that, the try ends with [`AcquireError::TimedOut`](crate::AcquireError::TimedOut).
    /// [`Duration::ZERO`] leaves it at the session's connect timeout.
    pub fn timeout(self, timeout: Duration) -> Self {
        let request = self.request.timeout(timeout);
        Self { request }
    }
}

impl<G> Future for TryAcquire<G> {
    type Output = Result<Option<G>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(self.request.poll(cx));
        Poll::Ready(match outcome {
            Ok(guard) => Ok(Some((self.request.guard)(guard))),
            Err(Refusal::Busy(_)) => Ok(None),
            Err(Refusal::Failed(error)) => Err(error.into()),
        })
    }
}

impl<G> fmt::Debug for TryAcquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt_as("TryAcquire", f)
    }
}

/// What both kinds of requests have in common.
struct Request<G> {
    locks: Locks,
    owner: Option<Owner>,
    /// Whether it waits for no other contenders.
    is_try: bool,
    timeout: Option<Duration>,
    guard: fn(LockGuard) -> G,
    /// From the first poll on.
    running: Option<BoxFuture<'static, Result<LockGuard, Refusal>>>,
}

impl<G> Request<G> {
    fn new(locks: Locks, is_try: bool, guard: fn(LockGuard) -> G) -> Self {
        Self {
            locks,
            owner: None,
            is_try,
            timeout: None,
            guard,
            running: None,
        }
    }

    fn owner(self, owner: &Owner) -> Self {
        Self {
            owner: Some(owner.clone()),
            running: None,
            ..self
        }
    }

    fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            running: None,
            ..self
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<LockGuard, Refusal>> {
        let Self {
            locks,
            owner,
            is_try,
            timeout,
            running,
            ..
        } = self;
        let deadline = || match is_try {
            true => Deadline::of_try(*timeout),
            false => Deadline::after(timeout.unwrap_or(Duration::MAX)),
        };
        running
            .get_or_insert_with(|| locks.acquire(owner.clone(), deadline()))
            .poll_unpin(cx)
    }

    fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("locks", &self.locks)
            .field("owner", &self.owner)
            .field("timeout", &self.timeout)
            .field("is_polled", &self.running.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests;
