//! Requests in flight to the server.

use std::collections::BTreeMap;
use std::mem;

use recipes_core::EndReason;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::State;
use super::calls::Ask;
use super::link::Over;
use super::request::Call;
use super::session::Stage;
use crate::memory::error::MemoryError;

/// What arrives.
#[derive(Debug)]
enum Parcel {
    Request(u64),
    /// The client closes the session.
    Close,
    /// On Redis: the connection, the number of the call.
    Call(u64, u64, Ask),
}

/// All requests in flight to the server, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    last: u64,
    parcels: BTreeMap<(Instant, u64), (i64, Parcel)>,
}

impl Arrivals {
    fn add(&mut self, due: Instant, session: i64, parcel: Parcel) {
        self.last += 1;
        self.parcels.insert((due, self.last), (session, parcel));
    }

    fn take_due(&mut self, now: Instant) -> Option<(i64, Parcel)> {
        let first = self.parcels.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn forget(&mut self, session: i64) {
        self.parcels.retain(|_, (whose, _)| *whose != session);
    }

    /// The calls of a session, which will not arrive.
    fn take_calls(&mut self, session: i64) -> Vec<Ask> {
        let (taken, kept) = mem::take(&mut self.parcels)
            .into_iter()
            .partition(|(_, (whose, _))| *whose == session);
        self.parcels = kept;
        let taken: BTreeMap<_, _> = taken;
        let calls = taken.into_values().filter_map(|(_, parcel)| match parcel {
            Parcel::Call(_, _, ask) => Some(ask),
            Parcel::Request(_) | Parcel::Close => None,
        });
        calls.collect()
    }
}

impl State {
    /// Sends a request of a connected session to the server.
    pub(crate) fn send(&mut self, session: i64, number: u64, call: Call) {
        let Some(due) = self.next_arrival(session) else {
            return self.perform(session, number, &call);
        };
        let record = self.sessions.get_mut(&session);
        if let Some(flight) = record.and_then(|record| record.flights.get_mut(&number)) {
            flight.stage = Stage::Sent(call);
            self.arrivals.add(due, session, Parcel::Request(number));
            self.look_again(due);
        }
    }

    /// Sends the last message of a connected session: the client closes it.
    pub(crate) fn send_close(&mut self, session: i64) {
        match self.next_arrival(session) {
            None if self.is_behind(session) => {}
            None => self.end(session, EndReason::Closed),
            Some(due) => {
                self.arrivals.add(due, session, Parcel::Close);
                self.look_again(due);
            }
        }
    }

    /// Sends a call of a keeper.
    pub(crate) fn send_call(
        &mut self,
        due: Instant,
        (session, connection): Over,
        (number, ask): (u64, Ask),
    ) {
        let parcel = Parcel::Call(connection, number, ask);
        self.arrivals.add(due, session, parcel);
        self.look_again(due);
    }

    /// The calls of a session that have not arrived, and now never do.
    pub(crate) fn take_calls(&mut self, session: i64) -> Vec<Ask> {
        self.arrivals.take_calls(session)
    }

    /// Lets everything arrive that is due by now, unless the servers stand still.
    pub(crate) fn let_arrive(&mut self, now: Instant) {
        if self.paused {
            return;
        }
        // The loop ends: what is sent meanwhile is due later, or carried out immediately.
        while let Some((session, parcel)) = self.arrivals.take_due(now) {
            match parcel {
                Parcel::Request(number) => {
                    let record = self.sessions.get(&session);
                    let flight = record.and_then(|record| record.flights.get(&number));
                    if let Some(Stage::Sent(call)) = flight.map(|flight| &flight.stage) {
                        let call = call.clone();
                        self.perform(session, number, &call);
                    }
                }
                // A write: the deposed leader cannot carry it out.
                Parcel::Close if self.is_behind(session) => {}
                Parcel::Close => self.end(session, EndReason::Closed),
                Parcel::Call(connection, number, ask) => {
                    self.perform_call((session, connection), number, &ask);
                }
            }
        }
    }

    /// The connection breaks. Of the requests in flight, the first few still arrive and their
    /// replies are lost. The others never arrive.
    pub(crate) fn break_off(&mut self, session: i64) {
        self.arrivals.forget(session);
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        record.last_arrival = None;
        let (sent, stuck, behind) = (record.sent(), record.stuck(), record.behind);
        // All of them, some or none. If there is none, nothing is drawn.
        let arriving = match sent.len() {
            0 => 0,
            count => usize::try_from(self.random.below(count as u64 + 1)).unwrap_or(0),
        };
        for (_, call) in sent.iter().take(arriving) {
            if call.is_write() && !behind {
                drop(self.carry_out(session, call));
            }
        }
        for (number, _) in sent {
            self.fail(session, number, MemoryError::ReplyLost);
        }
        for number in stuck {
            self.fail(session, number, MemoryError::ReplyLost);
        }
    }

    fn next_arrival(&mut self, session: i64) -> Option<Instant> {
        let delay = self.faults.request_delay(&mut self.random);
        let (now, record) = (Instant::now(), self.sessions.get_mut(&session)?);
        let ahead = record.last_arrival.filter(|due| *due > now);
        if delay.is_zero() && ahead.is_none() && !self.paused {
            return None;
        }
        let due = ahead.max(now.checked_add(delay)).unwrap_or(now);
        record.last_arrival = Some(due);
        Some(due)
    }

    /// Spawns a task that lets the request arrive when it is due. Without a runtime, it arrives at
    /// the next access to the ensemble.
    pub(crate) fn look_again(&self, due: Instant) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let shared = self.shared.clone();
        runtime.spawn(async move {
            sleep_until(due).await;
            if let Some(shared) = shared.upgrade() {
                // Timers are a millisecond coarse.
                shared.with(|state| state.let_arrive(due.max(Instant::now())));
            }
        });
    }
}
