//! Keeps a session alive, over as many connections as it takes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Fuse, FusedFuture, FutureExt};
use futures::stream::FuturesUnordered;
use recipes_core::{Connection, EndReason, NodesError};
use redis::Value;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tracing::debug;

use crate::STORE;
use crate::answers::{Parts, Trouble, refusal_of_session};
use crate::asked::Asked;
use crate::flight::{Flight, Over, listings, settle};
use crate::kept::{Kept, NAMES_FIRST, Promise, Terms, micros, quarantined};
use crate::library::Function;
use crate::moment::Moment;
use crate::owned::Owned;
use crate::queue::Queue;
use crate::resume::connected;
use crate::watches::Watches;
use crate::wire::{IN_FLIGHT_MAX, Wire};

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
        let watches = Arc::new(Watches::default());
        let connections = 1;
        watches.count_on(connections);
        let wire = Wire::open(&terms.route, &watches, connections).await?;
        let timeout = micros(terms.session_timeout);
        // Then whoever held a lock in an earlier run has noticed long ago. When a server was promoted
        // is not known.
        let is_old = wire.facts.uptime_s > terms.session_timeout.as_secs().saturating_add(1)
            && !wire.facts.was_replica;
        let mut open = wire.call(Function::Open);
        open.arg(secret)
            .arg(timeout)
            .arg(&wire.facts.run)
            .arg(i32::from(is_first && (terms.is_new || is_old)));
        let sent = Moment::now();
        let opened = wire.send(open).await.map_err(refusal_of_session)?;
        let mut opened = Parts::of(opened)?;
        let id = opened.number()?;
        let promise = Promise {
            guarantee: wire.facts.guarantee,
            grants_from: quarantined(opened.number()?),
        };
        wire.subscribe(&id.to_string()).await?;
        let (link, _) = watch::channel(Connection::Connected);
        let kept = Arc::new(Kept {
            id,
            name: format!("{id}:{timeout}:{secret}"),
            known_by: Mutex::new(vec![connections]),
            step: AtomicU64::default(),
            names: AtomicUsize::new(NAMES_FIRST),
            terms,
            queue: Queue::default(),
            watches,
            link,
            owned: Mutex::new(Owned::on(&wire.facts.run)),
            heard: Mutex::new(sent),
            promise: Mutex::new(promise),
        });
        let (used, closed) = oneshot::channel();
        let keeper = Self {
            kept: Arc::clone(&kept),
            closed: closed.fuse(),
            connections,
        };
        tokio::spawn(keeper.run(wire));
        Ok((kept, used))
    }

    async fn run(mut self, mut wire: Wire) {
        // Also if the runtime drops this task.
        let _ends = End(Arc::clone(&self.kept));
        loop {
            let why = match self.serve(&wire).await {
                Over::Lost(trouble) => trouble.to_string(),
                Over::Refused(error) => error.to_string(),
                Over::Expired => return,
                Over::Closed => {
                    self.close(&wire).await;
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
    async fn serve(&mut self, wire: &Wire) -> Over {
        if self.closed.is_terminated() {
            return Over::Closed;
        }
        let kept = Arc::clone(&self.kept);
        let timeout = kept.terms.session_timeout;
        let patience = timeout / 4;
        let mut beat = kept.beat();
        // The replicas confirm one call after the other.
        let in_flight_max = match kept.terms.replicas {
            0 => IN_FLIGHT_MAX,
            _ => 1,
        };
        let mut in_flight = FuturesUnordered::new();
        // When each was sent and how many listings it has, as far as they are not answered.
        let mut unanswered: VecDeque<(Instant, usize)> = VecDeque::new();
        let mut listed = 0;
        let mut last = Instant::now();
        let mut ticks = ticks(timeout, beat);
        let over = loop {
            tokio::select! {
                biased;
                () = wire.lost() => break Over::Lost(Trouble::Lost),
                Some(landed) = in_flight.next(), if !in_flight.is_empty() => {
                    listed -= unanswered.pop_front().map_or(0, |(_, listings)| listings);
                    if let Err(over) = settle(landed, &kept) {
                        break over;
                    }
                    if kept.beat() != beat {
                        beat = kept.beat();
                        ticks = self::ticks(timeout, beat);
                    }
                }
                () = kept.queue.arrived(),
                    if in_flight.len() < in_flight_max && listed < kept.listings_max() =>
                {
                    let requests = kept.queue.take(kept.listings_max() - listed);
                    let listings = listings(&requests);
                    let flight = Flight::send(&kept, wire, requests);
                    last = flight.sent.at();
                    unanswered.push_back((last, listings));
                    listed += listings;
                    in_flight.push(flight.land());
                }
                now = ticks.tick() => {
                    if unanswered.front().is_some_and(|(sent, _)| now > *sent + patience) {
                        break Over::Lost(Trouble::Silent);
                    }
                    kept.give_spares_up(now);
                    if now >= last + beat {
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
            let landed = async {
                while let Some(landed) = in_flight.next().await {
                    if settle(landed, &kept).is_err() {
                        return;
                    }
                }
            };
            drop(tokio::time::timeout(patience, landed).await);
        }
        // Only now, when whoever looks finds the connection lost, are its requests given up.
        drop(in_flight);
        over
    }

    /// Connects until the session goes on, or is over.
    async fn connect_again(&mut self) -> Result<Wire, EndReason> {
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
    async fn close(&self, wire: &Wire) {
        let kept = &self.kept;
        let closed = async {
            loop {
                let requests = kept.queue.take(kept.listings_max());
                if requests.is_empty() {
                    break;
                }
                let landed = Flight::send(kept, wire, requests).land().await;
                if settle(landed, kept).is_err() {
                    return;
                }
            }
            loop {
                let mut close = wire.call(Function::Close);
                close.arg(kept.name_on(wire));
                match wire.send(close).await {
                    Ok(Value::Int(left)) if left > 0 => {}
                    _ => return,
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
