//! Whether a signal that `lockctl` got was sent to all of its process group.
//!
//! Ctrl-C reaches a whole job of a shell: `lockctl`, the supervisor and the command, which must not
//! get it again. `kill -INT` of `lockctl` alone reaches only `lockctl`, and is meant for the
//! command. The kernel signals a group at once. So the supervisor, which gets no other signals, is
//! the witness.

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
pub(crate) struct Witness {
    seen: VecDeque<(Signal, Instant)>,
    asked: VecDeque<(Signal, Instant)>,
}

impl Witness {
    /// This process got the signal.
    pub(crate) fn see(&mut self, signal: Signal, now: Instant) {
        self.seen.push_back((signal, now));
    }

    /// `lockctl` got the signal.
    pub(crate) fn ask(&mut self, signal: Signal, now: Instant) {
        self.asked.push_back((signal, now + NOTICED_WITHIN));
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.asked.front().map(|(_, due)| *due)
    }

    /// Takes the signal whose decision is due. Returns it if the command has not got it.
    pub(crate) fn decide(&mut self, now: Instant) -> Option<Signal> {
        self.seen
            .retain(|(_, since)| now.saturating_duration_since(*since) < FORGOTTEN_AFTER);
        let (signal, _) = self.asked.pop_front()?;
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

    use super::{FORGOTTEN_AFTER, Witness};

    #[test]
    fn each_that_was_seen_answers_for_one() {
        let now = Instant::now();
        let mut witness = Witness::default();
        assert_eq!((witness.due(), witness.decide(now)), (None, None));
        witness.ask(Signal::INT, now);
        witness.ask(Signal::INT, now);
        witness.ask(Signal::QUIT, now);
        // The signal may be noticed after the order, or before.
        witness.see(Signal::INT, now);
        let answers = [(); 3].map(|()| {
            assert!(witness.due().unwrap() > now);
            witness.decide(now)
        });
        assert_eq!(answers, [None, Some(Signal::INT), Some(Signal::QUIT)]);
        assert_eq!(witness.due(), None);
    }

    #[test]
    fn what_was_seen_long_ago_was_another() {
        let now = Instant::now();
        let mut witness = Witness::default();
        witness.see(Signal::INT, now);
        witness.ask(Signal::INT, now + FORGOTTEN_AFTER);
        assert_eq!(witness.decide(now + FORGOTTEN_AFTER), Some(Signal::INT));
    }
}
