//! The life of sessions: opened, disconnected, connected again, ended.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{Connection, EndReason, NodeEvent, NodesError};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::session::{Delivery, SessionRecord, Timer};
use super::watches::Fired;
use super::{State, TERM};
use crate::memory::acl::AuthId;
use crate::memory::error::MemoryError;
use crate::memory::tree::Tree;
use crate::memory::tree::access::Access;

impl State {
    /// Opens a session, unless the ensemble is stopped.
    pub(crate) fn open(&mut self, identities: Arc<[AuthId]>) -> Option<i64> {
        if self.stopped {
            return None;
        }
        self.last_session += 1;
        let zxid = self.next_number();
        let record = SessionRecord::new(identities, self.session_timeout, zxid);
        self.sessions.insert(self.last_session, record);
        Some(self.last_session)
    }

    pub(crate) fn live_sessions(&self) -> Vec<i64> {
        if let Some(redis) = &self.on_redis {
            return redis.sessions();
        }
        let live = self.sessions.iter().filter(|(_, record)| !record.gone);
        live.map(|(session, _)| *session).collect()
    }

    pub(crate) fn is_live(&self, session: i64) -> bool {
        if let Some(redis) = &self.on_redis {
            return redis.is_known(session);
        }
        self.sessions
            .get(&session)
            .is_some_and(|record| !record.gone)
    }

    /// Ends a session in one transaction: requests fail, watches end, ephemeral nodes are deleted.
    /// The client does not learn of it while it is connected to the deposed leader.
    pub(crate) fn end(&mut self, session: i64, reason: EndReason) {
        if self.on_redis.is_some() {
            return self.expire_known(session);
        }
        if self.is_behind(session) {
            return self.remove(session);
        }
        // A client that closes exists until it has its answer. It learns about its own nodes before
        // that.
        if reason == EndReason::Closed {
            self.remove(session);
            self.end_client(session, reason);
        } else {
            self.end_client(session, reason);
            self.remove(session);
        }
        self.forget_if_done(session);
    }

    /// Ends a session for the ensemble.
    pub(crate) fn remove(&mut self, session: i64) {
        if let Some(record) = self.sessions.get_mut(&session) {
            if mem::replace(&mut record.gone, true) {
                return;
            }
            record.deadline = None;
            record.timer = None;
        }
        self.delete_nodes_of(session);
    }

    pub(crate) fn delete_nodes_of(&mut self, session: i64) {
        let owned = self.tree.owned_by(session);
        let deleted: Result<(), NodesError> = self.transact(|tree, transaction| {
            owned
                .iter()
                .try_for_each(|path| tree.delete(transaction, path, None, &Access::Operator))
        });
        debug_assert!(deleted.is_ok(), "ephemeral nodes have no children");
    }

    /// Ends a session for its client. For the ensemble, it is disconnected.
    pub(crate) fn give_up(&mut self, session: i64, reason: EndReason) {
        self.break_off(session);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.behind = false;
        }
        self.end_client(session, reason);
        if !self.stopped {
            self.start_timeout(session);
        }
    }

    pub(crate) fn end_client(&mut self, session: i64, reason: EndReason) {
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        if record.ended.is_some() {
            return;
        }
        record.ended = Some(reason);
        let unsent = record.queued().into_iter().chain(record.sent());
        let mut failing: Vec<u64> = unsent.map(|(number, _)| number).collect();
        // A close is the last request of its session, so the replies to all others come first.
        if reason != EndReason::Closed {
            failing.extend(record.in_flight());
        }
        for number in failing {
            self.fail(session, number, NodesError::SessionEnded);
        }
        self.watches.recall(session, Instant::now());
        let ended = Fired {
            event: NodeEvent::SessionEnded,
            delivery: Delivery::default(),
        };
        for (number, ..) in self.watches.armed_of(session) {
            self.wakers.extend(self.watches.fire(number, ended));
        }
        if let Some(record) = self.sessions.get_mut(&session) {
            record.arrived = record.last_flight;
            record.connection.send_replace(Connection::Ended(reason));
        }
    }

    /// Expires the sessions that have been disconnected for too long.
    pub(crate) fn expire_overdue(&mut self) {
        if self.session_timeout.is_none() {
            return;
        }
        let now = Instant::now();
        let overdue = |record: &SessionRecord| record.deadline.is_some_and(|at| at <= now);
        let sessions: Vec<i64> = self
            .sessions
            .iter()
            .filter(|(_, r)| overdue(r))
            .map(|(session, _)| *session)
            .collect();
        for session in sessions {
            let Some(record) = self.sessions.get_mut(&session) else {
                continue;
            };
            record.deadline = None;
            let (granted, counted) = (record.granted, record.counted);
            let more = counted
                .zip(granted)
                .map(|(it, granted)| it.saturating_sub(granted));
            match more.filter(|more| !more.is_zero() && !record.is_overdue) {
                Some(more) => {
                    record.is_overdue = true;
                    self.remove(session);
                    self.set_deadline(session, more);
                }
                None => self.end(session, EndReason::Expired),
            }
        }
    }

    /// Cuts one session off.
    pub(crate) fn cut(&mut self, session: i64) {
        if self.on_redis.is_some() {
            return self.cut_link(session, true);
        }
        let was_connected = self.is_connected(session);
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        record.cut = true;
        if was_connected {
            self.go_down(session);
        }
        self.leave_deposed(session);
        if !self.stopped {
            self.start_timeout(session);
        }
    }

    /// Lets one session connect again.
    pub(crate) fn mend(&mut self, session: i64) {
        if self.on_redis.is_some() {
            return self.cut_link(session, false);
        }
        let was_connected = self.is_connected(session);
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        if record.gone && !record.behind {
            if record.is_overdue {
                self.end(session, EndReason::Expired);
            }
            return;
        }
        record.cut = false;
        if !was_connected && self.is_connected(session) {
            self.come_up(session);
        }
    }

    /// Stops the ensemble. No timeout is counted meanwhile.
    pub(crate) fn stop(&mut self) {
        self.retire_deposed();
        let live = self.live_sessions();
        let connected = live.iter().filter(|session| self.is_connected(**session));
        let connected: Vec<i64> = connected.copied().collect();
        // Before the connections break: what still arrives is not reported to anyone.
        self.stopped = true;
        self.break_all();
        for session in connected {
            self.go_down(session);
        }
        for session in live {
            if let Some(record) = self.sessions.get_mut(&session) {
                record.deadline = None;
                record.timer = None;
            }
        }
    }

    /// Starts the ensemble again, under a new leader that gives every session its full timeout.
    pub(crate) fn restart(&mut self) {
        if !self.stopped {
            return;
        }
        self.stopped = false;
        if self.on_redis.is_none() {
            self.start_term();
        }
        for session in self.live_sessions() {
            if self.is_connected(session) {
                self.come_up(session);
            } else {
                self.start_timeout(session);
            }
        }
    }

    /// Starts the ensemble again, without data. It knows no session that a client asks it to go on with.
    pub(crate) fn wipe(&mut self) {
        self.stop();
        for session in self.live_sessions() {
            if let Some(record) = self.sessions.get_mut(&session) {
                record.gone = true;
            }
            self.end_client(session, EndReason::Expired);
            self.forget_if_done(session);
        }
        self.tree = Tree::new(self.now_ms(), self.tree.tells_first());
        self.zxid = TERM;
        self.stopped = false;
    }

    /// The connection breaks, and is back before the client can send another request.
    pub(crate) fn blip(&mut self, session: i64) {
        self.lose_messages(session);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.connection.send_replace(Connection::Disconnected);
        }
        self.grant(session);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.connection.send_replace(Connection::Connected);
        }
        self.set_watches_again(session);
        self.close_again(session);
    }

    /// The client drops its last handle, which closes the session as soon as it reaches the server.
    pub(crate) fn hang_up(&mut self, session: i64) {
        let connected = self.is_connected(session);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.hung_up = true;
        }
        if connected {
            self.send_close(session);
        }
        self.forget_if_done(session);
    }

    pub(crate) fn go_down(&mut self, session: i64) {
        self.lose_messages(session);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.connection.send_replace(Connection::Disconnected);
        }
    }

    pub(crate) fn come_up(&mut self, session: i64) {
        self.grant(session);
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        record.deadline = None;
        record.timer = None;
        record.connection.send_replace(Connection::Connected);
        let queued = record.queued();
        self.set_watches_again(session);
        for (number, call) in queued {
            // A fault may end the session half-way, which fails the rest.
            if self.is_connected(session) {
                self.send(session, number, call);
            }
        }
        self.close_again(session);
    }

    /// Grants a session timeout to the next connection of a session, which its client knows before it asks
    /// for that connection.
    fn grant(&mut self, session: i64) {
        let granted = self.session_timeout;
        let record = self.sessions.get_mut(&session);
        let reliant = record.and_then(|record| record.grant(granted));
        self.shortened.extend(reliant.zip(granted));
    }

    /// A client whose close request never arrived sends it again.
    fn close_again(&mut self, session: i64) {
        let all_sent = |record: &SessionRecord| record.hung_up && record.queued().is_empty();
        if self.sessions.get(&session).is_some_and(all_sent) {
            self.send_close(session);
        }
    }

    // Messages in flight are lost. The next replica may know only as much as the client does.
    fn lose_messages(&mut self, session: i64) {
        self.break_off(session);
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        let lost = record.in_flight();
        record.arrived = record.arrived.max(lost.last().copied().unwrap_or(0));
        record.last_due = None;
        // Before the events: a watch whose reply is lost has no event.
        for number in lost {
            self.fail(session, number, MemoryError::ReplyLost);
        }
        let known = self.watches.recall(session, Instant::now());
        self.note_known(session, known);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.applied = record.known;
        }
    }

    pub(crate) fn start_timeout(&mut self, session: i64) {
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        if record.deadline.is_some() || record.gone {
            return;
        }
        if let Some(granted) = record.granted {
            self.set_deadline(session, granted);
        }
    }

    fn set_deadline(&mut self, session: i64, after: Duration) {
        let (shared, deadline) = (self.shared.clone(), Instant::now().checked_add(after));
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        record.deadline = deadline;
        // Without a runtime, the session expires at the next access to the ensemble.
        let (Some(deadline), Ok(runtime)) = (deadline, Handle::try_current()) else {
            return;
        };
        let expiry = async move {
            // Timers round down, and nothing expires just before the deadline.
            sleep_until(deadline + Duration::from_millis(1)).await;
            if let Some(shared) = shared.upgrade() {
                shared.with(|_| ());
            }
        };
        record.timer = Some(Timer(runtime.spawn(expiry).abort_handle()));
    }

    pub(crate) fn forget_if_done(&mut self, session: i64) {
        if self
            .sessions
            .get(&session)
            .is_some_and(SessionRecord::is_forgotten)
        {
            self.sessions.remove(&session);
        }
    }
}
