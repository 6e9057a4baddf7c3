//! The error of every call.

use crate::error::{
    AcquireError, ConfigError, ConnectError, FenceError, LatchError, LostError, QueryError,
    ReleaseError, TransactionError, VerifyError,
};

/// The error of every call of this library. So one `#[from] Error` is enough for `?` in a service's own enum.
///
/// The methods say what a service has to know: [`is_busy`](Self::is_busy), [`is_transient`](Self::is_transient),
/// [`is_lost`](Self::is_lost), [`is_closed`](Self::is_closed). The variants are those of the kind of call, with the
/// same text and source.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// # use recipes_core::{DistributedLock, Error};
/// # use recipes_testing::MemoryEnsemble;
/// async fn job(lock: &dyn DistributedLock) -> Result<(), Error> {
///     let guard = lock.acquire().timeout(Duration::from_secs(2)).await?;
///     guard.run(async { /* work */ }).await?;
///     guard.release().await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = MemoryEnsemble::new().session();
/// # let lock = recipes_mutex::InterProcessMutex::new(&session, "/locks/orders")?;
/// match job(&lock).await {
///     Ok(()) => {}
///     Err(error) if error.is_busy() => println!("next time: {error}"),
///     Err(error) if error.is_transient() => println!("outage: {error}"),
///     Err(error) if error.is_lost() => println!("the work may have overlapped: {error}"),
///     Err(error) if error.is_closed() => println!("the service ends: {error}"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path or an option cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No session was opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A lock was not acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// A release did not confirm that the lock was held until then and is free.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// A lock that was held is lost.
    #[error(transparent)]
    Lost(#[from] LostError),
    /// A verification did not confirm that the lock is held.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A transaction did not commit, or may not have committed.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A lock cannot be checked inside a transaction of a database.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// A request without a lock failed: to read, to show locks, or to have a holder give its lock up.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A leader latch does not lead any more.
    #[error(transparent)]
    Latch(#[from] LatchError),
}

impl Error {
    /// Whether the store did not answer, so that the same operation may succeed once it does.
    ///
    /// A write that was not answered may have been carried out. A busy lock does not count: see
    /// [`is_busy`](Self::is_busy).
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_transient(),
            Self::Query(error) => error.is_transient(),
            Self::Connect(ConnectError::TimedOut { .. })
            | Self::Transaction(TransactionError::Unknown { .. }) => true,
            Self::Connect(ConnectError::Refused { source, .. })
            | Self::Release(ReleaseError::Refused { source, .. })
            | Self::Verify(VerifyError::Unknown { source, .. })
            | Self::Transaction(
                TransactionError::Refused { source, .. }
                | TransactionError::Rejected { source, .. },
            ) => source.is_transient(),
            _ => false,
        }
    }

    /// Whether an acquire gave up because of other contenders, while the store answered.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Acquire(error) if error.is_busy())
    }

    /// Whether the session is closed or has ended, so that nothing that needs it succeeds any more.
    /// Normal while a service ends; otherwise make another session.
    ///
    /// A lock that was lost with a session that was closed counts as well, and it
    /// [is lost](Self::is_lost). A session that ended because the
    /// [store has lost data](AcquireError::StoreForgot) does not count: that needs an operator
    /// before another session may be opened.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_closed(),
            Self::Query(error) => error.is_closed(),
            Self::Latch(error) => error.is_closed(),
            Self::Lost(lost)
            | Self::Release(ReleaseError::Lost(lost))
            | Self::Verify(VerifyError::Lost(lost))
            | Self::Transaction(TransactionError::Lost(lost))
            | Self::Fence(FenceError::Lost(lost)) => lost.is_closed(),
            _ => false,
        }
    }

    /// Whether a lock that was held is lost: another contender may hold it, and what was done under
    /// it may have overlapped.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost().is_some()
    }

    /// Returns which lock is lost and why, if one [is](Self::is_lost).
    #[must_use]
    pub fn lost(&self) -> Option<&LostError> {
        match self {
            Self::Lost(lost)
            | Self::Acquire(AcquireError::Lost(lost))
            | Self::Release(ReleaseError::Lost(lost))
            | Self::Verify(VerifyError::Lost(lost))
            | Self::Transaction(TransactionError::Lost(lost))
            | Self::Fence(FenceError::Lost(lost)) => Some(lost),
            _ => None,
        }
    }
}
