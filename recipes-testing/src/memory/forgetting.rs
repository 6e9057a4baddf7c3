//! What a test does to a store as that on Redis: it forgets, and its clock is set.

use std::time::Duration;

use super::ensemble::MemoryEnsemble;
use super::state::on_redis::Past;

/// All that a store knew at some moment: nodes, sessions, the last transaction number.
#[derive(Clone, Debug)]
pub struct Checkpoint(Past);

/// What happens to a store [as that on Redis](crate::MemoryBuilder::on_redis). Nothing of it happens
/// to another one.
impl MemoryEnsemble {
    /// What the server knows now: what is in its log so far, or what its replica has.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        self.shared.with(|state| Checkpoint(state.past()))
    }

    /// Stops the server, which then knows what it knew at the checkpoint and nothing later, like one
    /// that was killed before it flushed its log, or a replica that is promoted without the last
    /// writes. It is another run of the server, also if nothing was written since. See
    /// [`restart`](Self::restart).
    ///
    /// A session that was closed or expired since the checkpoint is there again without a client,
    /// and so are its nodes, for the rest of its timeout. One that was opened or connected again
    /// since is known no more. A client deletes the nodes that are back after it has deleted them.
    pub fn forget(&self, checkpoint: Checkpoint) {
        self.shared.with(|state| state.fall_back(checkpoint.0));
    }

    /// Sets the server's clock forward.
    pub fn set_clock_forward(&self, by: Duration) {
        self.set_clock(|ahead, by| ahead.saturating_add(by), by);
    }

    /// Sets the server's clock back.
    pub fn set_clock_back(&self, by: Duration) {
        self.set_clock(|ahead, by| ahead.saturating_sub(by), by);
    }

    fn set_clock(&self, set: impl Fn(i64, i64) -> i64, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.shared.with(|state| {
            if let Some(redis) = &mut state.on_redis {
                redis.ahead = set(redis.ahead, by);
            }
        });
    }

    /// How far the last transaction number is ahead of the server's clock. If a server that is so
    /// far behind forgets, it may give out a number twice.
    #[doc(hidden)]
    #[must_use]
    pub fn clock_is_behind_by(&self) -> Duration {
        let behind = self.shared.with(|state| state.zxid - state.wall_us());
        Duration::from_micros(u64::try_from(behind).unwrap_or(0))
    }
}
