//! How often a session asks for its news.

use std::time::Duration;

/// The first look after a watch was set: what happened to the node while it was being set, nobody tells.
const FIRST: Duration = Duration::from_millis(1);
/// As [`FIRST`], where the bell is most often there before.
const FIRST_RUNG: Duration = Duration::from_millis(2);
/// Between two looks of who is next in line, where nobody rings; later a [`PART`] of the wait so far.
const NEXT_IN_LINE: Duration = Duration::from_millis(2);
/// Who has waited for a second learns of a release within 20 ms. Who stands by for a leader has the server answer ten
/// looks a second, and not 500.
const PART: u32 = 50;
/// Between two looks of who is far behind.
const BEHIND: Duration = Duration::from_millis(100);
/// Between two looks where the bell works.
const RUNG: Duration = Duration::from_millis(500);
/// A look that takes longer, as the session watches very much, does not keep the server busy: see [`REST`].
const LONG: Duration = Duration::from_millis(5);
/// The pause after a long look, in times of its own.
const REST: u32 = 4;
/// So many news without a bell, one after the other, are no coincidence.
const UNRUNG_MAX: u32 = 3;

/// How often a session asks for its news: at once when the bell rings; otherwise soon after a watch was
/// set, then less and less often, down to a rate that depends on how far behind it is in the queue.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Whether the bell works, as far as is known. Behind a pooler it never rings, and no error says so.
    is_rung: bool,
    unrung: u32,
    pause: Duration,
    cap: Duration,
    ahead: Option<u64>,
    /// The pauses since a watch was set, or somebody ahead went.
    waited: Duration,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            is_rung: false,
            unrung: 0,
            pause: BEHIND,
            cap: BEHIND,
            ahead: None,
            waited: Duration::ZERO,
        }
    }

    /// Whether the next poll has to tell how far behind the session is.
    pub(crate) fn wants_ahead(&self) -> bool {
        !self.is_rung
    }

    /// Whether the bell works. It does if it has just rung.
    pub(crate) fn rings(&mut self, rings: bool) {
        self.is_rung = rings;
        self.unrung = 0;
    }

    /// Watches were set. Returns how long the next look can wait.
    pub(crate) fn watched(&mut self) -> Duration {
        self.waited = Duration::ZERO;
        self.pause = match self.is_rung {
            true => FIRST_RUNG,
            false => FIRST,
        };
        self.pause
    }

    /// A look is over that took so long. Returns when the next begins, after the beginning of that.
    pub(crate) fn polled(&mut self, looked: &Looked) -> Duration {
        if looked.has_news && !looked.was_told {
            self.unrung += 1;
            if self.unrung >= UNRUNG_MAX {
                self.is_rung = false;
            }
        }
        if looked.ahead < self.ahead {
            self.waited = Duration::ZERO;
        }
        self.ahead = looked.ahead;
        if self.is_rung {
            self.cap = RUNG;
        } else if let Some(ahead) = looked.ahead {
            let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
            let next = NEXT_IN_LINE.max(self.waited / PART);
            self.cap = next.saturating_mul(ahead).min(BEHIND);
        } else {
            self.cap = BEHIND;
        }
        if self.is_rung && looked.is_still {
            self.pause = self.cap;
        }
        let pause = self.pause.min(self.cap);
        self.pause = pause * 2;
        let pause = match looked.took > LONG {
            true => pause.max(looked.took * (1 + REST)),
            false => pause,
        };
        self.waited += pause;
        pause
    }
}

/// What a look was like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looked {
    pub(crate) has_news: bool,
    /// It was asked for by the bell, or because of a change of the session's own.
    pub(crate) was_told: bool,
    /// All watches were looked at, and nobody was changing a node: whoever does so from now on rings.
    pub(crate) is_still: bool,
    pub(crate) ahead: Option<u64>,
    pub(crate) took: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(pace: &mut Pace, looked: Looked, count: usize) -> Vec<u128> {
        let pauses = (0..count).map(|_| pace.polled(&looked).as_millis());
        pauses.collect()
    }

    fn rung() -> Pace {
        let mut pace = Pace::new();
        pace.rings(true);
        pace
    }

    fn behind(ahead: u64) -> Looked {
        Looked {
            ahead: Some(ahead),
            ..Looked::default()
        }
    }

    /// A standby for a leader would have the server answer 500 looks a second for as long as it stands by.
    #[test]
    fn who_waits_for_long_looks_less_often_and_learns_within_a_fiftieth_of_the_wait() {
        let mut pace = Pace::new();
        pace.watched();
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(60) {
            let pause = pace.polled(&behind(0));
            let late = (waited / 50).clamp(NEXT_IN_LINE, BEHIND);
            assert!(pause <= late, "{pause:?} after {waited:?}");
            waited += pause;
            looks += 1;
        }
        assert!(looks < 1_000, "{looks} looks in a minute");
        // It watches the next node.
        pace.watched();
        assert_eq!(polls(&mut pace, behind(0), 3), [1, 2, 2]);
    }

    #[test]
    fn who_is_next_in_line_looks_all_the_time_where_nobody_rings() {
        let mut pace = Pace::new();
        assert!(pace.wants_ahead());
        assert_eq!(pace.watched().as_millis(), 1);
        assert_eq!(polls(&mut pace, behind(0), 4), [1, 2, 2, 2]);
        pace.watched();
        assert_eq!(polls(&mut pace, behind(2), 5), [1, 2, 4, 6, 6]);
        pace.watched();
        assert_eq!(
            polls(&mut pace, behind(90), 9),
            [1, 2, 4, 8, 16, 32, 64, 100, 100]
        );
        // It has come nearer.
        assert_eq!(polls(&mut pace, behind(0), 2), [2, 2]);
    }

    #[test]
    fn looks_are_rare_where_the_bell_rings() {
        let mut pace = rung();
        assert!(!pace.wants_ahead());
        pace.watched();
        let pauses = polls(&mut pace, Looked::default(), 10);
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 500, 500]);
    }

    #[test]
    fn one_look_is_enough_where_the_bell_rings_and_nobody_is_changing_anything() {
        let still = Looked {
            is_still: true,
            ..Looked::default()
        };
        let mut pace = rung();
        assert_eq!(pace.watched().as_millis(), 2);
        assert_eq!(polls(&mut pace, still, 2), [500, 500]);
        let mut deaf = Pace::new();
        deaf.watched();
        assert_eq!(polls(&mut deaf, still, 3), [1, 2, 4]);
    }

    #[test]
    fn bell_that_does_not_ring_is_not_relied_on_until_it_does() {
        let mut pace = rung();
        let unrung = Looked {
            has_news: true,
            ahead: Some(0),
            ..Looked::default()
        };
        polls(&mut pace, unrung, 2);
        assert!(!pace.wants_ahead(), "may be a coincidence");
        pace.rings(true);
        polls(&mut pace, unrung, 2);
        assert!(!pace.wants_ahead());
        polls(&mut pace, unrung, 1);
        assert!(pace.wants_ahead());
        pace.rings(true);
        assert!(!pace.wants_ahead());
        let told = Looked {
            was_told: true,
            ..unrung
        };
        polls(&mut pace, told, 9);
        assert!(!pace.wants_ahead());
    }

    #[test]
    fn look_that_takes_long_is_followed_by_a_longer_pause() {
        let mut pace = Pace::new();
        let looked = Looked {
            took: Duration::from_millis(30),
            ..behind(0)
        };
        assert_eq!(polls(&mut pace, looked, 2), [150, 150]);
        // A machine that is busy with something else is no reason to look less often.
        let looked = Looked {
            took: Duration::from_millis(4),
            ..behind(0)
        };
        assert_eq!(polls(&mut pace, looked, 1), [300 / 50]);
    }
}
