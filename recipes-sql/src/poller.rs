//! Asks for the news of what a session watches, and tells them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use recipes_core::NodeEvent;
use recipes_core::internal::log::SessionId;
use recipes_keeper::{CallError, Loss, Rewatch, Watches};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::STORE;
use crate::aside::{Aside, Polled};
use crate::bell::Bell;
use crate::pace::{Looked, Pace};
use crate::rings::{Covered, Rung, in_order};

/// Between two looks whether anything is watched.
const IDLE: Duration = Duration::from_millis(250);
/// Before news of the session's own changes are asked for.
const OWN: Duration = Duration::from_millis(2);
/// Timers are late by up to a millisecond, half of it on average.
const LATE: Duration = Duration::from_micros(500);
/// How long a session is still rung that watches nothing any more. On PostgreSQL each ring wakes all of the
/// server's processes that listen, whomever it is for.
const QUIET: Duration = Duration::from_secs(1);
/// Before a poll is sent again that the server had no time for.
const BUSY: Duration = Duration::from_millis(20);

/// Tells the news of session `id` as those of connection `number`. Completes when that is lost.
pub(crate) async fn tell(
    aside: &dyn Aside,
    watches: &Watches,
    id: i64,
    number: u64,
    bell: &Bell,
) -> Loss {
    let told = Poller {
        aside,
        watches,
        id,
        number,
        bell,
        pace: Pace::new(),
        ring: Ring::Off,
        covered: Covered::default(),
    };
    match told.run().await {
        Ok(never) => match never {},
        Err(error) => {
            debug!(target: STORE, session = %SessionId(id), ?error, "no news");
            Loss::Connection
        }
    }
}

struct Poller<'a> {
    aside: &'a dyn Aside,
    watches: &'a Watches,
    id: i64,
    number: u64,
    bell: &'a Bell,
    pace: Pace,
    ring: Ring,
    covered: Covered,
}

/// Whether the server rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    /// It cannot.
    Never,
    Off,
    /// Something was watched then, or later.
    On {
        since: Instant,
    },
}

impl Poller<'_> {
    async fn run(mut self) -> Result<Infallible, CallError> {
        let mut next = Instant::now();
        // Ends with the connection.
        loop {
            let (mut was_told, mut is_asked) = (false, false);
            let mut rung = Rung::Nothing;
            while let Ok(signals) = timeout_at(next, self.bell.signalled()).await {
                let is_rung = signals.rung != Rung::Nothing;
                if is_rung {
                    self.pace.rings(true);
                    rung = signals.rung;
                }
                self.covered.created(signals.created);
                if signals.has_watched {
                    next = next.min(Instant::now() + self.pace.watched());
                }
                if signals.has_changed {
                    // Most often nobody watches the node in a moment: it was that of a lock that is
                    // being released.
                    next = next.min(Instant::now() + OWN);
                }
                was_told |= is_rung || signals.has_changed;
                is_asked = signals.is_asked;
                if is_rung || is_asked {
                    break;
                }
            }
            let asked = self.bell.looks();
            // First: a watch that is confirmed in between is looked at soon.
            let is_all = !self.watches.are_awaited();
            let watched = self.watches.confirmed();
            if is_all && self.tell_deletions(&rung, &watched) && !is_asked {
                continue;
            }
            if watched.is_empty() {
                self.off().await?;
                // A watch may be set whose answer nobody has read yet.
                next = Instant::now() + self.pace.polled(&Looked::default()).min(IDLE);
            } else {
                let Some(looked) = self.look(watched, was_told, is_all).await? else {
                    next = Instant::now() + BUSY;
                    continue;
                };
                next = looked;
            }
            self.bell.looked(asked);
        }
    }

    /// What has changed before it is rung, the look shows that comes after.
    async fn poll(&mut self, watched: &[Rewatch]) -> Result<Polled, CallError> {
        let since = Instant::now();
        self.ring = match self.ring {
            Ring::Off => {
                let rings = self.aside.ring(true).await?;
                self.pace.rings(rings);
                match rings {
                    true => Ring::On { since },
                    false => Ring::Never,
                }
            }
            Ring::On { .. } => Ring::On { since },
            Ring::Never => Ring::Never,
        };
        self.aside.poll(watched, self.pace.wants_ahead()).await
    }

    /// Nothing is watched. If that has been so for a while, the server need not ring.
    async fn off(&mut self) -> Result<(), CallError> {
        match self.ring {
            Ring::On { since } if since.elapsed() > QUIET => {}
            _ => return Ok(()),
        }
        match self.aside.ring(false).await {
            // Later.
            Err(CallError::NotNow(_)) => return Ok(()),
            rings => self.pace.rings(rings?),
        }
        self.ring = Ring::Off;
        Ok(())
    }

    /// Tells the deletions that rings prove, before they are looked for. Returns whether that was all.
    fn tell_deletions(&self, rung: &Rung, watched: &[Rewatch]) -> bool {
        let Rung::Deletions(rings) = rung else {
            return false;
        };
        if !self.covered.is_whole(watched, self.id, self.bell.sent()) {
            return false;
        }
        let proven = rings.iter().map(|it| self.aside.deletion(it));
        let Some(deleted) = proven.collect::<Option<HashMap<_, _>>>() else {
            return false;
        };
        let news = watched.iter().map(|it| deleted.get(&it.number).copied());
        self.fire(watched, &news.collect::<Vec<_>>());
        true
    }

    fn fire(&self, watched: &[Rewatch], news: &[Option<NodeEvent>]) {
        for (watch, event) in in_order(watched, news, self.id) {
            self.watches
                .fire(self.number, &watch.path, watch.number, event);
        }
    }

    /// Returns when to look next; `None` if the server had no time.
    async fn look(
        &mut self,
        watched: Vec<Rewatch>,
        was_told: bool,
        is_all: bool,
    ) -> Result<Option<Instant>, CallError> {
        let sent = Instant::now();
        let changes = self.bell.answered();
        // What has rung since the last look is forgotten. No ring is believed before this one is over.
        let mut covered = std::mem::take(&mut self.covered);
        let polled = match self.poll(&watched).await {
            Ok(polled) => polled,
            Err(CallError::NotNow(error)) => {
                debug!(target: STORE, session = %SessionId(self.id), %error, "the server is busy");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let looked = Looked {
            has_news: polled.news.iter().any(Option::is_some),
            was_told,
            is_still: polled.is_still && is_all,
            ahead: polled.ahead,
            took: sent.elapsed(),
        };
        covered.looked(&watched, polled.is_own_still && is_all, changes);
        self.covered = covered;
        self.fire(&watched, &polled.news);
        let next = sent + self.pace.polled(&looked) - LATE;
        Ok(Some(next.max(Instant::now())))
    }
}

#[cfg(test)]
mod tests;
