//! Beats and polls.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_keeper::{CallError, Rewatch, Started, event};
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::STORE;
use crate::aside::{Aside, Beat, Polled};

use super::answers::{Cut, call_error, lost};
use super::line::Parameter;
use super::wire::Lines;
use super::words::{Caller, Watched};

/// The connection aside, as that of a session.
pub(super) struct Side {
    lines: Arc<Lines>,
    caller: Caller,
}

impl Side {
    pub(super) fn new(lines: Arc<Lines>, session: &Started) -> Self {
        let micros = |it: std::time::Duration| i64::try_from(it.as_micros()).unwrap_or(i64::MAX);
        Self {
            lines,
            caller: Caller {
                name: session.name.clone(),
                id: session.id,
                timeout: micros(session.timeout),
                rest: micros(session.container_rest),
            },
        }
    }

    async fn rung(&self, is_wanted: bool) -> Result<bool, CallError> {
        let id = self.caller.id;
        let statement = match is_wanted {
            true => format!("LISTEN lock_recipes_{id}"),
            false => format!("UNLISTEN lock_recipes_{id}"),
        };
        if !self.lines.aside.is_direct() {
            // The pooler would lend the connection to others.
            return Ok(false);
        }
        match self.lines.aside.run(&statement).await {
            Ok(()) => Ok(is_wanted),
            // As some that only speak like PostgreSQL do.
            Err(error) if error.as_db_error().is_some() => {
                debug!(target: STORE, session = id, %error, "nobody rings");
                Ok(false)
            }
            Err(error) => Err(call_error(error)),
        }
    }

    async fn polled(&self, watches: &[Rewatch], wants_ahead: bool) -> Result<Polled, CallError> {
        let mut watched = Watched::default();
        for Rewatch { number, path, seen } in watches {
            watched.push(
                (*number).try_into().unwrap_or(i64::MAX),
                path,
                seen.czxid,
                seen.mzxid,
            );
        }
        let said: [Parameter<'_>; 7] = [
            &self.caller.id,
            &watched.numbers,
            &watched.dirs,
            &watched.names,
            &watched.created,
            &watched.changed,
            &wants_ahead,
        ];
        let row = self.lines.aside.one(&self.lines.calls.poll, &said).await;
        let row = row.map_err(call_error)?;
        let news: Vec<&str> = row.try_get(0).map_err(lost)?;
        if news.len() != watches.len() {
            return Err(lost(Cut));
        }
        let ahead: Option<i64> = row.try_get(1).map_err(lost)?;
        Ok(Polled {
            news: news.into_iter().map(event).collect(),
            ahead: ahead.and_then(|it| u64::try_from(it).ok()),
            is_still: row.try_get(2).map_err(lost)?,
            is_own_still: row.try_get(3).map_err(lost)?,
        })
    }
}

impl Aside for Side {
    fn beat(&self) -> BoxFuture<'_, Result<Option<Beat>, CallError>> {
        self.lines.beat(&self.caller).boxed()
    }

    fn poll<'a>(
        &'a self,
        watches: &'a [Rewatch],
        wants_ahead: bool,
    ) -> BoxFuture<'a, Result<Polled, CallError>> {
        self.polled(watches, wants_ahead).boxed()
    }

    /// Any user of the database may ring, and hear what is rung. But only the session and the server know its
    /// name.
    fn deletion(&self, ring: &str) -> Option<u64> {
        let (number, proof) = ring.split_once('/')?;
        let proven = Sha256::digest(format!("{}/{number}", self.caller.name));
        (format!("{proven:x}") == proof).then_some(())?;
        number.parse().ok()
    }

    fn ring(&self, is_wanted: bool) -> BoxFuture<'_, Result<bool, CallError>> {
        self.rung(is_wanted).boxed()
    }
}
