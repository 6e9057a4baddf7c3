//! Batches of seats: all of them or none.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{Error, GuardMember, LockFactory, MultiGuard, Session};
use tracing::warn;

use crate::store::{Fenced, Seat, Store, StoreError};

/// Books and cancels seats for one client.
///
/// # Guarantees
/// No seat has two holders, whatever happens to processes, sessions and the network: the database
/// refuses a client that was paused past its session. A batch is done as a whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Reservations {
    locks: LockFactory,
    store: Store,
    client: String,
    patience: Duration,
}

/// What to do with the seats of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Book,
    Cancel,
}

impl Action {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Book => "book",
            Self::Cancel => "cancel",
        }
    }
}

/// Why nothing was done, by how the client should react.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BatchError {
    /// Choose other seats.
    #[error("seat {seat} is taken by {by}")]
    Taken { seat: String, by: String },
    /// There is nothing to cancel.
    #[error("seat {seat} is booked by nobody")]
    Free { seat: String },
    /// This process was paused for too long. Try again: the seats may be taken by now.
    #[error(transparent)]
    Stale(StoreError),
    /// Other clients hold the locks for long. Try again later.
    #[error("seats not locked in time, other clients are ahead")]
    Busy(#[source] Error),
    /// The ensemble does not answer. Try again later.
    #[error("seats not locked, the ensemble does not answer")]
    Outage(#[source] Error),
    /// The request is wrong, or an operator must act.
    #[error("no reservations")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
}

impl Reservations {
    /// Uses locks below `root`, and waits for the locks of a batch for at most `patience`.
    pub(crate) fn new(
        session: &Session,
        root: &str,
        store: &Store,
        client: &str,
        patience: Duration,
    ) -> Result<Self, Error> {
        Ok(Self {
            locks: LockFactory::new(session, &format!("{root}/seats"))?,
            store: store.clone(),
            client: client.to_owned(),
            patience,
        })
    }

    /// The client that seats are booked for.
    pub(crate) fn name(&self) -> &str {
        &self.client
    }

    /// Books the seats, in whatever order they are named, and returns the number of the batch.
    ///
    /// `payment` runs while the seats are locked, after they were found free and before they are
    /// booked. This is why there are locks; without a payment, one transaction would do.
    pub(crate) async fn book(
        &self,
        seats: &[String],
        payment: impl Future<Output = ()>,
    ) -> Result<i64, BatchError> {
        self.locked(Action::Book, seats, payment).await
    }

    /// Cancels the seats, which must all be this client's, and returns the number of the batch.
    pub(crate) async fn cancel(&self, seats: &[String]) -> Result<i64, BatchError> {
        self.locked(Action::Cancel, seats, async {}).await
    }

    async fn locked(
        &self,
        action: Action,
        seats: &[String],
        payment: impl Future<Output = ()>,
    ) -> Result<i64, BatchError> {
        // The set waits in the order of the paths, so clients may name seats in any order.
        let locks = self.locks.multi_lock(seats).map_err(broken)?;
        let guard = locks.acquire().timeout(self.patience).await?;
        let done = self.decide_and_write(action, &guard, payment).await;
        release(guard).await;
        done
    }

    /// Not in `guard.run`: a pause can follow any check of the lock, and a payment cannot be
    /// dropped half-way. The database knows by the tokens whether another holder came between.
    async fn decide_and_write(
        &self,
        action: Action,
        guard: &MultiGuard,
        payment: impl Future<Output = ()>,
    ) -> Result<i64, BatchError> {
        let seats = fenced(guard)?;
        let found = self.store.read(seats.clone()).await?;
        if let Some(objection) = objection(action, &self.client, found) {
            return Err(objection);
        }
        payment.await;
        Ok(self.store.write(action, &self.client, seats, guard).await?)
    }
}

/// The error for the first seat that prevents the batch.
fn objection(action: Action, client: &str, found: Vec<Seat>) -> Option<BatchError> {
    let object = |Seat { seat, client: by }| match (action, by) {
        (Action::Book, None) => None,
        (Action::Cancel, Some(by)) if by == client => None,
        (_, Some(by)) => Some(BatchError::Taken { seat, by }),
        (Action::Cancel, None) => Some(BatchError::Free { seat }),
    };
    found.into_iter().find_map(object)
}

/// The seats, which are the keys of the locks, each with the token of its lock.
fn fenced(guard: &MultiGuard) -> Result<Vec<Fenced>, BatchError> {
    let fence = |member: &GuardMember| {
        let token = member.fencing_token.as_i64();
        member.key().map(|seat| Fenced { seat, token })
    };
    let fenced = guard.members().iter().map(fence).collect::<Option<_>>();
    fenced.ok_or_else(|| BatchError::Broken("locks that are of no seats".into()))
}

/// Releases, and only logs errors: what the database has accepted stays.
async fn release(guard: MultiGuard) {
    if let Err(error) = guard.release().await {
        let error = &error as &dyn StdError;
        warn!(error, "locks not released as usual");
    }
}

fn broken(error: impl StdError + Send + Sync + 'static) -> BatchError {
    BatchError::Broken(error.into())
}

impl From<Error> for BatchError {
    fn from(error: Error) -> Self {
        match error {
            error if error.is_busy() => Self::Busy(error),
            error if error.is_transient() => Self::Outage(error),
            error => broken(error),
        }
    }
}

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Stale { .. } => Self::Stale(error),
            StoreError::Fenced => Self::Stale(error),
            error => broken(error),
        }
    }
}
