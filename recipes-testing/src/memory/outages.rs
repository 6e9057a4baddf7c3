//! What a test can do to leaders, disks and machines.

use std::time::Duration;

use tokio::time::Instant;

use super::ensemble::MemoryEnsemble;

/// Events that hit a whole ensemble or a machine.
impl MemoryEnsemble {
    /// Elects a new leader, while the old one has lost its followers and does not notice. The
    /// sessions in `staying` stay connected to the old one.
    ///
    /// Those sessions notice nothing. The deposed leader answers their reads, lists and watches
    /// from its last state, and reports nothing that the new quorum does. It answers `sync`, which
    /// needs no quorum. It never answers writes, not even those that it would refuse, and they
    /// never take effect. Nor does it answer what a session sends after a write, because a server
    /// answers each session in order. These requests fail with `Unknown` when the connection
    /// breaks.
    ///
    /// All other sessions lose their connections and are at once connected to the new leader. It
    /// gives every session its full timeout from now on. It gets no sign of life from those that
    /// stay, so it expires them after the timeout, unnoticed by their clients. An earlier deposed
    /// leader retires.
    ///
    /// Nothing happens while the ensemble is stopped. Sessions that are cut off do not stay.
    pub fn depose(&self, staying: &[i64]) {
        self.shared.with(|state| state.depose(staying));
    }

    /// Breaks the connection of a session to the deposed leader. It connects to the new one, and
    /// ends if that one has expired it. Returns whether it was connected to the deposed one.
    pub fn move_over(&self, session: i64) -> bool {
        self.shared.with(|state| state.move_over(session))
    }

    /// Breaks the connection of a session to the new leader. It connects to the deposed one, which
    /// accepts only a client that has seen nothing newer than its own state. Returns whether it
    /// did.
    ///
    /// Requests to the new leader whose replies have not arrived are lost: a node may have been
    /// created there that the deposed one does not show.
    pub fn go_back(&self, session: i64) -> bool {
        self.shared.with(|state| state.go_back(session))
    }

    /// Lets the deposed leader notice: all its clients [move over](Self::move_over). Stopping the
    /// ensemble does the same.
    pub fn retire_deposed(&self) {
        self.shared.with(|state| state.retire_deposed());
    }

    /// Brings the ensemble back with its data wiped. There are no nodes, all sessions have expired,
    /// and transaction numbers start again, below the earlier ones. A stopped ensemble is started.
    pub fn wipe(&self) {
        self.shared.with(|state| state.wipe());
        self.shared.admits.send_replace(());
    }

    /// Lets the machine of all clients sleep for a time that tokio's clock does not count. The time
    /// is added to the result of [`Store::suspended`](recipes_core::Store::suspended), which is
    /// zero otherwise.
    ///
    /// Nothing else happens, not even to sessions that a server would have expired meanwhile: see
    /// [`expire`](Self::expire).
    pub fn suspend_machine(&self, duration: Duration) {
        self.shared.with(|state| {
            state.suspended = state.suspended.saturating_add(duration);
        });
    }
}

/// What a judge outside of all sessions can observe.
impl MemoryEnsemble {
    /// Sessions that are connected to the deposed leader.
    #[doc(hidden)]
    #[must_use]
    pub fn sessions_behind(&self) -> Vec<i64> {
        self.shared.with(|state| {
            let behind = state.sessions.iter().filter(|(_, record)| record.behind);
            behind.map(|(session, _)| *session).collect()
        })
    }

    /// When all messages sent to the client of a session so far will have arrived. `None` while it
    /// is not connected to a leader that can commit.
    #[doc(hidden)]
    #[must_use]
    pub fn told_by(&self, session: i64) -> Option<Instant> {
        self.shared.with(|state| {
            if let Some(redis) = &state.on_redis {
                return redis.links.told_by(session);
            }
            let now = Instant::now();
            let told = |due: Option<Instant>| due.map_or(now, |due| due.max(now));
            let connected = state.is_connected(session) && !state.is_behind(session);
            let record = state.sessions.get(&session).filter(|_| connected)?;
            Some(told(record.last_due))
        })
    }

    /// When all events that its watches had missed before the present connection will have arrived.
    #[doc(hidden)]
    #[must_use]
    pub fn caught_up_by(&self, session: i64) -> Option<Instant> {
        self.shared.with(|state| {
            if let Some(redis) = &state.on_redis {
                return redis.links.since(session);
            }
            let connected = state.is_connected(session) && !state.is_behind(session);
            let record = state.sessions.get(&session).filter(|_| connected)?;
            Some(record.caught_up)
        })
    }

    /// Whether the client of a session on a store as that on Redis is about to go on with it over another
    /// connection. It has not been told yet what happened meanwhile.
    #[doc(hidden)]
    #[must_use]
    pub fn is_connecting(&self, session: i64) -> bool {
        self.shared.with(|state| {
            let redis = state.on_redis.as_ref();
            redis.is_some_and(|redis| redis.links.is_connecting(session))
        })
    }
}
