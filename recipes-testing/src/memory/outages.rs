//! The test's hands on leaders, disks and machines.

use std::time::Duration;

use super::ensemble::MemoryEnsemble;

/// What a whole ensemble, or a machine, goes through.
impl MemoryEnsemble {
    /// Elects a new leader, while the old one has lost its followers and does not notice: these
    /// sessions stay connected to it.
    ///
    /// To them nothing seems to happen. It answers their reads, lists and watches from what it knew
    /// last, tells them of nothing that the new quorum does, and answers `sync`, which is no
    /// operation of a quorum. Writes it never answers, not even those that it would refuse, and
    /// they never take effect; nor does it answer what their session sends after them, as a server
    /// answers each session in order. They fail with `Unknown` when the connection breaks.
    ///
    /// All other sessions lose their connections and are back at the new leader at once. It has
    /// given every session its full timeout from now on, hears nothing of those that stay behind,
    /// and expires them after it, unnoticed by their clients. An earlier deposed leader retires.
    ///
    /// Nothing happens while the ensemble is stopped. Sessions that are cut off do not stay.
    pub fn depose(&self, staying: &[i64]) {
        self.shared.with(|state| state.depose(staying));
    }

    /// Breaks the connection of a session to the deposed leader; it connects to the new one, and
    /// ends if that has expired it. Returns whether it was connected to the deposed one.
    pub fn move_over(&self, session: i64) -> bool {
        self.shared.with(|state| state.move_over(session))
    }

    /// Breaks the connection of a session to the new leader; it connects to the deposed one, which
    /// lets in only a client that knows of nothing newer than itself. Returns whether it did.
    ///
    /// What the session has asked of the new leader and was not told of is lost on the way: a node
    /// may have been created there that the deposed one does not show.
    pub fn go_back(&self, session: i64) -> bool {
        self.shared.with(|state| state.go_back(session))
    }

    /// Lets the deposed leader notice: all its clients [move over](Self::move_over). Stopping the
    /// ensemble does the same.
    pub fn retire_deposed(&self) {
        self.shared.with(|state| state.retire_deposed());
    }

    /// Brings the ensemble back with its data wiped: there are no nodes, all sessions have expired,
    /// and numbers of transactions start anew, below those before. A stopped ensemble is started.
    pub fn wipe(&self) {
        self.shared.with(|state| state.wipe());
        self.shared.running.send_replace(true);
    }

    /// Lets the machine of all clients sleep for a time that tokio's clock does not count: adds it
    /// to what [`Backend::suspended`](recipes_core::Backend::suspended) tells, which is zero else.
    ///
    /// Nothing else happens, even to sessions that a server would have expired meanwhile: see
    /// [`expire`](Self::expire).
    pub fn suspend_machine(&self, duration: Duration) {
        self.shared.with(|state| {
            state.suspended = state.suspended.saturating_add(duration);
        });
    }
}
