//! Why an acquire ran out of time, judged by what is known without another request. Pure.
//!
//! An outage is no contention: a caller that is late because the store is silent acts differently
//! from one that is late because a contender is ahead.

use std::time::Duration;

use tokio::time::Instant;

/// A store that is healthy answers within this time, even if its disk is slow for a moment. After
/// that, an attempt that knows a contender ahead is late because of the store as well.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// What an attempt waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Answers of the store, before anything is known of other contenders.
    Answers,
    /// A listing that shows the contenders ahead of this member, or that there are none.
    Listing(usize),
    /// The deletion of another contender's node.
    Contender(Ahead),
    /// A semaphore with as many permits as are wanted.
    Permits,
}

/// The nearest contender ahead of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ahead {
    pub(crate) member: usize,
    /// Last part of the path of its node.
    pub(crate) node: String,
}

/// How far an attempt has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    ahead: Option<Ahead>,
    /// Whether a contender was ahead of any member.
    was_busy: bool,
    /// Since when answers to the attempt's own requests are awaited.
    asked: Option<Instant>,
}

impl Progress {
    /// Notes what is awaited after an event.
    pub(crate) fn note(&mut self, awaited: Awaited, now: Instant) {
        let ahead = self.ahead.take();
        match awaited {
            Awaited::Contender(ahead) => {
                self.ahead = Some(ahead);
                self.was_busy = true;
                self.asked = None;
            }
            Awaited::Listing(member) => {
                // Until the listing arrives, the contender of the last one counts.
                self.ahead = ahead.filter(|it| it.member == member);
                self.asked = Some(now);
            }
            Awaited::Permits => {
                self.was_busy = true;
                self.asked = None;
            }
            Awaited::Answers => self.asked = Some(now),
        }
    }

    /// The contender that was last known to be ahead.
    pub(crate) fn ahead(self) -> Option<Ahead> {
        self.ahead
    }

    /// How it looks to a contender that waits for the one that makes the attempt.
    pub(crate) fn of_another(self) -> Self {
        Self {
            asked: None,
            ..self
        }
    }
}

/// Whether the store answers a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// No store session is open.
    NoSession,
    /// There is no connection, and no answer for this long.
    Lost(Duration),
    /// There is a connection. `Some` if no request was answered for this long.
    Up(Option<Duration>),
    /// As `Up`, and nothing is granted for `left`.
    Quarantined {
        left: Duration,
        silence: Option<Duration>,
    },
}

/// Why an acquire ran out of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// A contender is ahead; `None` if it is not known which.
    Busy(Option<Ahead>),
    /// The store has not answered for this long.
    Silent(Duration),
    /// The store grants nothing for so long.
    Quarantined(Duration),
    /// The store session ended, and another one is being opened.
    NoSession,
}

/// Finds out why an attempt that came this far ran out of time.
pub(crate) fn delay(progress: Progress, contact: Contact, now: Instant) -> Delay {
    let Progress {
        ahead,
        was_busy,
        asked,
    } = progress;
    let unanswered = asked.map(|asked| now.saturating_duration_since(asked));
    let silence = match contact {
        Contact::NoSession => return Delay::NoSession,
        Contact::Lost(silence) => {
            return Delay::Silent(silence.max(unanswered.unwrap_or_default()));
        }
        Contact::Up(silence) => silence.max(unanswered),
        // The attempt has not asked for anything. The session does.
        Contact::Quarantined { left, silence } => match silence {
            Some(silence) if silence > ANSWER_MAX => return Delay::Silent(silence),
            _ if was_busy => return Delay::Busy(ahead),
            _ => return Delay::Quarantined(left),
        },
    };
    match silence {
        // Its own request has no answer, and that is all there is to say.
        Some(silence) if !was_busy && unanswered.is_some() => Delay::Silent(silence),
        Some(silence) if silence > ANSWER_MAX => Delay::Silent(silence),
        _ => Delay::Busy(ahead),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);
    const CONNECTED: Contact = Contact::Up(None);

    fn ahead(member: usize) -> Ahead {
        let node = "_c_a-lock-0000000007".to_owned();
        Ahead { member, node }
    }

    fn after(awaited: impl IntoIterator<Item = Awaited>, now: Instant) -> Progress {
        let mut progress = Progress::default();
        awaited.into_iter().for_each(|it| progress.note(it, now));
        progress
    }

    #[test]
    fn contender_ahead_is_the_reason_while_the_store_answers() {
        let now = Instant::now();
        let waiting = after([Awaited::Answers, Awaited::Contender(ahead(0))], now);
        let busy = Delay::Busy(Some(ahead(0)));
        assert_eq!(
            delay(waiting.clone(), CONNECTED, now + 60 * ANSWER_MAX),
            busy
        );
        // A heartbeat may be in flight.
        assert_eq!(delay(waiting, Contact::Up(Some(MILLI)), now), busy);
    }

    #[test]
    fn outage_is_the_reason_whoever_is_ahead() {
        let now = Instant::now();
        let long = 2 * ANSWER_MAX;
        let waiting = after([Awaited::Contender(ahead(0))], now);
        let silent = Delay::Silent(long);
        assert_eq!(delay(waiting.clone(), Contact::Lost(long), now), silent);
        assert_eq!(delay(waiting.clone(), Contact::Up(Some(long)), now), silent);
        assert_eq!(delay(waiting, Contact::NoSession, now), Delay::NoSession);
    }

    #[test]
    fn quarantine_is_the_reason_unless_somebody_is_ahead() {
        let now = Instant::now();
        let quarantined = Contact::Quarantined {
            left: MILLI,
            silence: Some(MILLI),
        };
        let late = now + 2 * ANSWER_MAX;
        let asking = after([Awaited::Answers], now);
        assert_eq!(delay(asking, quarantined, late), Delay::Quarantined(MILLI));
        let waiting = after([Awaited::Contender(ahead(0))], now);
        let busy = Delay::Busy(Some(ahead(0)));
        assert_eq!(delay(waiting.clone(), quarantined, late), busy);
        // A store that does not answer is silent then, too.
        let (left, silence) = (MILLI, Some(2 * ANSWER_MAX));
        let silent = Contact::Quarantined { left, silence };
        for progress in [Progress::default(), waiting] {
            let delay = delay(progress, silent, late);
            assert_eq!(delay, Delay::Silent(2 * ANSWER_MAX));
        }
    }

    #[test]
    fn attempt_that_knows_no_contender_waits_for_the_store_however_short() {
        let now = Instant::now();
        let asking = after([Awaited::Answers], now);
        assert_eq!(delay(asking, CONNECTED, now + MILLI), Delay::Silent(MILLI));
    }

    #[test]
    fn contender_counts_while_its_lock_is_listed_again_and_not_after() {
        let now = Instant::now();
        let listing = [Awaited::Contender(ahead(1)), Awaited::Listing(1)];
        let listing = after(listing, now);
        let busy = Delay::Busy(Some(ahead(1)));
        assert_eq!(delay(listing.clone(), CONNECTED, now + MILLI), busy);
        let late = now + 2 * ANSWER_MAX;
        assert_eq!(
            delay(listing, CONNECTED, late),
            Delay::Silent(2 * ANSWER_MAX)
        );
        // What took its time was a contender, and the store answers. But which contender does not
        // count any more.
        for next in [Awaited::Listing(0), Awaited::Answers] {
            let next = after([Awaited::Contender(ahead(1)), next], now);
            let soon = delay(next.clone(), CONNECTED, now + MILLI);
            assert_eq!(soon, Delay::Busy(None));
            let silent = Delay::Silent(2 * ANSWER_MAX);
            assert_eq!(delay(next, CONNECTED, late), silent);
        }
    }

    #[test]
    fn contender_of_this_session_is_the_reason_for_one_that_waits_for_it() {
        let now = Instant::now();
        let asking = after([Awaited::Answers], now).of_another();
        assert_eq!(
            delay(asking, Contact::Up(Some(MILLI)), now),
            Delay::Busy(None)
        );
    }
}
