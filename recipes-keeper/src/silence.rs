//! How long sessions have been silent, as their store has it.

use std::time::Duration;

use crate::wire::duration;

/// A session, and for how long it has been silent.
pub type Silence = (i64, Duration);

/// The clocks of a store, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The server's clock when the two were written.
    pub last: i64,
    /// The store's own clock then, with which deadlines are compared.
    pub own: i64,
    /// The server's clock now.
    pub now: i64,
}

/// A session, as its store has it. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lives {
    /// Its number.
    pub id: i64,
    /// How long the store keeps it without a beat.
    pub timeout: i64,
    /// Until when it lives, by the store's own clock.
    pub deadline: i64,
}

impl Clocks {
    /// The silence of a session, if it [is long](is_long).
    pub fn silence(self, session: Lives) -> Option<Silence> {
        let heard = session.deadline.saturating_sub(session.timeout);
        // Nobody has called since the clocks were written, or they would be later. So all of that time counts, of which
        // the store's own clock will count one step.
        let since = self.now.saturating_sub(self.last).max(0);
        let silence = self.own.saturating_add(since).saturating_sub(heard);
        let silence = duration(silence);
        is_long(silence, duration(session.timeout)).then_some((session.id, silence))
    }
}

/// Whether a session that has been silent for so long is worth a word: for half of its timeout, and the part of it that a
/// store may leave out when it notes that it was heard. A holder of ours has given up by then, and a client of another
/// program that sends a heartbeat each third of its timeout has missed one.
pub fn is_long(silence: Duration, timeout: Duration) -> bool {
    silence > timeout / 2 + timeout / 24
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn silence(clocks: [i64; 3], deadline: i64) -> Option<u64> {
        let [last, own, now] = clocks.map(|it| it * SECOND);
        let clocks = Clocks { last, own, now };
        let session = Lives {
            id: 7,
            timeout: 12 * SECOND,
            deadline: deadline * SECOND,
        };
        clocks.silence(session).map(|(id, silence)| {
            assert_eq!(id, 7);
            silence.as_secs()
        })
    }

    #[test]
    fn silence_is_told_once_it_is_longer_than_half_of_the_timeout_and_what_is_left_out() {
        // Heard when the store's own clock was 100.
        assert_eq!(silence([5_000, 106, 5_000], 112), None);
        assert_eq!(silence([5_000, 107, 5_000], 112), Some(7));
        let session = Duration::from_secs(24);
        assert!(!is_long(session * 13 / 24, session));
        assert!(is_long(
            session * 13 / 24 + Duration::from_micros(1),
            session
        ));
    }

    /// The store's own clock stands still meanwhile.
    #[test]
    fn time_in_which_nobody_was_there_counts() {
        assert_eq!(silence([5_000, 101, 5_048], 112), Some(49));
    }

    #[test]
    fn clock_that_was_set_back_makes_nobody_silent() {
        assert_eq!(silence([5_000, 101, 10], 112), None);
    }
}
