//! The calls that are on their way over one connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use crate::flight::{Flight, Landed};
use crate::kept::Kept;
use crate::queue::Request;
use crate::wire::{Caller, Wire};

/// Calls that are answered one after the other.
#[derive(Default)]
pub(crate) struct Traffic {
    in_flight: VecDeque<Flight>,
    /// How many listings are on their way.
    listed: usize,
}

impl Traffic {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Sends a call. `keeper` is woken when it has landed.
    pub(crate) fn send(&mut self, mut flight: Flight, keeper: &Waker) {
        // One that cannot be sent lands at once, and wakes nobody.
        if flight.poll(&mut Context::from_waker(keeper)) {
            keeper.wake_by_ref();
        }
        self.listed += flight.listings();
        self.in_flight.push_back(flight);
    }

    /// The next call that has an answer.
    pub(crate) fn poll_landed(&mut self, cx: &mut Context<'_>) -> Poll<Landed> {
        let Some(first) = self.in_flight.front_mut() else {
            return Poll::Pending;
        };
        if !first.poll(cx) {
            return Poll::Pending;
        }
        let first = self.in_flight.pop_front();
        self.listed -= first.as_ref().map_or(0, Flight::listings);
        match first.and_then(Flight::landed) {
            Some(landed) => Poll::Ready(landed),
            None => Poll::Pending,
        }
    }

    /// Whether a call has had no answer for longer than this.
    pub(crate) fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        let first = self.in_flight.front();
        first.is_some_and(|it| now > it.sent.at() + patience)
    }
}

/// The connection over which requests leave.
pub(crate) struct Line {
    wire: Arc<dyn Wire>,
    caller: Arc<Caller>,
    pub(crate) traffic: Traffic,
    /// When the last call was sent.
    pub(crate) last: Instant,
    /// Wakes the keeper, which hands out the answers.
    keeper: Waker,
}

impl Line {
    pub(crate) fn new(kept: &Kept, wire: &Arc<dyn Wire>, keeper: &Waker) -> Self {
        Self {
            wire: Arc::clone(wire),
            caller: kept.caller(wire.number()),
            traffic: Traffic::default(),
            last: Instant::now(),
            keeper: keeper.clone(),
        }
    }

    /// Whether a request leaves as soon as it is asked for. While others are on their way, what is
    /// asked for meanwhile leaves together, and the keeper sends it.
    pub(crate) fn is_free(&self) -> bool {
        self.traffic.is_empty() && self.wire.leaves_anywhere()
    }

    /// How many listings the next call may have, if there may be so many at once. None if there may
    /// be no call now.
    pub(crate) fn room(&self, kept: &Kept) -> Option<usize> {
        let Traffic { in_flight, listed } = &self.traffic;
        let room = kept.listings_max(&*self.wire).checked_sub(*listed)?;
        (room > 0 && in_flight.len() < self.wire.in_flight_max()).then_some(room)
    }

    pub(crate) fn send(&mut self, kept: &Kept, requests: Vec<Request>) {
        let flight = Flight::of_requests(kept, &*self.wire, &self.caller, requests);
        self.last = flight.sent.at();
        self.traffic.send(flight, &self.keeper);
    }

    pub(crate) fn poll_landed(&mut self, cx: &mut Context<'_>) -> Poll<Landed> {
        if !self.keeper.will_wake(cx.waker()) {
            self.keeper.clone_from(cx.waker());
        }
        self.traffic.poll_landed(cx)
    }
}
