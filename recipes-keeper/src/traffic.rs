//! The calls that are on their way over one connection.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::flight::{Flight, Landed, settle};
use crate::kept::Kept;

/// Calls that are answered one after the other.
pub(crate) struct Traffic {
    in_flight: FuturesUnordered<Flight>,
    /// When each was sent and how many listings it has, as far as they are not answered.
    unanswered: VecDeque<(Instant, usize)>,
    in_flight_max: usize,
    /// How many listings are on their way.
    listed: usize,
}

impl Traffic {
    /// There may be so many calls at once.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        Self {
            in_flight: FuturesUnordered::new(),
            unanswered: VecDeque::new(),
            in_flight_max,
            listed: 0,
        }
    }

    /// How many listings the next call may have, if there may be so many at once. None if there may
    /// be no call now.
    pub(crate) fn room(&self, listings_max: usize) -> Option<usize> {
        let room = listings_max.checked_sub(self.listed)?;
        (room > 0 && self.in_flight.len() < self.in_flight_max).then_some(room)
    }

    /// The call is sent when [`landed`](Self::landed) is polled next.
    pub(crate) fn push(&mut self, flight: Flight) {
        let listings = flight.listings();
        self.unanswered.push_back((flight.sent.at(), listings));
        self.listed += listings;
        self.in_flight.push(flight);
    }

    /// The next call that has an answer; none if no call is on its way. It may be dropped.
    pub(crate) async fn landed(&mut self) -> Option<Landed> {
        let landed = self.in_flight.next().await?;
        let answered = self.unanswered.pop_front();
        self.listed -= answered.map_or(0, |(_, listings)| listings);
        Some(landed)
    }

    /// Waits until all have landed, or one ends the use of the connection.
    pub(crate) async fn land(&mut self, kept: &Kept) {
        while let Some(landed) = self.landed().await {
            if settle(landed, kept).is_err() {
                return;
            }
        }
    }

    /// Whether a call has had no answer for longer than this.
    pub(crate) fn is_silent(&self, now: Instant, patience: Duration) -> bool {
        let first = self.unanswered.front();
        first.is_some_and(|(sent, _)| now > *sent + patience)
    }
}
