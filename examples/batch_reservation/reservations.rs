//! Batches of seats: all of them or none.

use std::error::Error as StdError;
use std::time::Duration;

use thiserror::Error;
use tracing::warn;
use zookeeper_recipes::{
    AcquireError, ConfigError, GuardMember, LockFactory, MultiGuard, Session, unescape_key,
};

use crate::store::{Fenced, Seat, Store, StoreError};

/// Books and cancels seats for one client.
///
/// # Guarantees
/// No seat has two holders, whatever happens to processes, sessions and the network: who was
/// paused past its session is refused by the database. A batch is done whole or not at all.
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

/// Why nothing was done, by what the client should do.
#[derive(Debug, Error)]
pub(crate) enum BatchError {
    /// Choose other seats.
    #[error("seat {seat} is taken by {by}")]
    Taken { seat: String, by: String },
    /// There is nothing to cancel.
    #[error("seat {seat} is booked by nobody")]
    Free { seat: String },
    /// This process was away for too long: ask again, the seats may be somebody else's by now.
    #[error(transparent)]
    Stale(StoreError),
    /// Others hold the locks for long, or the ensemble does not answer: come back in a while.
    #[error("seats not locked in time")]
    Busy(#[source] AcquireError),
    /// The request is wrong, or an operator has to step in.
    #[error("no reservations")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
}

impl Reservations {
    /// Locks below `root`; waits for the locks of a batch for at most `patience`.
    pub(crate) fn new(
        session: &Session,
        root: &str,
        store: &Store,
        client: &str,
        patience: Duration,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            locks: LockFactory::new(session, &format!("{root}/seats"))?,
            store: store.clone(),
            client: client.to_owned(),
            patience,
        })
    }

    /// On whose behalf.
    pub(crate) fn name(&self) -> &str {
        &self.client
    }

    /// Books the seats, in whatever order they are named, and returns the number of the batch.
    ///
    /// `payment` happens while the seats are locked: after they were found free, before they are
    /// booked. That is what the locks are for; without it one transaction would do.
    pub(crate) async fn book(
        &self,
        seats: &[String],
        payment: impl Future<Output = ()>,
    ) -> Result<i64, BatchError> {
        self.locked(Action::Book, seats, payment).await
    }

    /// Cancels the seats, all of them this client's, and returns the number of the batch.
    pub(crate) async fn cancel(&self, seats: &[String]) -> Result<i64, BatchError> {
        self.locked(Action::Cancel, seats, async {}).await
    }

    async fn locked(
        &self,
        action: Action,
        seats: &[String],
        payment: impl Future<Output = ()>,
    ) -> Result<i64, BatchError> {
        // Waits in the order of the paths, so that nobody minds in which order clients ask.
        let locks = self.locks.multi_lock(seats).map_err(broken)?;
        let guard = locks.acquire_timeout(self.patience).await?;
        let done = self.decide_and_write(action, &guard, payment).await;
        release(guard).await;
        done
    }

    /// Not in `guard.run`: a pause can follow any check of the lock, and a payment cannot be
    /// dropped half-way. The database knows what counts, whether somebody else came between.
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
        Ok(self.store.write(action, &self.client, seats).await?)
    }
}

/// The first seat that does not let the batch go on.
fn objection(action: Action, client: &str, found: Vec<Seat>) -> Option<BatchError> {
    let object = |Seat { seat, client: by }| match (action, by) {
        (Action::Book, None) => None,
        (Action::Cancel, Some(by)) if by == client => None,
        (_, Some(by)) => Some(BatchError::Taken { seat, by }),
        (Action::Cancel, None) => Some(BatchError::Free { seat }),
    };
    found.into_iter().find_map(object)
}

/// The keys of the locks are the seats, and each lock has a token of its own.
fn fenced(guard: &MultiGuard) -> Result<Vec<Fenced>, BatchError> {
    let fence = |member: &GuardMember| {
        let key = member.path.rsplit('/').next()?;
        let (seat, token) = (unescape_key(key)?, member.fencing_token.as_i64());
        Some(Fenced { seat, token })
    };
    let fenced = guard.members().iter().map(fence).collect::<Option<_>>();
    fenced.ok_or_else(|| BatchError::Broken("locks that are of no seats".into()))
}

/// Releases, and only logs what goes wrong: what the database has taken stays.
async fn release(guard: MultiGuard) {
    if let Err(error) = guard.release().await {
        let error = &error as &dyn StdError;
        warn!(error, "locks not released as usual");
    }
}

fn broken(error: impl StdError + Send + Sync + 'static) -> BatchError {
    BatchError::Broken(error.into())
}

impl From<AcquireError> for BatchError {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::TimedOut { .. } => Self::Busy(error),
            error => broken(error),
        }
    }
}

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Stale { .. } => Self::Stale(error),
            StoreError::Sql(error) => broken(error),
        }
    }
}
