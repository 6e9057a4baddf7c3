//! The metrics of locks, and the spans that live longer than one call.
//!
//! Metrics go to the recorder of the `metrics` ecosystem that the service has installed. Without
//! the feature `metrics`, nothing is recorded. The documentation of the facade has a table of them.
//! Labels have few values whatever users do, so they never contain a path, a node or a session.
//! Spans have the level `DEBUG`, like the logs of a lock that works.

use std::fmt::Display;
use std::sync::OnceLock;

use tokio::time::Instant;
use tracing::{Span, debug_span, field};

use crate::error::{AcquireError, LostReason};
use crate::log::LOCK;
use crate::names::node_name::LockKind;
use crate::names::order::Rank;
use crate::names::token::FencingToken;
use crate::store::nodes::EndReason;
use crate::sync::{Mutex, lock};

const ACQUIRES: &str = "lock_recipes_acquires_total";
const PENDING: &str = "lock_recipes_acquires_pending";
const WAIT: &str = "lock_recipes_wait_seconds";
const QUEUE: &str = "lock_recipes_queue_length";
const GRANTS: &str = "lock_recipes_grants_total";
const HANDOFFS: &str = "lock_recipes_local_handoffs_total";
const HOLD: &str = "lock_recipes_hold_seconds";
const RELEASES: &str = "lock_recipes_releases_total";
const LOSSES: &str = "lock_recipes_losses_total";
const CLEANUPS: &str = "lock_recipes_cleanups_pending";
const SESSIONS: &str = "lock_recipes_sessions";
const SESSIONS_LOST: &str = "lock_recipes_sessions_lost_total";

/// The kind of several locks that are acquired together.
pub(crate) const SET: &str = "set";

pub(crate) use sink::describe;

/// One acquire of a lock or a set of locks. Unless it is ended, its future was dropped.
pub(crate) struct Acquiring {
    kind: &'static str,
    since: Instant,
    span: Span,
    contends: bool,
    is_over: bool,
}

impl Acquiring {
    /// Begins to measure an acquire of a lock of this kind, or of a [`SET`] of them.
    pub(crate) fn start(kind: &'static str, lock: &dyn Display) -> Self {
        sink::add(PENDING, &[("kind", kind)], 1.0);
        Self {
            kind,
            since: Instant::now(),
            span: debug_span!(
                target: LOCK,
                "acquire",
                lock = %lock,
                kind,
                node = field::Empty,
                token = field::Empty,
                outcome = field::Empty
            ),
            contends: false,
            is_over: false,
        }
    }

    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Notes that the owner does not hold all members already.
    pub(crate) fn contends(&mut self) {
        self.contends = true;
    }

    /// Ends it as granted, with these nodes and tokens.
    pub(crate) fn granted(self, granted: impl FnOnce() -> (Vec<String>, Vec<String>)) {
        if !self.span.is_disabled() {
            let (nodes, tokens) = granted();
            self.span.record("node", nodes.join(", "));
            self.span.record("token", tokens.join(", "));
        }
        let outcome = if self.contends {
            "granted"
        } else {
            "reentered"
        };
        self.end(outcome);
    }

    pub(crate) fn busy(self) {
        self.end("busy");
    }

    pub(crate) fn failed(self, error: &AcquireError) {
        self.end(match error {
            AcquireError::TimedOut { .. } => "timed_out",
            _ => "failed",
        });
    }

    fn end(mut self, outcome: &'static str) {
        self.is_over = true;
        self.record(outcome);
    }

    fn record(&self, outcome: &'static str) {
        self.span.record("outcome", outcome);
        let labels = [("kind", self.kind), ("outcome", outcome)];
        sink::count(ACQUIRES, &labels);
        sink::record(WAIT, &labels, || self.since.elapsed().as_secs_f64());
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if !self.is_over {
            self.record("dropped");
        }
        sink::add(PENDING, &[("kind", self.kind)], -1.0);
    }
}

/// Records how many nodes are ahead of a new node, by the listing that was sent after its create.
pub(crate) fn enqueued(kind: LockKind, children: &[String], name: &str) {
    sink::record(QUEUE, &[("kind", kind.as_str())], || {
        let own = Rank::new(kind, name);
        let ahead = children.iter().filter(|it| Rank::new(kind, it) < own);
        ahead.count() as f64
    });
}

/// The metrics and the span of a lease, from when an owner holds it until it is released or lost.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    kind: OnceLock<LockKind>,
    running: Mutex<Option<(Instant, Span)>>,
}

impl Grant {
    /// Begins the hold; called once.
    pub(crate) fn begin(&self, kind: LockKind, path: &str, node: &str, token: FencingToken) {
        // The span is no child of the acquire or of what the caller is doing: a parent ends after
        // its children, so it would last as long as the hold.
        let span = debug_span!(target: LOCK, parent: None, "hold", lock = %path, %node, %token,
            kind = kind.as_str(), end = field::Empty);
        span.follows_from(Span::current());
        self.kind.get_or_init(|| kind);
        *lock(&self.running) = Some((Instant::now(), span));
        let labels = [("kind", kind.as_str())];
        sink::count(GRANTS, &labels);
        if token.handoff() > 0 {
            sink::count(HANDOFFS, &labels);
        }
    }

    /// Ends the hold as released, if it has begun and has not ended.
    pub(crate) fn released(&self) {
        self.end("released");
    }

    /// Ends the hold as lost, if it has begun and has not ended.
    pub(crate) fn lost(&self, reason: LostReason) {
        if self.end(word(reason)) {
            self.found_lost(reason);
        }
    }

    /// Counts a loss: one that ended the hold, or one that the release found.
    pub(crate) fn found_lost(&self, reason: LostReason) {
        if let Some(kind) = self.kind.get() {
            let labels = [("kind", kind.as_str()), ("reason", word(reason))];
            sink::count(LOSSES, &labels);
        }
    }

    /// Counts an awaited release by how it ended.
    pub(crate) fn release_ended(&self, outcome: &'static str) {
        if let Some(kind) = self.kind.get() {
            sink::count(RELEASES, &[("kind", kind.as_str()), ("outcome", outcome)]);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        lock(&self.running).is_some()
    }

    fn end(&self, how: &'static str) -> bool {
        let running = lock(&self.running).take();
        let (Some((since, span)), Some(kind)) = (running, self.kind.get()) else {
            return false;
        };
        span.record("end", how);
        sink::record(HOLD, &[("kind", kind.as_str())], || {
            since.elapsed().as_secs_f64()
        });
        true
    }
}

fn word(reason: LostReason) -> &'static str {
    match reason {
        LostReason::SessionExpired => "session_expired",
        LostReason::SessionClosed => "session_closed",
        LostReason::DeadlinePassed => "deadline_passed",
        LostReason::NodeRemoved => "node_removed",
    }
}

/// The span of the release of these locks, each with its path, node and token. None if other guards
/// keep all of them.
pub(crate) fn release_span(released: &[(&str, &str, FencingToken)]) -> Span {
    let all = |text: fn(&(&str, &str, FencingToken)) -> String| {
        let texts: Vec<_> = released.iter().map(text).collect();
        texts.join(", ")
    };
    if released.is_empty() {
        return Span::none();
    }
    debug_span!(
        target: LOCK,
        "release",
        lock = all(|(path, ..)| (*path).to_owned()),
        node = all(|(_, node, _)| (*node).to_owned()),
        token = all(|(.., token)| token.to_string())
    )
}

/// A clean-up that is not finished; dropping this value ends it.
pub(crate) struct PendingCleanup(());

impl PendingCleanup {
    pub(crate) fn new() -> Self {
        sink::add(CLEANUPS, &[], 1.0);
        Self(())
    }
}

impl Drop for PendingCleanup {
    fn drop(&mut self) {
        sink::add(CLEANUPS, &[], -1.0);
    }
}

/// A session in the gauge of sessions, until this value is dropped.
#[derive(Default)]
pub(crate) struct CountedSession(Option<&'static str>);

impl CountedSession {
    /// Counts the session under this health only, and under none if there is no word for it.
    pub(crate) fn set(&mut self, health: Option<&'static str>) {
        if let Some(old) = std::mem::replace(&mut self.0, health) {
            sink::add(SESSIONS, &[("health", old)], -1.0);
        }
        if let Some(new) = health {
            sink::add(SESSIONS, &[("health", new)], 1.0);
        }
    }
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Counts a store session that ended without having been closed by this library.
pub(crate) fn session_lost(reason: EndReason) {
    let reason = match reason {
        EndReason::Expired => "expired",
        EndReason::Closed => "closed",
        EndReason::AuthFailed => "auth_failed",
    };
    sink::count(SESSIONS_LOST, &[("reason", reason)]);
}

/// Counts a store session that this library ended because the store has lost data.
pub(crate) fn store_forgot() {
    sink::count(SESSIONS_LOST, &[("reason", "store_forgot")]);
}

type Labels<'a> = &'a [(&'static str, &'static str)];

#[cfg(feature = "metrics")]
mod sink {
    use metrics::Unit::{Count, Seconds};
    use metrics::{
        counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    };

    use super::*;

    /// Describes the metrics to the recorder, if there is one.
    pub(crate) fn describe() {
        describe_counter!(
            ACQUIRES,
            Count,
            "Acquires of locks and sets of locks that ended"
        );
        describe_histogram!(WAIT, Seconds, "From the call of an acquire to its end");
        describe_histogram!(
            QUEUE,
            Count,
            "Nodes ahead of a contender when it joins the queue"
        );
        describe_counter!(GRANTS, Count, "Locks that an owner came to hold");
        describe_counter!(
            HANDOFFS,
            Count,
            "Grants on a node that was kept within the process"
        );
        describe_histogram!(
            HOLD,
            Seconds,
            "From the grant of a lock to its release or loss"
        );
        describe_counter!(
            RELEASES,
            Count,
            "Releases that were awaited, by how they ended"
        );
        describe_counter!(LOSSES, Count, "Locks that were lost while they were held");
        describe_gauge!(
            CLEANUPS,
            Count,
            "Lock nodes that are being deleted in the background"
        );
        describe_gauge!(PENDING, Count, "Acquires that have not ended");
        describe_gauge!(SESSIONS, Count, "Sessions that are not closed");
        describe_counter!(
            SESSIONS_LOST,
            Count,
            "Store sessions that were not ended by their service"
        );
        show_zeros();
    }

    /// Shows what alerts read before anything is counted. A monitor sees no increase when a counter
    /// appears with its first event.
    fn show_zeros() {
        let show = |name: &'static str, labels: Labels<'_>| counter!(name, labels).increment(0);
        for kind in LockKind::ALL.map(LockKind::as_str) {
            for reason in [
                "session_expired",
                "session_closed",
                "deadline_passed",
                "node_removed",
            ] {
                show(LOSSES, &[("kind", kind), ("reason", reason)]);
            }
            for outcome in ["lost", "refused"] {
                show(RELEASES, &[("kind", kind), ("outcome", outcome)]);
            }
        }
        for reason in ["expired", "closed", "auth_failed", "store_forgot"] {
            show(SESSIONS_LOST, &[("reason", reason)]);
        }
        for health in ["connecting", "connected", "disconnected"] {
            add(SESSIONS, &[("health", health)], 0.0);
        }
    }

    pub(super) fn count(name: &'static str, labels: Labels<'_>) {
        counter!(name, labels).increment(1);
    }

    pub(super) fn record(name: &'static str, labels: Labels<'_>, value: impl FnOnce() -> f64) {
        histogram!(name, labels).record(value());
    }

    pub(super) fn add(name: &'static str, labels: Labels<'_>, difference: f64) {
        gauge!(name, labels).increment(difference);
    }
}

#[cfg(not(feature = "metrics"))]
mod sink {
    use super::Labels;

    pub(crate) fn describe() {}

    pub(super) fn count(_: &'static str, _: Labels<'_>) {}

    pub(super) fn record(_: &'static str, _: Labels<'_>, _: impl FnOnce() -> f64) {}

    pub(super) fn add(_: &'static str, _: Labels<'_>, _: f64) {}
}
