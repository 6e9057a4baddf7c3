//! Keeps a session alive, over as many connections as it takes.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Fuse, FusedFuture, FutureExt};
use recipes_core::{Connection, EndReason, NodesError};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tracing::debug;

use crate::STORE;
use crate::answers::{Parts, Trouble};
use crate::asked::Asked;
use crate::flight::{Flight, Over, settle};
use crate::kept::{Kept, NAMES_FIRST, Promise, Terms, quarantined};
use crate::moment::Moment;
use crate::owned::Owned;
use crate::queue::Queue;
use crate::resume::connected;
use crate::shared::Shared;
use crate::traffic::Traffic;
use crate::wire::{Function, Loss, Wire, Words, micros};

/// Calls of beats that may be on their way. Whoever asks meanwhile shares the next.
const BEATS_MAX: usize = 1;

/// What keeps one session. It ends with the session.
pub(crate) struct Keeper {
    kept: Arc<Kept>,
    /// Fails when nobody uses the session any more.
    closed: Fuse<oneshot::Receiver<()>>,
    connections: u64,
}

impl Keeper {
    /// Opens a session. Returns it with what must live as long as somebody uses it.
    ///
    /// If it is not the first, there was a store. One that knows of nothing has then forgotten it.
    pub(crate) async fn open(
        terms: Terms,
        is_first: bool,
        secret: &str,
    ) -> Result<(Arc<Kept>, oneshot::Sender<()>), NodesError> {
        let shared = Arc::new(Shared::default());
        let connections = 1;
        shared.watches.count_on(connections);
        let wire = terms.open(&shared, connections).await?;
        let timeout = micros(terms.session_timeout);
        // Then whoever held a lock in an earlier run has noticed long ago. When a server was promoted
        // is not known.
        let is_old = wire.facts().uptime_s > terms.session_timeout.as_secs().saturating_add(1)
            && !wire.facts().was_replica;
        let mut open = Words::default();
        open.arg(secret)
            .number(timeout)
            .arg(&wire.facts().run)
            .number(i32::from(is_first && (terms.is_new || is_old)));
        let sent = Moment::now();
        let opened = wire.call(Function::Open, open).await?;
        shared.was_heard(sent);
        let mut opened = Parts::of(opened)?;
        let id = opened.number()?;
        let promise = Promise {
            guarantee: wire.facts().guarantee,
            grants_from: quarantined(opened.number()?),
        };
        wire.subscribe(id).await?;
        let (link, _) = watch::channel(Connection::Connected);
        let kept = Arc::new(Kept {
            id,
            name: format!("{id}:{timeout}:{secret}"),
            known_by: Mutex::new(vec![connections]),
            step: AtomicU64::default(),
            names: AtomicUsize::new(NAMES_FIRST),
            terms,
            queue: Queue::default(),
            beats: Queue::default(),
            beats_apart: wire.beats_apart(),
            shared,
            link,
            owned: Mutex::new(Owned::on(&wire.facts().run)),
            promise: Mutex::new(promise),
        });
        let (used, closed) = oneshot::channel();
        let keeper = Self {
            kept: Arc::clone(&kept),
            closed: closed.fuse(),
            connections,
        };
        wire.started(&kept.started(&*wire));
        tokio::spawn(keeper.run(wire));
        Ok((kept, used))
    }

    async fn run(mut self, mut wire: Box<dyn Wire>) {
        // Also if the runtime drops this task.
        let _ends = End(Arc::clone(&self.kept));
        loop {
            let why = match self.serve(&*wire).await {
                Over::Lost(trouble) => trouble.to_string(),
                Over::Refused(error) => error.to_string(),
                Over::Expired => return,
                Over::Closed => {
                    self.close(&*wire).await;
                    return self.kept.end(EndReason::Closed);
                }
            };
            debug!(target: STORE, session = self.kept.id, why, "connection given up");
            drop(wire);
            wire = match self.connect_again().await {
                Ok(wire) => wire,
                Err(reason) => return self.kept.end(reason),
            };
        }
    }

    /// Serves requests over one connection.
    async fn serve(&mut self, wire: &dyn Wire) -> Over {
        if self.closed.is_terminated() {
            return Over::Closed;
        }
        let kept = Arc::clone(&self.kept);
        let timeout = kept.terms.session_timeout;
        let patience = timeout / 4;
        let mut beat = kept.beat();
        let mut requests = Traffic::new(wire.in_flight_max());
        // Without any, the queue of beats is not looked at.
        let mut beats = Traffic::new(if kept.beats_apart { BEATS_MAX } else { 0 });
        let mut last = Instant::now();
        let mut ticks = ticks(timeout, beat);
        let mut lost = wire.lost();
        let over = loop {
            let room = requests.room(kept.listings_max(wire));
            tokio::select! {
                biased;
                loss = &mut lost => break over(loss, &kept),
                Some(landed) = requests.landed() => {
                    if let Err(over) = settle(landed, &kept) {
                        break over;
                    }
                    if kept.beat() != beat {
                        beat = kept.beat();
                        ticks = self::ticks(timeout, beat);
                    }
                }
                Some(landed) = beats.landed() => {
                    if let Err(over) = settle(landed, &kept) {
                        break over;
                    }
                }
                () = kept.queue.arrived(), if room.is_some() => {
                    let waiting = kept.queue.take(room.unwrap_or_default());
                    let flight = Flight::of_requests(&kept, wire, waiting);
                    last = flight.sent.at();
                    requests.push(flight);
                }
                () = kept.beats.arrived(), if beats.room(1).is_some() => {
                    beats.push(Flight::of_beats(&kept, wire, kept.beats.take(0)));
                }
                now = ticks.tick() => {
                    if requests.is_silent(now, patience) || beats.is_silent(now, patience) {
                        break Over::Lost(Trouble::Silent);
                    }
                    kept.give_spares_up(now);
                    if now >= last + beat && !kept.beats_apart {
                        // Nobody waits for the answer; that there is one counts.
                        drop(kept.queue.ask(Asked::Beat));
                    }
                }
                _ = &mut self.closed => break Over::Closed,
            }
        };
        if matches!(over, Over::Lost(_) | Over::Refused(_)) {
            kept.link.send_replace(Connection::Disconnected);
        }
        if matches!(over, Over::Closed) {
            // The client skips a request that nobody waits for, if it has not been written yet.
            let landed = requests.land(&kept);
            drop(tokio::time::timeout(patience, landed).await);
        }
        // Only now, when whoever looks finds the connection lost, are its requests given up.
        drop((requests, beats));
        over
    }

    /// Connects until the session goes on, or is over.
    async fn connect_again(&mut self) -> Result<Box<dyn Wire>, EndReason> {
        let connected = connected(&self.kept, &mut self.connections);
        tokio::pin!(connected);
        if !self.closed.is_terminated() {
            tokio::select! {
                biased;
                _ = &mut self.closed => {}
                connected = &mut connected => return connected,
            }
        }
        // What waits is still to be sent, and the nodes are to go. After the timeout they have gone
        // without us.
        let patience = self.kept.terms.session_timeout;
        let connected = tokio::time::timeout(patience, connected).await;
        connected.unwrap_or(Err(EndReason::Closed))
    }

    /// Sends what waits, and closes the session, so that its nodes go.
    async fn close(&self, wire: &dyn Wire) {
        let kept = &self.kept;
        let closed = async {
            loop {
                let requests = kept.queue.take(kept.listings_max(wire));
                if requests.is_empty() {
                    break;
                }
                let landed = Flight::of_requests(kept, wire, requests).await;
                if settle(landed, kept).is_err() {
                    return;
                }
            }
            loop {
                let mut close = Words::default();
                close.arg(kept.name_on(wire));
                let left = wire.call(Function::Close, close).await;
                if !left.is_ok_and(|left| left.number() > Some(0)) {
                    return;
                }
            }
        };
        // Without an answer the session ends by itself.
        let patience = kept.terms.session_timeout / 4;
        if tokio::time::timeout(patience, closed).await.is_err() {
            debug!(target: STORE, session = kept.id, "session was not closed; it will expire");
        }
    }
}

/// Why a connection is not served any more that was lost.
fn over(loss: Loss, kept: &Kept) -> Over {
    match loss {
        Loss::Connection => Over::Lost(Trouble::Lost),
        Loss::Session => {
            kept.end(EndReason::Expired);
            Over::Expired
        }
    }
}

/// When to look whether something is to be done.
fn ticks(timeout: Duration, beat: Duration) -> Interval {
    let every = (timeout / 24).min(beat / 2).max(Duration::from_millis(1));
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Ends the session when its keeper is gone.
struct End(Arc<Kept>);

impl Drop for End {
    fn drop(&mut self) {
        let Self(kept) = self;
        if !matches!(*kept.link.borrow(), Connection::Ended(_)) {
            kept.end(EndReason::Closed);
        }
    }
}

#[cfg(test)]
mod tests;
