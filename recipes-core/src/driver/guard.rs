//! The guard that proves that locks are held.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{self, join_all, select_all};
use tokio::time::Instant;
use tracing::Instrument;

use crate::driver::acquire_all::Refusal;
use crate::driver::deadline::Deadline;
use crate::driver::guard_member::GuardMember;
use crate::driver::internals::LockInternals;
use crate::driver::one_or_more::OneOrMore;
use crate::error::{AcquireError, Error, LostError};
use crate::lock::fence;
use crate::lock::hold::Share;
use crate::lock::lease::Lease;
use crate::lock::lease_state::GuardState;
use crate::lock::release::{ReleaseOutcome, Released, release_all, worst};
use crate::lock::transaction::Transaction;
use crate::names::token::FencingToken;
use crate::store::fence::Fence;
use crate::telemetry;

/// Proof that one lock, or a set of locks, is held.
///
/// The lock can be lost while the guard lives. Use [`run`](Self::run), [`lost`](Self::lost) or
/// [`is_valid`](Self::is_valid) around work that must not be done twice. Use
/// [`fencing_token`](Self::fencing_token) or [`transaction`](Self::transaction) if it must not be
/// done twice *whatever happens*.
///
/// Dropping the guard releases in the background; [`release`](Self::release) returns when that is
/// done. `let _ = lock.acquire().await?` drops the guard on the spot.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    first: Share,
    /// The members after the first, in the order in which they are waited for.
    others: Vec<Share>,
    /// The place of each member among these, in the order in which members were asked for.
    places: Arc<[usize]>,
    /// The paths of a set; one lock has its own.
    set_path: Option<Arc<str>>,
}

impl LockGuard {
    pub(crate) fn new(shares: OneOrMore<Share>) -> Self {
        let (first, others) = shares.into_parts();
        Self::of(first, others)
    }

    fn of(first: Share, others: Vec<Share>) -> Self {
        let mut guard = Self {
            places: (0..=others.len()).collect(),
            first,
            others,
            set_path: None,
        };
        if !guard.others.is_empty() {
            let paths: Vec<_> = guard.leases().map(Lease::path).collect();
            guard.set_path = Some(paths.join(", ").into());
        }
        guard
    }

    fn shares(&self) -> impl Iterator<Item = &Share> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn leases(&self) -> impl Iterator<Item = &Lease> + Clone {
        self.shares().map(Share::lease)
    }

    /// Joins this guard with those of the locks after it.
    #[doc(hidden)]
    pub fn join(self, guards: impl IntoIterator<Item = Self>) -> Self {
        let (mut joined, mut listed) = (self.others, self.places.to_vec());
        for Self {
            first,
            others,
            places,
            ..
        } in guards
        {
            let before = listed.len();
            listed.extend(places.iter().map(|place| before + place));
            joined.push(first);
            joined.extend(others);
        }
        Self::of(self.first, joined).listed(listed.into())
    }

    /// Lists its members by these places.
    pub(crate) fn listed(self, places: Arc<[usize]>) -> Self {
        Self { places, ..self }
    }

    /// The guard of all but the first lock, which is released in the background; all if there is no
    /// other. Its path is made of the first lock's.
    pub(crate) fn without_first(self, path: impl Fn(&str) -> &str) -> Self {
        let (mut first, mut others) = (self.first, self.others);
        let set_path = Some(path(first.lease().path()).into());
        if !others.is_empty() {
            first = others.remove(0);
        }
        Self {
            places: (0..=others.len()).collect(),
            first,
            others,
            set_path,
        }
    }

    /// Acquires for reading the lock that this single guard holds for writing.
    #[doc(hidden)]
    pub async fn read_beside(&self) -> Result<Self, AcquireError> {
        let reader = LockInternals::reader_of(self.first.lease());
        // Boxed, because the futures of the callers would contain it.
        let acquired = reader.acquire(Some(self.first.owner()), Deadline::never());
        let acquired = acquired.boxed();
        acquired.await.map_err(Refusal::into_error)
    }

    /// Returns the path of the lock directory; for a set all paths, as
    /// [`DistributedLock::path`](crate::DistributedLock::path).
    #[must_use]
    pub fn path(&self) -> &str {
        match &self.set_path {
            Some(paths) => paths,
            None => self.first.lease().path(),
        }
    }

    /// Returns the token of this grant; `None` for a set of several locks.
    ///
    /// A set has no token of its own. Each member's token rises with the grants of that member
    /// only: another's may be higher or lower than what the next holder gets. So pass the token of
    /// the member that protects the data, from [`token_of`](Self::token_of) or [`members`](Self::members).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.others.is_empty().then(|| self.first_fencing_token())
    }

    /// Token of the first member, for guards of one lock.
    #[doc(hidden)]
    #[must_use]
    pub fn first_fencing_token(&self) -> FencingToken {
        self.first.lease().fencing_token()
    }

    /// Returns the locks that are held, in the order in which they were asked for.
    #[must_use]
    pub fn members(&self) -> Vec<GuardMember> {
        let leases: Vec<_> = self.leases().collect();
        let listed = self.places.iter().filter_map(|place| leases.get(*place));
        listed.map(|lease| GuardMember::of(lease)).collect()
    }

    /// Returns the token of the lock with this [key](GuardMember::key): for the row that it protects. `None` if no
    /// member has the key, or several have, as in a set of locks of several factories.
    #[must_use]
    pub fn token_of(&self, key: &str) -> Option<FencingToken> {
        let mut members = self.members().into_iter();
        let mut of_key = || members.find(|it| it.key().as_deref() == Some(key));
        let found = of_key()?;
        of_key().is_none().then_some(found.fencing_token)
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
    /// # use recipes_core::DistributedLock;
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
    /// [`VerifyError::Lost`](crate::VerifyError::Lost) if it is lost.
    /// [`VerifyError::Unknown`](crate::VerifyError::Unknown) if the store refused or the connection was lost: the
    /// lock may still be held.
    ///
    /// # Cancel safety
    /// Dropping the future is harmless.
    pub async fn verify(&self) -> Result<(), Error> {
        let verified = join_all(self.leases().map(Lease::verify)).await;
        let verified: Result<(), _> = verified.into_iter().collect();
        Ok(verified?)
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
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let check = || self.leases().try_for_each(Lease::check);
        let mut lost = std::pin::pin!(self.lost());
        let mut future = std::pin::pin!(future);
        future::poll_fn(|cx| {
            if let std::task::Poll::Ready(error) = lost.as_mut().poll(cx) {
                return std::task::Poll::Ready(Err(error.into()));
            }
            // In a task that was not polled for long, the deadline may pass before the loss is
            // reported.
            check()?;
            let output = std::task::ready!(future.as_mut().poll(cx));
            check()?;
            std::task::Poll::Ready(Ok(output))
        })
        .await
    }

    /// Starts a transaction that commits only while the lock is held.
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(self.leases().collect())
    }

    /// Returns a statement for the service's own transaction, in the database that is the store of the
    /// lock: the transaction then commits only while the lock is held.
    ///
    /// # Guarantees
    /// - If the lock is lost before the statement runs, the statement fails, and the transaction with it.
    /// - From then on until the transaction is over, nobody else is granted the lock: not by a release
    ///   of this guard, not after the end of its session, not by an operator. Others wait as long.
    ///
    /// So what the transaction writes needs no fencing token. Release the guard after the commit: a
    /// release before it is [`Pending`](crate::ReleaseOutcome::Pending) until the transaction is over.
    ///
    /// The node is not handed on within the process afterwards
    /// ([`LockOptions::local_handoffs`](crate::LockOptions::local_handoffs)).
    ///
    /// # Errors
    /// [`FenceError::Unsupported`](crate::FenceError::Unsupported) unless the locks of the guard are on one SQL
    /// database.
    pub fn fence(&self) -> Result<Fence, Error> {
        Ok(fence::of(
            self.first.lease(),
            self.others.iter().map(Share::lease),
        )?)
    }

    /// Makes another guard of the same hold, at once and without a request.
    ///
    /// # Errors
    /// [`LostError`] if the lock is lost.
    pub fn reenter(&self) -> Result<Self, Error> {
        let others = self.others.iter().map(Share::reenter);
        Ok(Self {
            first: self.first.reenter()?,
            others: others.collect::<Result<_, _>>()?,
            places: Arc::clone(&self.places),
            set_path: self.set_path.clone(),
        })
    }

    /// Releases the lock, or only leaves the hold while other guards of it live. Never called
    /// twice: what is not done when it returns is done in the background.
    ///
    /// In an outage it waits for the lease's deadline, half a session timeout at most. A worker that
    /// has other work drops the guard, or this future.
    ///
    /// # Guarantees
    /// `Ok` means that the lock was held until the call, as far as this process can know, so what
    /// was done under it stands. [`ReleaseOutcome`] says whether the lock is free already; for a
    /// set, whether all of it is. So `guard.release().await?` fails no finished work because the
    /// store is down.
    ///
    /// # Errors
    /// For a set, the worst of its locks counts: `Lost`, then `Refused`.
    /// - [`ReleaseError::Lost`](crate::ReleaseError::Lost) if the lock was lost before the call, so that the work
    ///   under it may have overlapped with that of another contender.
    /// - [`ReleaseError::Refused`](crate::ReleaseError::Refused) if the store forbids deleting the node, so that the
    ///   lock stays taken until the session ends.
    ///
    /// # Cancel safety
    /// The release continues in the background when the future is dropped.
    pub async fn release(self) -> Result<ReleaseOutcome, Error> {
        Ok(self.released().await?)
    }

    pub(crate) async fn released(self) -> Released {
        // A lock that is lost is reported by each of its guards, not only by the last.
        let check = self.leases().try_for_each(Lease::check);
        let released = self.release_each().await;
        check?;
        worst(released)
    }

    /// Releases those locks that no other guard of the hold keeps. Returns how each release ended.
    pub(crate) async fn release_each(self) -> Vec<Released> {
        let shares = std::iter::once(self.first).chain(self.others);
        let last: Vec<_> = shares.filter_map(Share::leave).collect();
        let leases: Vec<_> = last.iter().map(|hold| hold.lease()).collect();
        let released = leases.iter();
        let released = released.map(|it| (it.path(), it.node_path(), it.fencing_token()));
        let span = telemetry::release_span(&released.collect::<Vec<_>>());
        release_all(&leases).instrument(span).await
    }
}

impl LockGuard {
    /// Path, token and state, under the name of a guard type.
    #[doc(hidden)]
    pub fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens: Vec<_> = self.leases().map(Lease::fencing_token).collect();
        let mut debug = f.debug_struct(name);
        debug.field("path", &self.path());
        match tokens.as_slice() {
            [token] => debug.field("fencing_token", token),
            tokens => debug.field("fencing_tokens", &tokens),
        };
        debug.field("state", &self.state()).finish()
    }
}

impl AsRef<Self> for LockGuard {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("LockGuard", f)
    }
}
