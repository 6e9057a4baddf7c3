//! Where the seats are: in a file, or in the database that has the locks, too.
//!
//! A file trusts the fencing tokens and not the holders of the locks: it keeps the highest token of each
//! seat, and compares. In PostgreSQL there is nothing to keep or compare: the transaction that writes has
//! the database check the locks themselves.

use std::path::Path;

use lock_recipes::{Error, FenceError, MultiGuard};

use crate::postgres::Postgres;
use crate::reservations::Action;
use crate::sqlite::Sqlite;

/// The database; a cheap handle.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    File(Sqlite),
    Postgres(Postgres),
}

/// A seat, and the fencing token of its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fenced {
    pub(crate) seat: String,
    pub(crate) token: i64,
}

/// A seat, and the client that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) seat: String,
    pub(crate) client: Option<String>,
}

/// Why the database did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// A later holder of the seat's lock has used the database since.
    #[error("token {token} of seat {seat} is stale, the database has seen {seen}")]
    Stale { seat: String, token: i64, seen: i64 },
    /// The lock was lost before the write.
    #[error("the locks of the seats are lost, so the database refuses the write")]
    Fenced,
    #[error(
        "the locks cannot be checked by this database: use --db with a file, or the URL of --connect"
    )]
    NoFence(#[from] Error),
    #[error("database failed")]
    Sql(#[from] rusqlite::Error),
    #[error("database failed")]
    Postgres(#[from] tokio_postgres::Error),
}

impl Store {
    /// Opens a file or, with a URL, PostgreSQL, and creates missing tables.
    pub(crate) async fn open(db: &str) -> Result<Self, StoreError> {
        if db.starts_with("postgres") {
            return Ok(Self::Postgres(Postgres::open(db).await?));
        }
        Ok(Self::File(Sqlite::open(Path::new(db))?))
    }

    /// Opens a database that is deleted with the handle.
    pub(crate) fn temporary() -> Result<Self, StoreError> {
        Ok(Self::File(Sqlite::temporary()?))
    }

    /// Reads which clients have the seats. From then on no earlier holder of their locks writes them.
    pub(crate) async fn read(&self, seats: Vec<Fenced>) -> Result<Vec<Seat>, StoreError> {
        match self {
            Self::File(file) => file.read(seats).await,
            Self::Postgres(postgres) => postgres.read(seats).await,
        }
    }

    /// Books or cancels the seats if their locks are held, and returns the number of the batch.
    ///
    /// Does not check again whether the client may do this. That was decided on what was read, and
    /// nothing has happened since.
    pub(crate) async fn write(
        &self,
        action: Action,
        client: &str,
        seats: Vec<Fenced>,
        guard: &MultiGuard,
    ) -> Result<i64, StoreError> {
        match self {
            Self::File(file) => {
                // The tokens are compared instead.
                let _ = guard;
                file.write(action, client, seats).await
            }
            Self::Postgres(postgres) => {
                let fence = match guard.fence() {
                    Err(Error::Fence(FenceError::Lost(_))) => return Err(StoreError::Fenced),
                    fence => fence?,
                };
                postgres.write(action, client, seats, &fence).await
            }
        }
    }

    /// All seats that were ever requested.
    pub(crate) async fn seats(&self) -> Result<Vec<Seat>, StoreError> {
        match self {
            Self::File(file) => file.seats().await,
            Self::Postgres(postgres) => postgres.seats().await,
        }
    }

    /// The journal as text, one line for each entry.
    pub(crate) async fn journal(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::File(file) => file.journal().await,
            Self::Postgres(postgres) => postgres.journal().await,
        }
    }
}
