//! What goes wrong: on request of a test, or drawn from the seed.

use std::time::Duration;

use super::random::Random;
use super::state::request::Operation;

/// Where a request is lost when the connection breaks under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The request is lost on its way to the server: it has no effect.
    BeforeCommit,
    /// The reply is lost on its way back: the request has taken effect.
    AfterCommit,
}

/// Rates of the faults that a [`MemoryEnsemble`](crate::MemoryEnsemble) draws from its seed; all
/// off by default.
///
/// Rates are per thousand requests, drawn once for each request when it takes effect. On a store as that
/// on Redis requests travel together in calls, and rates are per thousand calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The connection breaks and the request never reaches the server.
    pub lost_before_per_mille: u16,
    /// The connection breaks after the request took effect.
    pub lost_after_per_mille: u16,
    /// The session of the request expires before the request takes effect.
    pub expiry_per_mille: u16,
    /// A call does nothing, and its client is told so, as by a database that ends a transaction because of
    /// a deadlock. On a store as that on Redis only.
    pub undone_per_mille: u16,
    /// The end of an answer is missing, as with a proxy that cuts long ones. The client gives the connection
    /// up. On a store as that on Redis only.
    pub cut_answer_per_mille: u16,
    /// Of so many sessions that are cut off, in a thousand, the connection does not break: nothing gets through,
    /// and the client has to notice. On a store as that on Redis only.
    pub mute_per_mille: u16,
    /// A list is answered by a replica that lags. It is never older than what the session has
    /// written, synced, read or seen from a watch on this connection, nor older than a reply or
    /// event that was picked up before. A write whose reply was lost with the connection may not
    /// show until the session syncs.
    pub stale_list_per_mille: u16,
    /// Least time that a reply or a watch event takes on top of the latency.
    pub delay_min: Duration,
    /// Most time that a reply or a watch event takes on top of the latency.
    pub delay_max: Duration,
    /// Least time that a request takes to the server. It takes effect when it arrives; the requests
    /// of one session arrive in the order of the calls. If both bounds are zero and no request is
    /// in flight, it arrives at the call. If the connection breaks, the first few requests in
    /// flight, a number drawn from the seed, take effect and their replies are lost. The others
    /// never arrive.
    pub request_delay_min: Duration,
    /// Most time that a request takes to the server.
    pub request_delay_max: Duration,
    /// Most time between the events of two watches that are set again after a disconnection, on top
    /// of the other delays. Their order is always drawn from the seed.
    pub watches_again_delay_max: Duration,
}

impl Faults {
    pub(super) fn delay(&self, random: &mut Random) -> Duration {
        between(self.delay_min, self.delay_max, random)
    }

    pub(super) fn request_delay(&self, random: &mut Random) -> Duration {
        between(self.request_delay_min, self.request_delay_max, random)
    }

    pub(super) fn watches_again_delay(&self, random: &mut Random) -> Duration {
        between(Duration::ZERO, self.watches_again_delay_max, random)
    }

    pub(super) fn lost(&self, random: &mut Random) -> Option<Lost> {
        if random.per_mille(self.lost_before_per_mille) {
            return Some(Lost::BeforeCommit);
        }
        random
            .per_mille(self.lost_after_per_mille)
            .then_some(Lost::AfterCommit)
    }
}

/// Draws nothing if there is no choice, so that a fault that is off does not change the rest of the
/// run.
fn between(min: Duration, max: Duration, random: &mut Random) -> Duration {
    let span = max.saturating_sub(min);
    match u64::try_from(span.as_micros()).unwrap_or(u64::MAX) {
        0 => min,
        span_us => min + Duration::from_micros(random.below(span_us.saturating_add(1))),
    }
}

/// The next request that matches loses its reply.
#[derive(Clone, Debug)]
pub(super) struct Ambush {
    pub(super) session: Option<i64>,
    pub(super) operation: Operation,
    pub(super) lost: Lost,
}

impl Ambush {
    pub(super) fn matches(&self, session: i64, operations: &[Operation]) -> bool {
        let is_wanted = self.session.is_none_or(|wanted| wanted == session);
        is_wanted && operations.contains(&self.operation)
    }
}
