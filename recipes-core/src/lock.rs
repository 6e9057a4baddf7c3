//! What all locks have in common.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture, join_all, select_all};
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::{AcquireError, LostError, ReleaseError, VerifyError};
use crate::hold::Entered;
use crate::lease::{GuardState, Lease};
use crate::lock_internals::{LockInternals, Wait};
use crate::meter;
use crate::owner::Owner;
use crate::release::release_all;
use crate::token::FencingToken;
use crate::transaction::Transaction;

/// A lock of any kind, for code that works with all of them.
///
/// # Examples
/// ```no_run
/// # use recipes_core::{AcquireError, DistributedLock};
/// async fn nightly(lock: &dyn DistributedLock) -> Result<(), AcquireError> {
///     let Some(_guard) = lock.try_acquire().await? else {
///         return Ok(()); // another process is at it
///     };
///     // ...
///     Ok(())
/// }
/// ```
pub trait DistributedLock: Send + Sync + 'static {
    /// Path of the lock directory; of a set, all paths.
    fn path(&self) -> &str;

    /// Acquires as the owner, or as the one in scope; `None` only for [`Wait::Try`].
    #[doc(hidden)]
    fn acquire_with(
        &self,
        owner: Option<Owner>,
        wait: Wait,
    ) -> BoxFuture<'_, Result<Option<LockGuard>, AcquireError>>;

    /// What it is made of.
    #[doc(hidden)]
    fn internals(&self) -> Vec<LockInternals>;

    /// Acquires, waiting as long as it takes.
    fn acquire(&self) -> BoxFuture<'_, Result<LockGuard, AcquireError>> {
        self.acquire_with(None, Wait::Forever).map(granted).boxed()
    }

    /// Acquires as the given owner, waiting as long as it takes.
    fn acquire_as(&self, owner: &Owner) -> BoxFuture<'_, Result<LockGuard, AcquireError>> {
        self.acquire_with(Some(owner.clone()), Wait::Forever)
            .map(granted)
            .boxed()
    }

    /// Acquires, or fails with [`AcquireError::TimedOut`] after `timeout`.
    fn acquire_timeout(&self, timeout: Duration) -> BoxFuture<'_, Result<LockGuard, AcquireError>> {
        self.acquire_with(None, Wait::AtMost(timeout))
            .map(granted)
            .boxed()
    }

    /// Acquires as the given owner, or fails with [`AcquireError::TimedOut`] after `timeout`.
    fn acquire_timeout_as(
        &self,
        owner: &Owner,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<LockGuard, AcquireError>> {
        self.acquire_with(Some(owner.clone()), Wait::AtMost(timeout))
            .map(granted)
            .boxed()
    }

    /// Acquires if no one else holds it, `None` if somebody does.
    fn try_acquire(&self) -> BoxFuture<'_, Result<Option<LockGuard>, AcquireError>> {
        self.acquire_with(None, Wait::Try)
    }

    /// Acquires as the given owner if no one else holds it, `None` if somebody does.
    fn try_acquire_as(
        &self,
        owner: &Owner,
    ) -> BoxFuture<'_, Result<Option<LockGuard>, AcquireError>> {
        self.acquire_with(Some(owner.clone()), Wait::Try)
    }
}

/// Waits without a try end with a guard or an error.
#[doc(hidden)]
pub fn granted(
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
/// The lock can be lost while the guard lives: use [`run`](Self::run), [`lost`](Self::lost) or
/// [`is_valid`](Self::is_valid) around what must not be done twice, and
/// [`fencing_token`](GuardMember::fencing_token) or [`transaction`](Self::transaction) where it
/// must not be done twice *whatever happens*.
///
/// Dropping the guard releases in the background; [`release`](Self::release) tells when it is done.
/// `let _ = lock.acquire().await?` drops it on the spot.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    first: Entered,
    /// In the order in which the locks were waited for, as all lists of members.
    others: Vec<Entered>,
}

impl LockGuard {
    /// `None` for an empty set.
    pub(crate) fn new(entered: Vec<Entered>) -> Option<Self> {
        let mut entered = entered.into_iter();
        let first = entered.next()?;
        Some(Self {
            first,
            others: entered.collect(),
        })
    }

    fn entered(&self) -> impl Iterator<Item = &Entered> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> + Clone {
        self.entered().map(Entered::lease)
    }

    /// Joins guards of several locks, `None` for none.
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

    /// Acquires for reading what this guard of a single lock holds for writing.
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

    /// The locks that are held, in the order in which they were waited for.
    #[must_use]
    pub fn members(&self) -> Vec<GuardMember> {
        self.leases().map(member).collect()
    }

    /// How many guards of the owner share this hold; the lock is released with the last.
    #[must_use]
    pub fn hold_count(&self) -> usize {
        let counts = self.others.iter().map(Entered::hold_count);
        counts.fold(self.first.hold_count(), usize::min)
    }

    /// What is known about the lock now: the worst state of its members.
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

    /// Whether nobody else can hold the lock now: it is held or suspended, not lost.
    ///
    /// # Guarantees
    /// Turns false, for good, before the ensemble can grant the lock to another, while clocks run
    /// at sane rates and the process is not paused between this call and what follows from it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.leases().all(|lease| lease.check().is_ok())
    }

    /// When the lock is lost if nothing more is heard of the ensemble; `None` once it is lost.
    ///
    /// Moves on with every heartbeat that the ensemble answers, so whoever needs time to stop can see
    /// the loss coming while the connection still seems to be up. What cannot be foreseen (a node
    /// that is removed, a session that is closed) comes without it.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        let of_members = self.leases().map(Lease::valid_until);
        of_members.min_by_key(|until| *until)?
    }

    /// Completes when the lock is lost, and says which and how; never after a release.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future. It keeps nothing alive and may outlive the guard.
    pub fn lost(&self) -> impl Future<Output = LostError> + Send + 'static + use<> {
        let losses: Vec<_> = self.leases().map(|lease| lease.lost().boxed()).collect();
        async move {
            match losses.is_empty() {
                true => future::pending().await,
                false => select_all(losses).await.0,
            }
        }
    }

    /// Completes when somebody asks for the lock to be given up, by
    /// [`Participant::revoke`](crate::Participant::revoke) or Curator's `Revoker`; of a set, for any
    /// of its locks.
    ///
    /// It is only a request: the lock stays held until the guard is released.
    ///
    /// # Guarantees
    /// - Completes as well where the request was made before this call, before the lock was granted
    ///   or while the connection was down; and again for each call, as long as the lock is held.
    /// - Told at once, but not before a quarter of a second after a grant that was not waited for:
    ///   a short critical section costs no request for this.
    /// - Never completes after a release. A node that was asked for is not handed on to others of
    ///   this process ([`LockOptions::local_handoffs`](crate::LockOptions::local_handoffs)).
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future. It keeps nothing alive and may outlive the guard.
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
        let requests: Vec<_> = self
            .leases()
            .map(|lease| lease.revocation_requested().boxed())
            .collect();
        async move {
            match requests.is_empty() {
                true => future::pending().await,
                false => select_all(requests).await.0,
            }
        }
    }

    /// Asks the ensemble whether the lock is held, past every cache and lagging replica.
    ///
    /// # Errors
    /// [`VerifyError::Lost`]; [`VerifyError::Unknown`] where the ensemble refused or the connection
    /// was lost, which says nothing.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn verify(&self) -> Result<(), VerifyError> {
        let verified = join_all(self.leases().map(Lease::verify)).await;
        verified.into_iter().collect()
    }

    /// Runs a future for as long as the lock is held.
    ///
    /// Loss is polled first: the future is dropped as soon as the lock is lost.
    ///
    /// # Errors
    /// [`LostError`] if the lock was lost before the future was done; what it did until its last
    /// await stays done.
    ///
    /// # Cancel safety
    /// As the future's; the lock stays held.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, LostError> {
        let check = || self.leases().try_for_each(Lease::check);
        let mut lost = std::pin::pin!(self.lost());
        let mut future = std::pin::pin!(future);
        future::poll_fn(|cx| {
            if let std::task::Poll::Ready(error) = lost.as_mut().poll(cx) {
                return std::task::Poll::Ready(Err(error));
            }
            // A task that was not polled for long finds its deadline passed before it is told.
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

    /// Another guard of the same hold, at once and without a request.
    ///
    /// # Errors
    /// [`LostError`] if the lock is lost.
    pub fn reenter(&self) -> Result<Self, LostError> {
        let others = self.others.iter().map(Entered::reenter);
        Ok(Self {
            first: self.first.reenter()?,
            others: others.collect::<Result<_, _>>()?,
        })
    }

    /// Releases the lock, or counts down where other guards of the hold live. `Ok` says that its node
    /// is gone, or was handed on within the session
    /// ([`local_handoffs`](crate::LockOptions::local_handoffs)).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] if the lock was lost before; [`ReleaseError::Pending`] if the lease's
    /// deadline passes without an answer, the release going on in the background;
    /// [`ReleaseError::Refused`] where the ensemble forbids to delete the node.
    ///
    /// # Cancel safety
    /// The release goes on in the background when the future is dropped.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let check = self.leases().try_for_each(Lease::check);
        let entered = std::iter::once(self.first).chain(self.others);
        let last: Vec<_> = entered.filter_map(Entered::leave).collect();
        let leases: Vec<_> = last.iter().map(|hold| hold.lease()).collect();
        let span = meter::release_span(&leases);
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
