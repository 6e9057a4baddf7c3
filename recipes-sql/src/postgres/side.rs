//! Beats and polls.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::NodeEvent;
use recipes_core::internal::log::SessionId;
use recipes_keeper::{CallError, Caller, Rewatch, told};
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::STORE;
use crate::aside::{Aside, Beat, Polled};

use super::answers::{Cut, call_error, lost};
use super::line::Parameter;
use super::wire::Lines;
use super::words::{Session, Watched};

/// The connection aside, as that of a session.
pub(super) struct Side {
    lines: Arc<Lines>,
    session: Session,
}

impl Side {
    pub(super) fn new(lines: Arc<Lines>, caller: &Caller) -> Self {
        let session = Session::of(caller);
        Self { lines, session }
    }

    async fn rung(&self, is_wanted: bool) -> Result<bool, CallError> {
        let id = self.session.id;
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
                debug!(target: STORE, session = %SessionId(id), %error, "nobody rings");
                Ok(false)
            }
            Err(error) => Err(call_error(error)),
        }
    }

    async fn polled(&self, watches: &[Rewatch], wants_ahead: bool) -> Result<Polled, CallError> {
        let watched = Watched::of(watches);
        let said: [Parameter<'_>; 7] = [
            &self.session.id,
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
            news: news.into_iter().map(told).collect::<Result<_, _>>()?,
            ahead: ahead.and_then(|it| u64::try_from(it).ok()),
            is_still: row.try_get(2).map_err(lost)?,
            is_own_still: row.try_get(3).map_err(lost)?,
        })
    }
}

impl Aside for Side {
    fn beat(&self) -> BoxFuture<'_, Result<Option<Beat>, CallError>> {
        self.lines.beat(&self.session).boxed()
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
    fn deletion(&self, ring: &str) -> Option<(u64, NodeEvent)> {
        let (said, proof) = ring.split_once('/')?;
        let proven = Sha256::digest(format!("{}/{said}", self.session.name));
        (format!("{proven:x}") == proof).then_some(())?;
        let (what, number) = said.split_at_checked(1)?;
        Some((number.parse().ok()?, told(what).ok()??))
    }

    fn ring(&self, is_wanted: bool) -> BoxFuture<'_, Result<bool, CallError>> {
        self.rung(is_wanted).boxed()
    }
}
