//! One session, as the ensemble and its client together see it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use recipes_core::{Connection, EndReason, Reliant};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::request::{Call, Outcome};
use crate::memory::acl::AuthId;

/// A request whose reply was not picked up yet.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) stage: Stage,
    pub(crate) waker: Option<Waker>,
    /// False once its future was dropped. The reply is then forgotten, but the request is not.
    pub(crate) wanted: bool,
    /// The client has answered it itself, so nothing is on its way that could be lost.
    pub(crate) settled: bool,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// It waits for the connection, and has no effect yet.
    Queued(Call),
    /// It is in flight to the server, and has no effect yet.
    Sent(Call),
    /// It has reached a leader without a quorum, which will never answer it.
    Stuck,
    /// It has its outcome, which is in flight.
    Answered(Outcome, Delivery),
}

/// A message of the server in flight to the client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// When it arrives; `None` means at once.
    pub(crate) due: Option<Instant>,
    /// Last transaction that the sending replica had applied.
    pub(crate) zxid: i64,
}

/// Wakes the ensemble when the timeout of a session has passed.
#[derive(Debug)]
pub(crate) struct Timer(pub(crate) AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One session.
///
/// | state | `ended` | `gone` | `cut`, or the ensemble stopped | requests | ephemeral nodes |
/// |---|---|---|---|---|---|
/// | connected | `None` | no | no | take effect when they arrive | stay |
/// | left behind | `None` | no | no | reads are answered, writes never | stay until the timeout |
/// | left behind, expired by the others | `None` | yes | no | reads are answered, writes never | are gone |
/// | disconnected | `None` | no | yes | are queued | stay until the timeout |
/// | given up by its client | `Some` | no | - | fail | stay until the timeout |
/// | ended | `Some` | yes | - | fail | are gone |
///
/// Left behind is a session whose connection leads to the deposed leader, `behind`.
#[derive(Debug)]
pub(crate) struct SessionRecord {
    pub(crate) identities: Arc<[AuthId]>,
    /// How the session ended, as its client sees it.
    pub(crate) ended: Option<EndReason>,
    /// Whether the ensemble has ended the session.
    pub(crate) gone: bool,
    pub(crate) cut: bool,
    /// Whether the session is connected to the deposed leader.
    pub(crate) behind: bool,
    /// Whether the client has dropped its last handle.
    pub(crate) hung_up: bool,
    pub(crate) connection: watch::Sender<Connection>,
    /// The session timeout that the ensemble granted to the present connection, which its client need
    /// not know. `None`: no end by time.
    pub(crate) granted: Option<Duration>,
    /// What the first connection was granted, which its client counts on.
    pub(crate) counted: Option<Duration>,
    /// The ensemble has expired the session, and its client learns that at a reconnect, or when the
    /// time is over that it counts on.
    pub(crate) is_overdue: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) timer: Option<Timer>,
    /// Last transaction that the replica of this connection has certainly applied. No read on this
    /// connection may be older.
    pub(crate) applied: i64,
    /// Last transaction that an arrived message reports. The client connects to no replica that is
    /// older. It may connect to one that has not applied a write whose reply was lost.
    pub(crate) known: i64,
    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) last_flight: u64,
    /// Replies up to this request have arrived, whether they were picked up or not.
    pub(crate) arrived: u64,
    /// When the latest reply or event of this connection is due. None may overtake another.
    pub(crate) last_due: Option<Instant>,
    /// When the latest event that watches had missed before this connection is due, or when the
    /// connection was made.
    pub(crate) caught_up: Instant,
    /// When the latest request in flight to the server is due.
    pub(crate) last_arrival: Option<Instant>,
    /// Who counts on its timeout.
    pub(crate) reliant: Option<Weak<dyn Reliant>>,
}

impl SessionRecord {
    pub(crate) fn new(identities: Arc<[AuthId]>, granted: Option<Duration>, zxid: i64) -> Self {
        Self {
            identities,
            ended: None,
            gone: false,
            cut: false,
            behind: false,
            hung_up: false,
            connection: watch::Sender::new(Connection::Connected),
            granted,
            counted: granted,
            is_overdue: false,
            deadline: None,
            timer: None,
            applied: zxid,
            known: zxid,
            flights: BTreeMap::new(),
            last_flight: 0,
            arrived: 0,
            last_due: None,
            caught_up: Instant::now(),
            last_arrival: None,
            reliant: None,
        }
    }

    /// Grants a session timeout to a connection. Returns who counts on it.
    #[must_use]
    pub(crate) fn grant(&mut self, granted: Option<Duration>) -> Option<Arc<dyn Reliant>> {
        self.granted = granted;
        self.reliant.as_ref().and_then(Weak::upgrade)
    }

    /// Whether no handle can refer to this session any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.gone && self.hung_up && self.flights.is_empty()
    }

    /// Requests that wait for the connection, in the order of the calls.
    pub(crate) fn queued(&self) -> Vec<(u64, Call)> {
        let queued = |(number, flight): (&u64, &Flight)| match &flight.stage {
            Stage::Queued(call) => Some((*number, call.clone())),
            Stage::Sent(_) | Stage::Stuck | Stage::Answered(..) => None,
        };
        self.flights.iter().filter_map(queued).collect()
    }

    /// Requests in flight to the server, in the order of the calls.
    pub(crate) fn sent(&self) -> Vec<(u64, Call)> {
        let sent = |(number, flight): (&u64, &Flight)| match &flight.stage {
            Stage::Sent(call) => Some((*number, call.clone())),
            Stage::Queued(_) | Stage::Stuck | Stage::Answered(..) => None,
        };
        self.flights.iter().filter_map(sent).collect()
    }

    /// Requests that the deposed leader will never answer.
    pub(crate) fn stuck(&self) -> Vec<u64> {
        self.flights
            .iter()
            .filter(|(_, flight)| matches!(flight.stage, Stage::Stuck))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Requests whose reply is in flight.
    pub(crate) fn in_flight(&self) -> Vec<u64> {
        self.flights
            .range(self.arrived + 1..)
            .filter(|(_, flight)| !flight.settled && matches!(flight.stage, Stage::Answered(..)))
            .map(|(number, _)| *number)
            .collect()
    }
}
