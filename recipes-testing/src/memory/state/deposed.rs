//! A leader that has lost its followers and has not noticed yet.

use recipes_core::{Connection, EndReason};
use tokio::time::Instant;

use super::State;
use crate::memory::tree::Tree;

/// What the deposed leader believes to be the latest state.
#[derive(Clone, Debug)]
pub(crate) struct Deposed {
    pub(crate) tree: Tree,
    pub(crate) zxid: i64,
}

impl State {
    /// Elects a new leader, while the old one keeps the connections of these sessions.
    pub(crate) fn depose(&mut self, staying: &[i64]) {
        self.retire_deposed();
        if self.stopped {
            return;
        }
        // The servers that take part in the election drop their clients.
        for session in self.live_sessions() {
            if self.is_connected(session) && !staying.contains(&session) {
                self.blip(session);
            }
        }
        self.deposed = Some(Deposed {
            tree: self.tree.clone(),
            zxid: self.zxid,
        });
        self.start_term();
        for session in self.live_sessions() {
            let connected = self.is_connected(session);
            let stays = connected && staying.contains(&session);
            let Some(record) = self.sessions.get_mut(&session) else {
                continue;
            };
            record.behind = stays;
            record.deadline = None;
            record.timer = None;
            if stays || !connected {
                self.start_timeout(session);
            }
        }
    }

    /// Lets a session of the deposed leader connect to the new one. Returns whether it was one.
    pub(crate) fn move_over(&mut self, session: i64) -> bool {
        if !self.is_behind(session) {
            return false;
        }
        self.go_down(session);
        self.leave_deposed(session);
        if self.is_connected(session) {
            self.come_up(session);
        }
        true
    }

    /// Connects a session to the deposed leader, unless its client has seen something newer.
    /// Returns whether it did.
    pub(crate) fn go_back(&mut self, session: i64) -> bool {
        let newest = self.deposed.as_ref().map(|deposed| deposed.zxid);
        let knows = self.sessions.get(&session).map(|record| record.known);
        let told = self.watches.told(session, Instant::now());
        let may = match (newest, knows) {
            (Some(newest), Some(known)) => known.max(told) <= newest,
            _ => false,
        };
        if !may || self.is_behind(session) || !self.is_connected(session) {
            return false;
        }
        self.go_down(session);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.behind = true;
            record.connection.send_replace(Connection::Connected);
        }
        self.set_watches_again(session);
        self.start_timeout(session);
        true
    }

    /// The deposed leader notices, and its clients move to the new one.
    pub(crate) fn retire_deposed(&mut self) {
        let behind: Vec<i64> = self
            .sessions
            .iter()
            .filter(|(_, record)| record.behind)
            .map(|(session, _)| *session)
            .collect();
        for session in behind {
            self.move_over(session);
        }
        self.deposed = None;
    }

    /// The connection of a session to the deposed leader breaks. If the new leader has expired the
    /// session, its client is now notified.
    pub(crate) fn leave_deposed(&mut self, session: i64) {
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        record.behind = false;
        if record.gone {
            self.end_client(session, EndReason::Expired);
            self.forget_if_done(session);
        }
    }

    pub(crate) fn is_behind(&self, session: i64) -> bool {
        let record = self.sessions.get(&session);
        record.is_some_and(|record| record.behind)
    }

    /// Whether a request of this session will never be answered. Either it needs a quorum, which
    /// its leader does not have, or it follows one that does: a server answers each session in
    /// order.
    pub(crate) fn is_stuck(&self, session: i64, is_write: bool) -> bool {
        let record = self.sessions.get(&session);
        record.is_some_and(|record| record.behind && (is_write || !record.stuck().is_empty()))
    }

    /// The nodes that the server of a session shows.
    pub(crate) fn tree_of(&self, session: i64) -> &Tree {
        match &self.deposed {
            Some(deposed) if self.is_behind(session) => &deposed.tree,
            _ => &self.tree,
        }
    }

    /// The last transaction that the server of a session could have applied.
    pub(crate) fn zxid_of(&self, session: i64) -> i64 {
        match &self.deposed {
            Some(deposed) if self.is_behind(session) => deposed.zxid,
            _ => self.zxid,
        }
    }
}
