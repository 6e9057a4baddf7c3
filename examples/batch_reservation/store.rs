//! Seats in a SQLite database, which trusts the tokens of the locks and not who holds them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use thiserror::Error;
use tokio::task;

use crate::reservations::Action;

/// How long to wait for another process's transaction; each takes milliseconds.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// The journal is what happened, in order; triggers keep it from being rewritten.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS seats (
        seat   TEXT PRIMARY KEY,
        token  INTEGER NOT NULL, -- the highest that was seen for this seat
        client TEXT              -- who has it; null while it is free
    ) STRICT;
    CREATE TABLE IF NOT EXISTS journal (
        entry  INTEGER PRIMARY KEY AUTOINCREMENT,
        batch  INTEGER NOT NULL, -- the same for all seats of a batch
        client TEXT NOT NULL,
        action TEXT NOT NULL CHECK (action IN ('book', 'cancel')),
        seat   TEXT NOT NULL,
        token  INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER IF NOT EXISTS journal_keeps BEFORE UPDATE ON journal
        BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
    CREATE TRIGGER IF NOT EXISTS journal_stays BEFORE DELETE ON journal
        BEGIN SELECT raise(ABORT, 'the journal is append-only'); END;
";

/// The database; a cheap handle.
///
/// # Guarantees
/// Whoever has read a seat under a token knows that no write under a lower one comes after, and
/// each batch is written whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Store(Arc<Mutex<Connection>>);

/// A seat, and the fencing token of its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fenced {
    pub(crate) seat: String,
    pub(crate) token: i64,
}

/// A seat, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) seat: String,
    pub(crate) client: Option<String>,
}

/// Why the database did nothing.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    /// Somebody else has had the seat's lock since.
    #[error("token {token} of seat {seat} is stale, the database has seen {seen}")]
    Stale { seat: String, token: i64, seen: i64 },
    #[error("database failed")]
    Sql(#[from] rusqlite::Error),
}

impl Store {
    /// Opens the database of a file, and makes its tables where they are missing.
    pub(crate) fn open(file: &Path) -> Result<Self, StoreError> {
        let mut connection = Connection::open(file)?;
        connection.busy_timeout(BUSY_MAX)?;
        // Processes that start together must not see each other's half of the schema.
        let schema = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        schema.execute_batch(SCHEMA)?;
        schema.commit()?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Opens a database that goes with the handle: SQLite's meaning of an empty file name.
    pub(crate) fn temporary() -> Result<Self, StoreError> {
        Self::open(Path::new(""))
    }

    /// Reads who has the seats, and shows their tokens: from now on lower ones are refused.
    ///
    /// To show them with the write alone would be too late: what a stale holder writes between
    /// our read and our write would be overwritten.
    pub(crate) async fn read(&self, seats: Vec<Fenced>) -> Result<Vec<Seat>, StoreError> {
        self.commit(move |transaction| {
            show_tokens(transaction, &seats)?;
            let mut select = transaction.prepare("SELECT client FROM seats WHERE seat = ?1")?;
            let mut found = Vec::with_capacity(seats.len());
            for Fenced { seat, .. } in seats {
                let client = select.query_row([&seat], |row| row.get(0))?;
                found.push(Seat { seat, client });
            }
            Ok(found)
        })
        .await
    }

    /// Books or cancels the seats, and returns the number of the batch.
    ///
    /// Whether the client may is not asked again: that was decided on what was read, and the
    /// tokens say that nothing has happened since.
    pub(crate) async fn write(
        &self,
        action: Action,
        client: &str,
        seats: Vec<Fenced>,
    ) -> Result<i64, StoreError> {
        let client = client.to_owned();
        self.commit(move |transaction| {
            show_tokens(transaction, &seats)?;
            let last = "SELECT batch FROM journal ORDER BY entry DESC LIMIT 1";
            let last = transaction.query_row(last, [], |row| row.get::<_, i64>(0));
            let batch = last.optional()?.unwrap_or(0) + 1;
            let holder = (action == Action::Book).then_some(&client);
            for Fenced { seat, token } in &seats {
                transaction.execute(
                    "UPDATE seats SET client = ?2 WHERE seat = ?1",
                    params![seat, holder],
                )?;
                transaction.execute(
                    "INSERT INTO journal (batch, client, action, seat, token)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![batch, client, action.name(), seat, token],
                )?;
            }
            Ok(batch)
        })
        .await
    }

    /// All seats that anybody has ever asked for.
    pub(crate) async fn seats(&self) -> Result<Vec<Seat>, StoreError> {
        self.lines("SELECT seat, client FROM seats ORDER BY seat", |row| {
            let (seat, client) = (row.get(0)?, row.get(1)?);
            Ok(Seat { seat, client })
        })
        .await
    }

    /// What happened, a line each.
    pub(crate) async fn journal(&self) -> Result<Vec<String>, StoreError> {
        let select = "SELECT format('batch %d: %s %s by %s, token %d',
                             batch, action, seat, client, token)
                      FROM journal ORDER BY entry";
        self.lines(select, |row| row.get(0)).await
    }

    async fn lines<T: Send + 'static>(
        &self,
        select: &'static str,
        line: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<Vec<T>, StoreError> {
        self.commit(move |transaction| {
            let mut select = transaction.prepare(select)?;
            let lines = select.query_map([], line)?.collect::<Result<_, _>>()?;
            Ok(lines)
        })
        .await
    }

    /// Runs one transaction on a thread of its own, as it may wait for other processes; an error
    /// rolls it back.
    ///
    /// # Cancel safety
    /// It goes on when the future is dropped. By then its locks may be free, but not its tokens.
    async fn commit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = Arc::clone(&self.0);
        let committed = task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            // A transaction that reads first and then wants to write could fail half-way.
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let answer = work(&transaction)?;
            transaction.commit()?;
            Ok(answer)
        });
        match committed.await {
            Ok(answer) => answer,
            // Nobody aborts it.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Compares and raises the highest tokens, in the transaction of what they are for.
fn show_tokens(transaction: &Transaction<'_>, seats: &[Fenced]) -> Result<(), StoreError> {
    // An equal one is the same hold, which may read and write as often as it likes.
    let mut raise = transaction.prepare(
        "INSERT INTO seats (seat, token) VALUES (?1, ?2)
         ON CONFLICT (seat) DO UPDATE SET token = excluded.token
         WHERE excluded.token >= seats.token",
    )?;
    for Fenced { seat, token } in seats {
        if raise.execute(params![seat, token])? == 0 {
            let seen = "SELECT token FROM seats WHERE seat = ?1";
            let seen = transaction.query_row(seen, [seat], |row| row.get(0))?;
            let (seat, token) = (seat.clone(), *token);
            return Err(StoreError::Stale { seat, token, seen });
        }
    }
    Ok(())
}
