//! Seats in PostgreSQL, next to the locks.
//!
//! The tables have no column for tokens that anything rests on: the journal notes them for people. A
//! transaction that writes runs [`Fence`], and commits only while the locks are held.

use std::sync::Arc;

use lock_recipes::Fence;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Row};

use crate::reservations::Action;
use crate::store::{Fenced, Seat, StoreError};

const SCHEMA: &str = "
    SELECT pg_advisory_xact_lock(4711); -- processes that start at the same time
    CREATE TABLE IF NOT EXISTS seats (
        seat   text PRIMARY KEY,
        client text -- who has it; null while it is free
    );
    CREATE TABLE IF NOT EXISTS journal (
        entry  bigserial PRIMARY KEY,
        batch  bigint NOT NULL, -- the same for all seats of a batch
        client text NOT NULL,
        action text NOT NULL CHECK (action IN ('book', 'cancel')),
        seat   text NOT NULL,
        token  bigint NOT NULL
    );
    CREATE SEQUENCE IF NOT EXISTS batches;
";

/// The database; a cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Postgres(Arc<Mutex<Client>>);

impl Postgres {
    pub(crate) async fn open(url: &str) -> Result<Self, StoreError> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // It ends with the client; a failure is an error of the next statement.
        tokio::spawn(connection);
        client.batch_execute(SCHEMA).await?;
        Ok(Self(Arc::new(Mutex::new(client))))
    }

    pub(crate) async fn read(&self, seats: Vec<Fenced>) -> Result<Vec<Seat>, StoreError> {
        let client = self.0.lock().await;
        let mut found = Vec::with_capacity(seats.len());
        for Fenced { seat, .. } in seats {
            let select = "SELECT client FROM seats WHERE seat = $1";
            let row = client.query_opt(select, &[&seat]).await?;
            let client = row.and_then(|row| row.get(0));
            found.push(Seat { seat, client });
        }
        Ok(found)
    }

    /// # Cancel safety
    /// The transaction is rolled back when the future is dropped before its commit.
    pub(crate) async fn write(
        &self,
        action: Action,
        client: &str,
        seats: Vec<Fenced>,
        fence: &Fence,
    ) -> Result<i64, StoreError> {
        let mut connection = self.0.lock().await;
        let transaction = connection.transaction().await?;
        // First: what holds now holds until the commit.
        if let Err(error) = transaction.batch_execute(fence.sql()).await {
            let is_lost = error
                .code()
                .is_some_and(|it| it.code() == fence.dialect().refusal());
            return Err(match is_lost {
                true => StoreError::Fenced,
                false => error.into(),
            });
        }
        let batch: i64 = transaction
            .query_one("SELECT nextval('batches')", &[])
            .await?
            .get(0);
        let holder = (action == Action::Book).then_some(client);
        for Fenced { seat, token } in &seats {
            let upsert = "INSERT INTO seats VALUES ($1, $2)
                          ON CONFLICT (seat) DO UPDATE SET client = excluded.client";
            transaction.execute(upsert, &[seat, &holder]).await?;
            let insert = "INSERT INTO journal (batch, client, action, seat, token)
                          VALUES ($1, $2, $3, $4, $5)";
            let name = action.name();
            let entry: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&batch, &client, &name, seat, token];
            transaction.execute(insert, &entry).await?;
        }
        transaction.commit().await?;
        Ok(batch)
    }

    pub(crate) async fn seats(&self) -> Result<Vec<Seat>, StoreError> {
        let select = "SELECT seat, client FROM seats ORDER BY seat";
        let rows = self.0.lock().await.query(select, &[]).await?;
        let seat = |row: &Row| Seat {
            seat: row.get(0),
            client: row.get(1),
        };
        Ok(rows.iter().map(seat).collect())
    }

    pub(crate) async fn journal(&self) -> Result<Vec<String>, StoreError> {
        let select = "SELECT format('batch %s: %s %s by %s, token %s',
                             batch, action, seat, client, token)
                      FROM journal ORDER BY entry";
        let rows = self.0.lock().await.query(select, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
