//! Since when the store does not answer a session, and with which error. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::nodes::NodesError;

/// Since when the store does not answer.
///
/// Only heartbeats count as requests that wait for an answer. Their replies are always taken at
/// once, but a reply to an acquire may wait for a future that nobody polls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    /// Whether a heartbeat is in flight.
    is_beating: bool,
    /// Since when there is no connection.
    cut_off: Option<Instant>,
    since: Option<Instant>,
    error: Option<NodesError>,
}

impl Silence {
    /// Notes that a heartbeat is sent.
    pub(crate) fn beat(&mut self, now: Instant) {
        self.is_beating = true;
        self.since.get_or_insert(now);
    }

    /// Notes that the heartbeat is over, which was answered or has failed.
    pub(crate) fn beat_ended(&mut self) {
        self.is_beating = false;
        if self.cut_off.is_none() && self.error.is_none() {
            self.since = None;
        }
    }

    /// Notes that the connection is lost; false if that is known already.
    pub(crate) fn cut_off(&mut self, now: Instant) -> bool {
        let is_news = self.cut_off.is_none();
        self.cut_off.get_or_insert(now);
        self.since.get_or_insert(now);
        is_news
    }

    /// Notes that a server accepted the session on a new connection. Returns how long there was
    /// none, if it was lost before.
    pub(crate) fn connected(&mut self, now: Instant) -> Option<Duration> {
        let lost_at = self.cut_off.take();
        self.answered(now);
        lost_at.map(|lost_at| now.saturating_duration_since(lost_at))
    }

    /// Notes an answer. One that was on its way when the connection broke does not end the silence.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.since = (self.is_beating || self.cut_off.is_some()).then_some(now);
        self.error = None;
    }

    /// Notes an error that is no answer.
    pub(crate) fn failed(&mut self, error: &NodesError, now: Instant) {
        self.since.get_or_insert(now);
        self.error = Some(error.clone());
    }

    /// How long the store has been silent; `None` if it answers, as far as is known.
    pub(crate) fn lasts(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| now.saturating_duration_since(since))
    }

    /// The last error of a request, if none was answered since.
    pub(crate) fn error(&self) -> Option<NodesError> {
        self.error.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{SECOND, unknown};

    #[test]
    fn heartbeat_without_an_answer_is_a_silence_since_the_last_answer() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        assert_eq!(silence.lasts(start), None);
        silence.beat(start);
        assert_eq!(silence.lasts(start + 2 * SECOND), Some(2 * SECOND));
        silence.answered(start + 3 * SECOND);
        assert_eq!(silence.lasts(start + 4 * SECOND), Some(SECOND));
        silence.beat_ended();
        assert_eq!(silence.lasts(start + 4 * SECOND), None);
    }

    #[test]
    fn silence_goes_on_over_requests_that_fail_until_an_answer() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        silence.beat(start);
        silence.failed(&unknown(), start + SECOND);
        silence.beat_ended();
        silence.failed(&unknown(), start + 2 * SECOND);
        assert_eq!(silence.lasts(start + 3 * SECOND), Some(3 * SECOND));
        assert!(matches!(silence.error(), Some(NodesError::Unknown(_))));
        silence.answered(start + 4 * SECOND);
        assert!(silence.error().is_none());
        assert_eq!(silence.lasts(start + 4 * SECOND), None);
    }

    #[test]
    fn what_is_over_or_answered_without_a_connection_ends_no_silence() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        assert!(silence.cut_off(start));
        silence.beat(start + SECOND);
        silence.beat_ended();
        assert_eq!(silence.lasts(start + 2 * SECOND), Some(2 * SECOND));
        silence.answered(start + 2 * SECOND);
        assert_eq!(silence.lasts(start + 3 * SECOND), Some(SECOND));
        let mut silence = Silence::default();
        silence.failed(&unknown(), start);
        assert_eq!(silence.lasts(start + SECOND), Some(SECOND));
    }

    #[test]
    fn lost_connection_is_a_silence_until_there_is_another() {
        let (mut silence, start) = (Silence::default(), Instant::now());
        assert_eq!(silence.connected(start), None);
        assert!(silence.cut_off(start));
        assert!(!silence.cut_off(start + SECOND));
        silence.beat(start + SECOND);
        silence.failed(&unknown(), start + 2 * SECOND);
        silence.beat_ended();
        assert_eq!(silence.lasts(start + 2 * SECOND), Some(2 * SECOND));
        assert_eq!(silence.connected(start + 3 * SECOND), Some(3 * SECOND));
        assert_eq!(silence.connected(start + 3 * SECOND), None);
        assert_eq!(silence.lasts(start + 4 * SECOND), None);
    }
}
