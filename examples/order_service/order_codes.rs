//! Order codes that are unique over all processes: a mutex around a counter node.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{
    Error, InterProcessMutex, LostError, MutexGuard, NodesError, Participant, Session,
    SessionHealth, TransactionError,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// A retry helps after one lost lock. A process that keeps losing the lock must not take more.
const ATTEMPTS_MAX: usize = 3;

/// How often a connection may break during one write before the client is told to retry later.
const WRITES_MAX: usize = 3;

/// Hands out order codes.
///
/// # Guarantees
/// No code is handed out twice, whatever happens to processes, sessions and the network: the
/// ensemble writes the counter only while the writer's lock node exists. A code whose answer was
/// lost is never used again. So a gap is possible, a duplicate is not.
#[derive(Debug)]
pub(crate) struct OrderCodes {
    session: Session,
    lock: InterProcessMutex,
    /// Path of the counter node.
    counter: String,
    patience: Duration,
}

/// An order code.
#[derive(Debug, Serialize)]
pub(crate) struct Order {
    code: String,
    /// For stores that refuse late writes. A later code never has a lower token.
    token: i64,
}

/// Data of the counter node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counter {
    last: u64,
    /// The token of the writer. It tells our own write from another's.
    token: i64,
}

/// Why no code was handed out, by how the client should react.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// Other requests hold the lock for long. Try again later.
    #[error("no order code in time, other requests are ahead")]
    Busy(#[source] Box<dyn StdError + Send + Sync>),
    /// The ensemble does not answer. Try again later.
    #[error("no order code, the ensemble does not answer")]
    Outage(#[source] Box<dyn StdError + Send + Sync>),
    /// The lock was lost meanwhile. Start again, after all its guards are dropped.
    #[error("no order code, the lock was lost")]
    Lost(#[from] LostError),
    /// This process is shutting down. Try another one.
    #[error("no order code, the service is shutting down")]
    Closed,
    /// An operator must repair the data or the ACLs of the ensemble.
    #[error("no order code until an operator steps in")]
    Broken(#[source] Box<dyn StdError + Send + Sync>),
}

impl OrderCodes {
    /// Uses a lock and a counter below `root`. Requests wait for the lock for at most `patience`.
    pub(crate) fn new(session: &Session, root: &str, patience: Duration) -> Result<Self, Error> {
        Ok(Self {
            session: session.clone(),
            lock: InterProcessMutex::new(session, &format!("{root}/locks/order-codes"))?,
            counter: format!("{root}/order-counter"),
            patience,
        })
    }

    /// Hands out one code.
    pub(crate) async fn one(&self) -> Result<Order, OrderError> {
        anew_after_loss(|| self.allocate()).await
    }

    /// Hands out consecutive codes: no other request gets one between them.
    pub(crate) async fn batch(&self, count: usize) -> Result<Vec<Order>, OrderError> {
        anew_after_loss(|| self.allocate_in_a_row(count)).await
    }

    /// State of the session and number of ZooKeeper sessions so far.
    pub(crate) fn session(&self) -> (SessionHealth, u64) {
        (self.session.health(), self.session.epoch())
    }

    /// Lists the holder and the waiters, over all processes.
    pub(crate) async fn participants(&self) -> Result<Vec<Participant>, Error> {
        self.lock.participants().await
    }

    /// Holds the lock all the time, so that every `allocate` re-enters.
    async fn allocate_in_a_row(&self, count: usize) -> Result<Vec<Order>, OrderError> {
        let hold = self.lock.acquire().timeout(self.patience).await?;
        let mut orders = Vec::with_capacity(count);
        for _ in 0..count {
            orders.push(self.allocate().await?);
        }
        release(hold).await;
        Ok(orders)
    }

    /// Allocates the next code. If the request holds the lock already, this acquire re-enters
    /// without a request to the ensemble, because both are inside one `Owner::scope`.
    async fn allocate(&self) -> Result<Order, OrderError> {
        let guard = self.lock.acquire().timeout(self.patience).await?;
        let order = self.count(&guard).await?;
        release(guard).await;
        Ok(order)
    }

    /// Increments the counter, in a transaction that commits only while the lock is held.
    async fn count(&self, guard: &MutexGuard) -> Result<Order, OrderError> {
        use NodesError::{BadVersion, NodeExists};
        let token = guard.fencing_token().as_i64();
        let mut unsure = None;
        for _ in 0..WRITES_MAX {
            let (present, version) = self.read(guard).await?;
            // No other writer has our token, so the write without an answer was carried out.
            if unsure == Some(present) {
                return Ok(present.into());
            }
            let last = present.last + 1;
            let next = Counter { last, token };
            let data = serde_json::to_vec(&next).map_err(broken)?;
            let write = match version {
                Some(version) => guard
                    .transaction()
                    .set_version(&self.counter, data, version),
                // The parent exists, because our lock node is below it too.
                None => guard.transaction().create(&self.counter, data),
            };
            // Not in `guard.run`: a commit counts, even if the lock is lost immediately afterwards.
            match write.commit().await {
                Ok(_) => return Ok(next.into()),
                // Read what the write did, or what an operator has written meanwhile.
                Err(Error::Transaction(
                    TransactionError::Unknown { source: error, .. }
                    | TransactionError::Refused {
                        source: error @ (BadVersion | NodeExists),
                        ..
                    },
                )) => warn!(%error, "reading the counter again"),
                Err(error) => return Err(error.into()),
            }
            unsure = Some(next);
        }
        Err(OrderError::Outage(
            "writing the counter keeps failing".into(),
        ))
    }

    /// Reads the counter and its version; `None` if there is no node.
    async fn read(&self, guard: &MutexGuard) -> Result<(Counter, Option<i32>), OrderError> {
        match guard.run(self.session.read(&self.counter)).await?? {
            Some((data, stat)) => {
                let counter = serde_json::from_slice(&data).map_err(broken)?;
                Ok((counter, Some(stat.version)))
            }
            None => Ok((Counter::default(), None)),
        }
    }
}

/// Starts again when the lock was lost. By then the attempt has dropped all its guards; before
/// that, its owner could not acquire again.
async fn anew_after_loss<T, F>(attempt: impl Fn() -> F) -> Result<T, OrderError>
where
    F: Future<Output = Result<T, OrderError>>,
{
    for _ in 1..ATTEMPTS_MAX {
        match attempt().await {
            Err(OrderError::Lost(lost)) => warn!(%lost, "starting again"),
            outcome => return outcome,
        }
    }
    attempt().await
}

/// Releases, and only logs errors: what was committed under the lock stays ours.
async fn release(guard: MutexGuard) {
    if let Err(error) = guard.release().await {
        warn!(
            error = &error as &dyn StdError,
            "lock not released as usual"
        );
    }
}

fn broken(error: impl StdError + Send + Sync + 'static) -> OrderError {
    OrderError::Broken(error.into())
}

impl From<Counter> for Order {
    fn from(counter: Counter) -> Self {
        Self {
            code: format!("A-{:06}", counter.last),
            token: counter.token,
        }
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        match error.lost() {
            // An outer function may have a guard. It is dropped before `anew_after_loss` starts again.
            Some(lost) => Self::Lost(lost.clone()),
            None if error.is_busy() => Self::Busy(error.into()),
            None if error.is_transient() => Self::Outage(error.into()),
            None if error.is_closed() => Self::Closed,
            None => broken(error),
        }
    }
}
