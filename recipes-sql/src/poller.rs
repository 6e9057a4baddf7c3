//! Asks for the news of what a session watches, and tells them.

use std::convert::Infallible;
use std::time::Duration;

use recipes_core::NodeEvent;
use recipes_keeper::{CallError, Loss, Rewatch, Watches};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::STORE;
use crate::aside::{Aside, Polled};
use crate::bell::Bell;
use crate::pace::{Looked, Pace};
use crate::sure::Sure;

/// Between two looks whether anything is watched.
const IDLE: Duration = Duration::from_millis(250);
/// Before news of the session's own changes are asked for.
const OWN: Duration = Duration::from_millis(2);
/// Timers are late by up to a millisecond, half of it on average.
const LATE: Duration = Duration::from_micros(500);
/// So many watches whose news were told without a look the server need not forget at once.
const TOLD_MAX: usize = 64;
/// Before a poll is sent again that the server had no time for.
const BUSY: Duration = Duration::from_millis(20);

/// Tells the news of session `id` as those of connection `number`. Completes when that is lost.
pub(crate) async fn tell(
    aside: &dyn Aside,
    watches: &Watches,
    id: i64,
    number: u64,
    bell: &Bell,
    rings: bool,
) -> Loss {
    let told = Poller {
        aside,
        watches,
        id,
        number,
        bell,
        pace: Pace::new(rings),
        sure: Sure::default(),
        told: Vec::new(),
        must_look: false,
    };
    match told.run().await {
        Ok(never) => match never {},
        Err(error) => {
            debug!(target: STORE, session = id, ?error, "no news");
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
    sure: Sure,
    /// Watches whose news were told without a look. The server still has them.
    told: Vec<Rewatch>,
    /// There may be news that only a look tells, and that come first: somebody has rung, or this session has
    /// changed nodes, since the last look at all that is watched.
    must_look: bool,
}

impl Poller<'_> {
    async fn run(mut self) -> Result<Infallible, CallError> {
        let mut next = Instant::now();
        // Ends with the connection.
        loop {
            let was_told = self.wait(&mut next).await;
            let asked = self.bell.looks();
            let (watched, is_all) = self.watches.confirmed_of_all();
            if watched.is_empty() && self.told.is_empty() {
                // A watch may be set whose answer nobody has read yet.
                next = Instant::now() + self.pace.polled(&Looked::default()).min(IDLE);
            } else {
                let Some(looked) = self.look(watched, was_told, is_all).await? else {
                    next = Instant::now() + BUSY;
                    continue;
                };
                next = looked;
            }
            // The ring may have been for a watch whose answer nobody has read yet.
            self.must_look &= !is_all;
            self.bell.looked(asked);
        }
    }

    /// Waits for the next look, which is not later than `next`. Returns whether somebody has called for it.
    async fn wait(&mut self, next: &mut Instant) -> bool {
        let mut was_told = false;
        // Ends with the time.
        while let Ok(signals) = timeout_at(*next, self.bell.signalled()).await {
            self.sure.created(&signals.created);
            if signals.is_rung || !signals.gone.is_empty() {
                self.pace.rung();
            }
            if signals.has_watched {
                *next = (*next).min(Instant::now() + self.pace.watched());
            }
            if signals.has_changed {
                // Most often nobody watches the node in a moment: it was that of a lock that is
                // being released.
                *next = (*next).min(Instant::now() + OWN);
            }
            self.must_look |= signals.is_rung || signals.has_changed;
            let is_gone = !signals.gone.is_empty() || !signals.left.is_empty();
            was_told |= signals.is_rung || signals.has_changed || is_gone;
            if signals.is_rung || signals.is_asked {
                self.must_look |= is_gone;
                break;
            }
            // This session may be deleting a node of its own just now.
            let is_alone = !self.must_look && !signals.is_deleting;
            let gone = [signals.left, signals.gone].concat();
            if is_gone && !(is_alone && self.tell_alone(&gone)) {
                self.must_look = true;
                break;
            }
        }
        was_told
    }

    /// Tells that the nodes of these watches are gone, unless there may be news that must be told first.
    fn tell_alone(&mut self, numbers: &[u64]) -> bool {
        let sure = &self.sure;
        let alone = self.watches.told_alone(self.id, numbers, |it| sure.is(it));
        let Some(told) = alone else {
            return false;
        };
        for Rewatch { number, path, .. } in &told {
            self.watches
                .fire(self.number, path, *number, NodeEvent::Deleted);
        }
        self.told.extend(told);
        true
    }

    /// Returns when to look next; `None` if the server had no time.
    async fn look(
        &mut self,
        mut watched: Vec<Rewatch>,
        was_told: bool,
        is_all: bool,
    ) -> Result<Option<Instant>, CallError> {
        let sent = Instant::now();
        let count = watched.len();
        // With those that were told before, so that the server forgets them. Nobody waits for their news.
        if watched.is_empty() || self.told.len() >= TOLD_MAX {
            watched.append(&mut self.told);
        }
        let polled = match self.aside.poll(&watched, self.pace.wants_ahead()).await {
            Ok(polled) => polled,
            Err(CallError::NotNow(error)) => {
                debug!(target: STORE, session = self.id, %error, "the server is busy");
                self.told.extend(watched.split_off(count));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        watched.truncate(count);
        self.sure.looked(&watched, polled.is_still && is_all);
        let looked = Looked {
            has_news: polled.news.iter().take(count).any(Option::is_some),
            was_told,
            is_still: polled.is_still && is_all,
            ahead: polled.ahead,
            took: sent.elapsed(),
        };
        for (watch, event) in in_order(&watched, &polled, self.id) {
            let Rewatch { number, path, .. } = watch;
            self.watches.fire(self.number, path, *number, event);
        }
        let next = sent + self.pace.polled(&looked) - LATE;
        Ok(Some(next.max(Instant::now())))
    }
}

/// The news in the order in which they are told: those of the session's own nodes first. All are of one
/// moment, so whoever hears that the node ahead has gone has heard of the loss of its own.
fn in_order<'a>(watched: &'a [Rewatch], polled: &Polled, id: i64) -> Vec<(&'a Rewatch, NodeEvent)> {
    let news = watched.iter().zip(&polled.news);
    let mut news: Vec<_> = news
        .filter_map(|(watch, event)| Some((watch, (*event)?)))
        .collect();
    // Stable: otherwise by their numbers.
    news.sort_by_key(|(watch, _)| watch.seen.owner != id);
    news
}

#[cfg(test)]
mod tests {
    use recipes_keeper::Seen;

    use super::*;

    #[test]
    fn news_of_own_nodes_are_told_first() {
        let watch = |number, owner| Rewatch {
            number,
            path: format!("/a/{number}"),
            seen: Seen {
                czxid: 1,
                mzxid: 1,
                owner,
            },
        };
        let watched = [
            watch(1, 8),
            watch(2, 7),
            watch(3, 8),
            watch(4, 7),
            watch(5, 7),
        ];
        let (deleted, changed) = (Some(NodeEvent::Deleted), Some(NodeEvent::Changed));
        let polled = Polled {
            news: vec![deleted, deleted, changed, None, changed],
            ..Polled::default()
        };
        let told = in_order(&watched, &polled, 7);
        let told: Vec<_> = told.iter().map(|(watch, _)| watch.number).collect();
        assert_eq!(told, [2, 5, 1, 3]);
    }
}
