//! The life of requests: answered, picked up, abandoned.

use std::collections::btree_map::Entry;
use std::mem;
use std::task::{Poll, Waker};

use recipes_core::NodesError;
use tokio::time::Instant;

use super::State;
use super::request::{Answer, Outcome, failed};
use super::session::{Delivery, Stage};

impl State {
    /// Gives a request its outcome.
    pub(crate) fn answer(
        &mut self,
        session: i64,
        number: u64,
        outcome: Outcome,
        delivery: Delivery,
    ) {
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        let Entry::Occupied(mut entry) = record.flights.entry(number) else {
            return;
        };
        self.wakers.extend(entry.get_mut().waker.take());
        let before = if entry.get().wanted {
            mem::replace(
                &mut entry.get_mut().stage,
                Stage::Answered(outcome, delivery),
            )
        } else {
            entry.remove();
            Stage::Answered(outcome, delivery)
        };
        self.discard(&before);
    }

    /// Leaves a request without an answer until the connection ends.
    pub(crate) fn never_answer(&mut self, session: i64, number: u64) {
        let record = self.sessions.get_mut(&session);
        if let Some(flight) = record.and_then(|record| record.flights.get_mut(&number)) {
            flight.stage = Stage::Stuck;
        }
    }

    /// Fails a request on the client's side.
    pub(crate) fn fail(&mut self, session: i64, number: u64, error: impl Into<NodesError>) {
        self.answer(session, number, Err(failed(error)), Delivery::default());
    }

    /// When the reply to a request is due.
    pub(crate) fn poll_due(
        &mut self,
        session: i64,
        number: u64,
        waker: &Waker,
    ) -> Poll<Option<Instant>> {
        let record = self.sessions.get_mut(&session);
        let Some(flight) = record.and_then(|record| record.flights.get_mut(&number)) else {
            return Poll::Ready(None);
        };
        self.retired.extend(flight.waker.replace(waker.clone()));
        match flight.stage {
            Stage::Queued(_) | Stage::Sent(_) | Stage::Stuck => Poll::Pending,
            Stage::Answered(_, delivery) => Poll::Ready(delivery.due),
        }
    }

    /// Picks up a reply. Replies arrive in order, so all earlier ones have arrived as well.
    pub(crate) fn collect(&mut self, session: i64, number: u64) -> Outcome {
        let record = self.sessions.get_mut(&session);
        let flight = record.and_then(|record| {
            let flight = record.flights.remove(&number)?;
            // An answer that the client gave itself does not prove that a server is alive.
            if matches!(flight.stage, Stage::Answered(_, delivery) if delivery.zxid > 0) {
                record.arrived = record.arrived.max(number);
            }
            Some(flight)
        });
        let Some(flight) = flight else {
            return Err(failed(NodesError::SessionEnded));
        };
        self.retired.extend(flight.waker);
        let outcome = match flight.stage {
            Stage::Answered(outcome, delivery) => {
                self.note_known(session, delivery.zxid);
                outcome
            }
            Stage::Queued(_) | Stage::Sent(_) | Stage::Stuck => {
                Err(failed(NodesError::SessionEnded))
            }
        };
        self.forget_if_done(session);
        outcome
    }

    /// Forgets a reply that has no waiter any more.
    pub(crate) fn abandon(&mut self, session: i64, number: u64) {
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        let Entry::Occupied(mut entry) = record.flights.entry(number) else {
            return;
        };
        self.retired.extend(entry.get_mut().waker.take());
        if !matches!(entry.get().stage, Stage::Answered(..)) {
            entry.get_mut().wanted = false;
            return;
        }
        let flight = entry.remove();
        self.discard(&flight.stage);
        self.forget_if_done(session);
    }

    fn discard(&mut self, stage: &Stage) {
        if let Stage::Answered(Ok(Answer::Watched(Some((.., number)))), _) = stage {
            let waker = self.watches.remove(*number);
            self.retired.extend(waker);
        }
    }
}
