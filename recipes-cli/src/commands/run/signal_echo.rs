//! Whether a signal that `lockctl` got was sent to all of its process group.
//!
//! Ctrl-C reaches a whole job of a shell: `lockctl`, the supervisor and the command, which must not
//! get it again. `kill -INT` of `lockctl` alone reaches only `lockctl`, and is meant for the
//! command. The kernel signals a group at once. So the supervisor, which gets no other signals,
//! gets an echo of each signal that the command has got too.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

/// A signal that reaches this process together with an order is noticed within this time, because
/// both wait in the kernel.
const NOTICED_WITHIN: Duration = Duration::from_millis(50);
/// A signal that reached this process longer ago does not belong to an order.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);

/// Signals that reached this process, and those that it may have to pass on.
#[derive(Debug, Default)]
pub(crate) struct SignalEcho {
    seen: VecDeque<(Signal, Instant)>,
    ordered: VecDeque<(Signal, Instant)>,
}

impl SignalEcho {
    /// This process got the signal.
    pub(crate) fn note_seen(&mut self, signal: Signal, now: Instant) {
        self.seen.push_back((signal, now));
    }

    /// `lockctl` got the signal, and has ordered that the command get it.
    pub(crate) fn note_ordered(&mut self, signal: Signal, now: Instant) {
        self.ordered.push_back((signal, now + NOTICED_WITHIN));
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.ordered.front().map(|(_, due)| *due)
    }

    /// Takes the signal whose decision is due. Returns it if the command has not got it.
    pub(crate) fn decide(&mut self, now: Instant) -> Option<Signal> {
        self.seen
            .retain(|(_, since)| now.saturating_duration_since(*since) < FORGOTTEN_AFTER);
        let (signal, _) = self.ordered.pop_front()?;
        let seen = self.seen.iter().position(|(it, _)| *it == signal);
        match seen {
            Some(place) => {
                self.seen.remove(place);
                None
            }
            None => Some(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;
    use tokio::time::Instant;

    use super::{FORGOTTEN_AFTER, SignalEcho};

    #[test]
    fn each_that_was_seen_answers_for_one() {
        let now = Instant::now();
        let mut echo = SignalEcho::default();
        assert_eq!((echo.due(), echo.decide(now)), (None, None));
        echo.note_ordered(Signal::INT, now);
        echo.note_ordered(Signal::INT, now);
        echo.note_ordered(Signal::QUIT, now);
        // The signal may be noticed after the order, or before.
        echo.note_seen(Signal::INT, now);
        let answers = [(); 3].map(|()| {
            assert!(echo.due().unwrap() > now);
            echo.decide(now)
        });
        assert_eq!(answers, [None, Some(Signal::INT), Some(Signal::QUIT)]);
        assert_eq!(echo.due(), None);
    }

    #[test]
    fn what_was_seen_long_ago_was_another() {
        let now = Instant::now();
        let mut echo = SignalEcho::default();
        echo.note_seen(Signal::INT, now);
        echo.note_ordered(Signal::INT, now + FORGOTTEN_AFTER);
        assert_eq!(echo.decide(now + FORGOTTEN_AFTER), Some(Signal::INT));
    }
}
