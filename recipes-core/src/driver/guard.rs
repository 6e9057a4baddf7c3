//! The guard that proves that locks are held.

use futures::FutureExt;
use futures::future::{self, join_all, select_all};
use tokio::time::Instant;
use tracing::Instrument;

use crate::driver::acquire_all::Wait;
use crate::driver::internals::LockInternals;
use crate::error::{AcquireError, LostError, ReleaseError, VerifyError};
use crate::lock::hold::Share;
use crate::lock::lease::Lease;
use crate::lock::lease_state::GuardState;
use crate::lock::release::release_all;
use crate::lock::transaction::Transaction;
use crate::names::token::FencingToken;
use crate::telemetry;

/// The result of a wait that is not a try: a guard or an error.
pub(crate) fn granted(
    outcome: Result<Option<LockGuard>, AcquireError>,
) -> Result<LockGuard, AcquireError> {
    match outcome {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(AcquireError::SessionClosed {
            path: String::new(),
        }),
        Err(error) => Err(error),
    }
}

/// One lock that a guard holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardMember {
    /// Path of the lock directory.
    pub path: String,
    /// Full path of the lock node.
    pub node_path: String,
    /// Token of this grant.
    pub fencing_token: FencingToken,
    /// State of this lock.
    pub state: GuardState,
}

/// Proof that one lock, or a set of locks, is held.
///
/// The lock can be lost while the guard lives. Use [`run`](Self::run), [`lost`](Self::lost) or
/// [`is_valid`](Self::is_valid) around work that must not be done twice. Use
/// [`fencing_token`](GuardMember::fencing_token) or [`transaction`](Self::transaction) if it must
/// not be done twice *whatever happens*.
///
/// Dropping the guard releases in the background; [`release`](Self::release) returns when that is
/// done. `let _ = lock.acquire().await?` drops the guard on the spot.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    first: Share,
    /// The members after the first. All lists have the order in which members are waited for.
    others: Vec<Share>,
}

impl LockGuard {
    /// `None` for an empty set.
    pub(crate) fn new(shares: Vec<Share>) -> Option<Self> {
        let mut shares = shares.into_iter();
        let first = shares.next()?;
        Some(Self {
            first,
            others: shares.collect(),
        })
    }

    fn shares(&self) -> impl Iterator<Item = &Share> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> + Clone {
        self.shares().map(Share::lease)
    }

    /// Joins guards of several locks; `None` if there are none.
    #[doc(hidden)]
    #[must_use]
    pub fn join(guards: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut guards = guards.into_iter();
        let mut joined = guards.next()?;
        for Self { first, others } in guards {
            joined.others.push(first);
            joined.others.extend(others);
        }
        Some(joined)
    }

    /// Acquires for reading the lock that this single guard holds for writing.
    #[doc(hidden)]
    pub async fn read_beside(&self) -> Result<Self, AcquireError> {
        let reader = LockInternals::reader_of(self.first.lease());
        granted(
            reader
                .acquire(Some(self.first.owner()), Wait::Forever)
                .await,
        )
    }

    /// Path of the only lock; for guards of single locks.
    #[doc(hidden)]
    #[must_use]
    pub fn only_path(&self) -> &str {
        self.first.lease().path()
    }

    /// Token of the only lock; for guards of single locks.
    #[doc(hidden)]
    #[must_use]
    pub fn only_fencing_token(&self) -> FencingToken {
        self.first.lease().fencing_token()
    }

    /// Returns the locks that are held, in the order in which they are waited for.
    #[must_use]
    pub fn members(&self) -> Vec<GuardMember> {
        self.leases().map(member).collect()
    }

    /// Returns how many guards of the owner share this hold. The last one releases the lock.
    #[must_use]
    pub fn hold_count(&self) -> usize {
        let counts = self.others.iter().map(Share::hold_count);
        counts.fold(self.first.hold_count(), usize::min)
    }

    /// Returns what is known about the lock now: the worst state of its members.
    #[must_use]
    pub fn state(&self) -> GuardState {
        let mut worst = GuardState::Held;
        for state in self.leases().map(Lease::state) {
            worst = match (worst, state) {
                (GuardState::Lost(_), _) | (_, GuardState::Held) => worst,
                (GuardState::Suspended { until: a }, GuardState::Suspended { until: b }) => {
                    GuardState::Suspended { until: a.min(b) }
                }
                (_, state) => state,
            };
        }
        worst
    }

    /// Whether the lock is held or suspended, not lost: no other contender can hold it now.
    ///
    /// # Guarantees
    /// Turns false, for good, before the store can grant the lock to another contender. This
    /// holds while clocks run at sane rates and the process is not paused between this call and
    /// what follows it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.leases().all(|lease| lease.check().is_ok())
    }

    /// Returns the time at which the lock is lost unless the store answers again; `None` once it
    /// is lost.
    ///
    /// The time moves on with every heartbeat that is answered. So work that needs time to stop can
    /// see the loss coming while the connection still seems to be up. A removed node or a closed
    /// session cannot be foreseen: such a loss comes earlier.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        let of_members = self.leases().map(Lease::valid_until);
        of_members.min_by_key(|until| *until)?
    }

    /// Completes when the lock is lost, never after a release. Returns which lock, and why.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless. It keeps nothing alive and may outlive the guard.
    pub fn lost(&self) -> impl Future<Output = LostError> + Send + 'static + use<> {
        let losses: Vec<_> = self.leases().map(|lease| lease.lost().boxed()).collect();
        async move {
            match losses.is_empty() {
                true => future::pending().await,
                false => select_all(losses).await.0,
            }
        }
    }

    /// Completes when a process requests that the lock is given up, by
    /// [`Participant::revoke`](crate::Participant::revoke) or Curator's `Revoker`. For a set, a
    /// request for any of its locks counts.
    ///
    /// It is only a request: the lock stays held until the guard is released.
    ///
    /// # Guarantees
    /// - Also completes if the request was made before this call, before the grant, or while the
    ///   connection was down. A later call completes too, as long as the lock is held.
    /// - Requests are reported at once, but no sooner than a quarter of a second after a grant that
    ///   did not wait. So a short critical section costs no request for this.
    /// - Never completes after a release. A requested node is not handed on within the process
    ///   ([`LockOptions::local_handoffs`](crate::LockOptions::local_handoffs)).
    ///
    /// # Cancel safety
    /// Dropping the future is harmless. It keeps nothing alive and may outlive the guard.
    ///
    /// # Examples
    /// ```no_run
    /// # use recipes_core::{AcquireError, DistributedLock, LostError};
    /// # async fn compact() {}
    /// # async fn example(lock: &dyn DistributedLock) -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = lock.acquire().await?;
    /// tokio::select! {
    ///     done = guard.run(compact()) => done?,
    ///     () = guard.revocation_requested() => {} // somebody needs it more; go on another time
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn revocation_requested(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let requested = self.requested_lock();
        async move { drop(requested.await) }
    }

    /// As [`revocation_requested`](Self::revocation_requested), with the path of the lock that is
    /// requested.
    #[doc(hidden)]
    pub fn requested_lock(&self) -> impl Future<Output = String> + Send + 'static + use<> {
        let requests = self.leases().map(|lease| {
            let (path, requested) = (lease.path().to_owned(), lease.revocation_requested());
            requested.map(|()| path).boxed()
        });
        let requests: Vec<_> = requests.collect();
        async move {
            match requests.is_empty() {
                true => future::pending().await,
                false => select_all(requests).await.0,
            }
        }
    }

    /// Verifies with the store that the lock is held, past every cache and lagging replica.
    ///
    /// # Errors
    /// [`VerifyError::Lost`] if it is lost. [`VerifyError::Unknown`] if the store refused or the
    /// connection was lost: the lock may still be held.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        let verified = join_all(self.leases().map(Lease::verify)).await;
        verified.into_iter().collect()
    }

    /// Runs a future for as long as the lock is held.
    ///
    /// Loss is polled first: the future is dropped as soon as the lock is lost.
    ///
    /// # Errors
    /// [`LostError`] if the lock was lost before the future was done. What the future did until its
    /// last await stays done.
    ///
    /// # Cancel safety
    /// The same as the future's; the lock stays held.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, LostError> {
        let check = || self.leases().try_for_each(Lease::check);
        let mut lost = std::pin::pin!(self.lost());
        let mut future = std::pin::pin!(future);
        future::poll_fn(|cx| {
            if let std::task::Poll::Ready(error) = lost.as_mut().poll(cx) {
                return std::task::Poll::Ready(Err(error));
            }
            // In a task that was not polled for long, the deadline may pass before the loss is
            // reported.
            check()?;
            let output = std::task::ready!(future.as_mut().poll(cx));
            std::task::Poll::Ready(check().map(|()| output))
        })
        .await
    }

    /// Starts a transaction that commits only while the lock is held.
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(self.leases().collect())
    }

    /// Makes another guard of the same hold, at once and without a request.
    ///
    /// # Errors
    /// [`LostError`] if the lock is lost.
    pub fn reenter(&self) -> Result<Self, LostError> {
        let others = self.others.iter().map(Share::reenter);
        Ok(Self {
            first: self.first.reenter()?,
            others: others.collect::<Result<_, _>>()?,
        })
    }

    /// Releases the lock, or only leaves the hold while other guards of it live. `Ok` means that
    /// the node is gone, or was handed on within the session
    /// ([`local_handoffs`](crate::LockOptions::local_handoffs)).
    ///
    /// # Errors
    /// - [`ReleaseError::Lost`] if the lock was lost before.
    /// - [`ReleaseError::Pending`] if there is no answer before the lease's deadline. The release
    ///   continues in the background.
    /// - [`ReleaseError::Refused`] if the store forbids deleting the node.
    ///
    /// # Cancel safety
    /// The release continues in the background when the future is dropped.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let check = self.leases().try_for_each(Lease::check);
        let shares = std::iter::once(self.first).chain(self.others);
        let last: Vec<_> = shares.filter_map(Share::leave).collect();
        let leases: Vec<_> = last.iter().map(|hold| hold.lease()).collect();
        let released = leases.iter();
        let released = released.map(|it| (it.path(), it.node_path(), it.fencing_token()));
        let span = telemetry::release_span(&released.collect::<Vec<_>>());
        release_all(&leases).instrument(span).await?;
        Ok(check?)
    }
}

fn member(lease: &Lease) -> GuardMember {
    GuardMember {
        path: lease.path().to_owned(),
        node_path: lease.node_path().to_owned(),
        fencing_token: lease.fencing_token(),
        state: lease.state(),
    }
}
