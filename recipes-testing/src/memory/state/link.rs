//! How the connections of one client are.
//!
//! | the connection | calls | news |
//! |---|---|---|
//! | is down | fail; what was sent may still arrive | are lost: the client compares what it watches |
//! | is mute | have no answer: the client has to notice | are lost |
//! | is up | are carried out, and answered in order | are sent |
//! | goes on | as well; the client knows of all that happened before | as well |

use std::collections::BTreeMap;
use std::mem;
use std::sync::Weak;
use std::task::Waker;
use std::time::Duration;

use recipes_keeper::{CallError, Loss, Shared};
use tokio::sync::watch;
use tokio::time::Instant;

use super::calls::Told;

/// A session, and the number of its connection.
pub(crate) type Over = (i64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    Down,
    /// Nothing gets through any more, and nobody says so.
    Mute,
    Up,
    GoesOn,
}

/// How the connections of a client are.
#[derive(Debug)]
pub(super) struct Link {
    /// Whose it is.
    pub(super) shared: Weak<Shared>,
    pub(super) cut: bool,
    pub(super) contact: Contact,
    /// The number of the present or last connection.
    pub(super) connection: u64,
    /// What ends it.
    pub(super) loss: watch::Sender<Option<Loss>>,
    /// Calls over it whose answers were not picked up, by number.
    pub(super) calls: BTreeMap<u64, Call>,
    pub(super) last_call: u64,
    /// When the latest answer or news are due. None may overtake another.
    pub(super) last_due: Option<Instant>,
    /// When the latest call in flight to the server is due.
    pub(super) last_arrival: Option<Instant>,
    /// Since when it goes on.
    pub(super) since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Call {
    /// The answer, and when it arrives.
    pub(super) answer: Option<(Result<Told, CallError>, Option<Instant>)>,
    pub(super) waker: Option<Waker>,
}

impl Link {
    pub(super) fn new(shared: Weak<Shared>) -> Self {
        Self {
            shared,
            cut: false,
            contact: Contact::Down,
            connection: 0,
            loss: watch::Sender::new(None),
            calls: BTreeMap::new(),
            last_call: 0,
            last_due: None,
            last_arrival: None,
            since: Instant::now(),
        }
    }

    /// Whether the client has this connection, as far as it knows.
    pub(super) fn is_its(&self, connection: u64) -> bool {
        self.contact != Contact::Down && self.connection == connection
    }

    pub(super) fn is_up(&self, connection: u64) -> bool {
        self.contact != Contact::Mute && self.is_its(connection)
    }

    /// When a message is due that takes so long.
    pub(super) fn next_due(&mut self, delay: Duration) -> Option<Instant> {
        if !delay.is_zero() || self.last_due.is_some() {
            self.last_due = self.last_due.max(Instant::now().checked_add(delay));
        }
        self.last_due
    }

    /// Nothing more comes over this connection, and no call says so.
    pub(super) fn go_mute(&mut self) {
        if self.contact != Contact::Down {
            self.contact = Contact::Mute;
            for call in self.calls.values_mut() {
                call.answer = None;
            }
        }
    }

    /// Nothing more comes over this connection. Returns whom to wake.
    pub(super) fn go_down(&mut self) -> Vec<Waker> {
        self.contact = Contact::Down;
        let calls = mem::take(&mut self.calls);
        calls.into_values().filter_map(|call| call.waker).collect()
    }
}
