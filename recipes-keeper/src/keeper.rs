//! Keeps a session alive, over as many connections as it takes.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::{Fuse, FusedFuture, FutureExt};
use recipes_core::internal::log::SessionId;
use recipes_core::{Connection, EndReason, NodesError};
use tokio::sync::{oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::debug;

use crate::STORE;
use crate::answers::Trouble;
use crate::asked::Asked;
use crate::flight::{Flight, Over, settle};
use crate::kept::{Kept, NAMES_FIRST, Promise, Terms, doubted, quarantined};
use crate::owned::Owned;
use crate::patience::Patience;
use crate::queue::{Queue, Waiting};
use crate::resume::connected;
use crate::shared::Shared;
use crate::traffic::Traffic;
use crate::wire::{Caller, Loss, Open, Wire};

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
        patience: &Patience,
    ) -> Result<(Arc<Kept>, oneshot::Sender<()>), NodesError> {
        let shared = Arc::new(Shared::default());
        let connections = 1;
        shared.watches.count_on(connections);
        let wire = terms.open(&shared, connections, patience).await?;
        let open = Open {
            secret: secret.to_owned(),
            timeout: terms.session_timeout,
            run: wire.facts().run.clone(),
            // Nothing else says so: for how long a server runs does not tell when its keys were flushed, its schema
            // was dropped, or it was promoted.
            is_known: is_first && terms.is_new,
        };
        let opened = async {
            let opened = wire.open(open).await?;
            wire.subscribe(opened.id).await?;
            Ok(opened)
        };
        // A connection whose other end is gone may be open for long.
        let opened = patience.within(opened, |within| terms.unanswered(within));
        let opened = opened.await?;
        let promise = Promise {
            guarantee: wire.facts().guarantee,
            grants_from: quarantined(opened.quarantine),
        };
        let in_doubt_until = doubted(opened.doubt, terms.session_timeout);
        let (link, _) = watch::channel(Connection::Connected);
        let kept = Arc::new(Kept {
            id: opened.id,
            secret: secret.to_owned(),
            known_by: Mutex::new(vec![connections]),
            answered: AtomicU64::new(connections),
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
            trouble: Mutex::default(),
            in_doubt_until,
        });
        let (used, closed) = oneshot::channel();
        let keeper = Self {
            kept: Arc::clone(&kept),
            closed: closed.fuse(),
            connections,
        };
        wire.started(&kept.caller(wire.number()));
        tokio::spawn(keeper.run(wire));
        if kept.beats_apart {
            // Only beats end sessions that were silent. Who comes for a try has gone before its first.
            drop(kept.ask_beat().await);
        }
        Ok((kept, used))
    }

    async fn run(mut self, wire: Box<dyn Wire>) {
        // Also if the runtime drops this task.
        let _ends = End(Arc::clone(&self.kept));
        let mut wire: Arc<dyn Wire> = wire.into();
        loop {
            let why = match self.serve(&wire).await {
                Over::Lost(why) => why,
                Over::Expired => return,
                Over::Closed => {
                    self.close(&*wire).await;
                    return self.kept.end(EndReason::Closed);
                }
            };
            debug!(target: STORE, session = %SessionId(self.kept.id), %why, "connection given up");
            drop(wire);
            wire = match self.connect_again().await {
                Ok(wire) => wire.into(),
                Err(reason) => return self.kept.end(reason),
            };
        }
    }

    /// Serves requests over one connection.
    async fn serve(&mut self, wire: &Arc<dyn Wire>) -> Over {
        let kept = Arc::clone(&self.kept);
        kept.connect(wire).await;
        if self.closed.is_terminated() {
            return Over::Closed;
        }
        let over = self
            .serve_line(&kept, &**wire, &kept.caller(wire.number()))
            .await;
        if matches!(over, Over::Closed) {
            // What waits is still to be sent.
            return over;
        }
        // Who knows that the connection is lost and asks for something, waits for the next one.
        let given_up = kept.disconnect();
        if let Over::Lost(why) = &over {
            *kept.trouble() = Some(NodesError::Unknown(Arc::clone(why)));
            kept.link.send_replace(Connection::Disconnected);
        }
        // Only now, when whoever looks finds the connection lost, are its requests given up.
        drop(given_up);
        over
    }

    async fn serve_line(&mut self, kept: &Kept, wire: &dyn Wire, caller: &Arc<Caller>) -> Over {
        let timeout = kept.terms.session_timeout;
        let patience = timeout / 4;
        let mut beat = kept.beat();
        let mut beats = Traffic::default();
        let mut ticks = ticks(timeout, beat);
        let mut lost = wire.lost();
        loop {
            tokio::select! {
                biased;
                loss = &mut lost => return over(loss, kept),
                landed = kept.landed() => {
                    if let Err(over) = settle(landed, kept) {
                        return over;
                    }
                    if kept.beat() != beat {
                        beat = kept.beat();
                        ticks = self::ticks(timeout, beat);
                    }
                }
                landed = poll_fn(|cx| beats.poll_landed(cx)) => {
                    if let Err(over) = settle(landed, kept) {
                        return over;
                    }
                }
                () = kept.may_send() => drop(kept.send()),
                // One at a time. Whoever asks meanwhile shares the next.
                () = kept.beats.arrived(Waiting::may_leave), if beats.is_empty() => {
                    let flight = Flight::of_beats(wire, caller, kept.beats.take(0));
                    beats.send(flight, &waker().await);
                }
                now = ticks.tick() => {
                    let (last, is_silent) = kept.last_sent(now, patience);
                    if is_silent || beats.is_silent(now, patience) {
                        return Over::Lost(Arc::new(Trouble::Silent));
                    }
                    kept.give_spares_up(now);
                    if !kept.beats_apart && last.is_some_and(|last| now >= last + beat) {
                        // Nobody waits for the answer; that there is one counts.
                        drop(kept.ask(Asked::Beat));
                    }
                }
                _ = &mut self.closed => return Over::Closed,
            }
        }
    }

    /// Connects until the session goes on, or is over.
    async fn connect_again(&mut self) -> Result<Box<dyn Wire>, EndReason> {
        let connected = connected(&self.kept, &mut self.connections);
        tokio::pin!(connected);
        tokio::select! {
            biased;
            _ = &mut self.closed => {}
            connected = &mut connected => return connected,
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
            // The client skips a request that nobody waits for, if it has not been written yet.
            while kept.land().await.is_ok() {
                if !kept.send() {
                    break;
                }
            }
            let caller = kept.caller(wire.number());
            while wire.close(&caller).await.unwrap_or(false) {}
        };
        // Without an answer the session ends by itself.
        let patience = kept.terms.session_timeout / 4;
        let is_closed = tokio::time::timeout(patience, closed).await.is_ok();
        if !is_closed {
            debug!(target: STORE, session = %SessionId(kept.id), "session was not closed; it will expire");
        }
    }
}

/// Why a connection is not served any more that was lost.
fn over(loss: Loss, kept: &Kept) -> Over {
    match loss {
        Loss::Connection => Over::Lost(Arc::new(Trouble::Lost)),
        Loss::Session => {
            kept.end(EndReason::Expired);
            Over::Expired
        }
    }
}

/// Wakes this task.
async fn waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

/// When to look whether something is to be done.
fn ticks(timeout: Duration, beat: Duration) -> Interval {
    let mut ticks = interval((timeout / 24).min(beat / 2));
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
        drop(kept.disconnect());
    }
}

#[cfg(test)]
mod tests;
