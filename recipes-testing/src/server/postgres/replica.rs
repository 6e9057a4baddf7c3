//! What a streaming replica does besides.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::PostgresServer;
use crate::server::daemon::READY_MAX;
use crate::server::error::ServerError;

/// How often a server is asked whether it is as far as it should be, by a new client each time.
const POLL: Duration = Duration::from_millis(10);

/// For replicas, from [`replica_of`](crate::PostgresServerBuilder::replica_of).
impl PostgresServer {
    /// Makes a replica a primary of its own, and waits until it accepts writes. The primary is not
    /// told: it goes on, if it runs.
    ///
    /// # Errors
    ///
    /// [`ServerError::Refused`] if it is no replica, or [`ServerError::TimedOut`].
    pub async fn promote(&self) -> Result<(), ServerError> {
        self.sql("SELECT pg_promote(false)").await?;
        self.until("promotion", async || Ok(!self.is_replica().await?))
            .await
    }

    /// Whether it follows a primary, or would if it were not cut off.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn is_replica(&self) -> Result<bool, ServerError> {
        Ok(self.sql("SELECT pg_is_in_recovery()").await? == [["t"]])
    }

    /// Has a replica show what it shows now. It goes on receiving, and a promotion shows all that
    /// it has received.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql), or [`ServerError::TimedOut`].
    pub async fn pause_replay(&self) -> Result<(), ServerError> {
        self.sql("SELECT pg_wal_replay_pause()").await?;
        let state = "SELECT pg_get_wal_replay_pause_state()";
        self.until("pause", async || Ok(self.sql(state).await? == [["paused"]]))
            .await
    }

    /// Ends [`pause_replay`](Self::pause_replay).
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn resume_replay(&self) -> Result<(), ServerError> {
        self.sql("SELECT pg_wal_replay_resume()").await.map(drop)
    }

    /// Cuts a replica off from its primary: it receives nothing any more, and a promotion shows
    /// what it has received so far.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql), or [`ServerError::TimedOut`].
    pub async fn cut_off(&self) -> Result<(), ServerError> {
        self.set("primary_conninfo", Some("")).await?;
        let receiver = "SELECT 1 FROM pg_stat_wal_receiver";
        self.until("cut", async || Ok(self.sql(receiver).await?.is_empty()))
            .await
    }

    /// Ends [`cut_off`](Self::cut_off).
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql), or [`ServerError::TimedOut`].
    pub async fn join_again(&self) -> Result<(), ServerError> {
        self.set("primary_conninfo", None).await
    }

    /// Waits until a replica shows all that was committed on its primary before.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql), or [`ServerError::TimedOut`], as when it is cut off.
    pub async fn has_caught_up_with(&self, primary: &Self) -> Result<(), ServerError> {
        // A commit that writes its part of the log writes all before it.
        let end = "SET synchronous_commit = local; CREATE TEMPORARY TABLE written AS SELECT 1; \
                   SELECT pg_current_wal_flush_lsn()";
        let end = primary.sql(end).await?;
        let end = end.first().and_then(|row| row.first());
        let end = end.map_or("", String::as_str);
        let shown = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
        self.until("replica's catching up", async || {
            Ok(self.sql(&shown).await? == [["t"]])
        })
        .await
    }

    /// Asks until it is so.
    pub(super) async fn until(
        &self,
        what: &'static str,
        is_so: impl AsyncFn() -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        let asked = async {
            while !is_so().await? {
                sleep(POLL).await;
            }
            Ok(())
        };
        match timeout(READY_MAX, asked).await {
            Ok(so) => so,
            Err(_) => Err(self.daemon.timed_out(what, READY_MAX)),
        }
    }
}
