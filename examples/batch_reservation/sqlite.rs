//! Seats in a SQLite database, which trusts the fencing tokens and not the holders of the locks.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::task;

use crate::reservations::Action;
use crate::store::{Fenced, Seat, StoreError};

/// How long to wait for another process's transaction. Each takes milliseconds.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// The journal lists what happened, in order. Triggers prevent changes to it.
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
/// After a read of a seat under a token, no write under a lower one follows. Each batch is written
/// as a whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Sqlite(Arc<Mutex<Connection>>);

impl Sqlite {
    /// Opens the database of a file, and creates missing tables.
    pub(crate) fn open(file: &Path) -> Result<Self, StoreError> {
        let mut connection = Connection::open(file)?;
        connection.busy_timeout(BUSY_MAX)?;
        // Processes that start at the same time must not see each other's half of the schema.
        let schema = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        schema.execute_batch(SCHEMA)?;
        schema.commit()?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Opens a database that is deleted with the handle. For SQLite, an empty file name means that.
    pub(crate) fn temporary() -> Result<Self, StoreError> {
        Self::open(Path::new(""))
    }

    /// Reads which clients have the seats, and shows the tokens: lower ones are refused from now.
    ///
    /// Showing the tokens with the write alone would be too late. A stale holder could write
    /// between our read and our write, and we would overwrite it.
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
    /// Does not check again whether the client may do this. That was decided on what was read, and
    /// the tokens prove that nothing has happened since.
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

    /// All seats that were ever requested.
    pub(crate) async fn seats(&self) -> Result<Vec<Seat>, StoreError> {
        self.lines("SELECT seat, client FROM seats ORDER BY seat", |row| {
            let (seat, client) = (row.get(0)?, row.get(1)?);
            Ok(Seat { seat, client })
        })
        .await
    }

    /// The journal as text, one line for each entry.
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

    /// Runs one transaction on a thread of its own, because it may wait for other processes. An
    /// error rolls it back.
    ///
    /// # Cancel safety
    /// The transaction continues when the future is dropped. Its locks may be released before it
    /// ends, but its tokens still protect the seats.
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
            // No code aborts the task, so it has panicked.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Compares and raises the highest tokens, in the transaction that they are for.
fn show_tokens(transaction: &Transaction<'_>, seats: &[Fenced]) -> Result<(), StoreError> {
    // An equal token is the same hold, which may read and write any number of times.
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
