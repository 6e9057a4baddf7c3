//! State that the connections of a proxy share.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::watch;

use super::frame::Direction;
use super::journal::Journal;
use super::protocol::Protocol;
use super::rule::{Cut, Rules};

/// What happens to all bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Passes,
    /// They are kept until bytes pass again.
    Stalls,
    /// They disappear. Connections that lost some are cut when bytes pass again.
    Swallows,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) protocol: Protocol,
    pub(super) upstream: Mutex<String>,
    pub(super) rules: Rules,
    pub(super) journal: Journal,
    pub(super) latency: watch::Sender<Duration>,
    /// Cuts all existing connections.
    pub(super) cut: watch::Sender<Cut>,
    /// How many connections were accepted so far.
    pub(super) connections: AtomicU64,
    to_server: watch::Sender<Flow>,
    from_server: watch::Sender<Flow>,
}

impl Shared {
    pub(super) fn new(protocol: Protocol, upstream: &str) -> Self {
        Self {
            protocol,
            upstream: Mutex::new(upstream.to_owned()),
            rules: Rules::default(),
            journal: Journal::default(),
            latency: watch::Sender::new(Duration::ZERO),
            cut: watch::Sender::new(Cut::Fin),
            connections: AtomicU64::new(0),
            to_server: watch::Sender::new(Flow::Passes),
            from_server: watch::Sender::new(Flow::Passes),
        }
    }

    pub(super) fn flow(&self, direction: Direction) -> &watch::Sender<Flow> {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::FromServer => &self.from_server,
        }
    }
}
