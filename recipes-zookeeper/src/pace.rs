//! How long a server may take, and how long pauses are. No I/O.

use std::time::Duration;

/// The shortest time that a server gets to answer, whatever the session timeout is.
pub(crate) const ANSWER_MIN: Duration = Duration::from_millis(250);

/// The longest that the first one gets.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The longest pause between attempts to connect again, whatever the session timeout is.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest pause between attempts.
pub(crate) fn pause_max(timeout: Duration) -> Duration {
    (timeout / 24).min(PAUSE_MAX)
}

/// The longest pause between looks at one of so many servers. A lock is valid for T/2 after a heartbeat was sent,
/// which are T/6 apart: what of this an outage leaves must be enough to come back.
pub(crate) fn look_pause(timeout: Duration, servers: usize) -> Duration {
    let servers = u32::try_from(servers).unwrap_or(u32::MAX);
    (timeout / 96)
        .saturating_mul(servers)
        .min(pause_max(timeout))
}

/// How long to wait before one of so many servers is looked at again, after a look that took so long. Looks are
/// [`look_pause`] apart by their beginnings: a server that was silent and then closes the connection is back.
/// All whose connections it closes then come at different times.
pub(crate) fn rest(timeout: Duration, servers: usize, took: Duration) -> Duration {
    let until_next = jittered(look_pause(timeout, servers)).saturating_sub(took);
    until_next.max(look_pause(timeout, 1).mul_f64(fastrand::f64()))
}

/// How long a server may take to let a session in: a twelfth of the session timeout, and more if none was in
/// time. Servers to which thousands come back at once are slow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    pub(crate) const MOST: Self = Self(2);

    pub(crate) fn more(self) -> Self {
        Self((self.0 + 1).min(Self::MOST.0))
    }

    /// Whether one was not in time.
    pub(crate) fn is_tried(self) -> bool {
        self.0 > 0
    }

    pub(crate) fn of(self, timeout: Duration) -> Duration {
        let times = self.0 + 1;
        (timeout * times / 12).clamp(ANSWER_MIN, ANSWER_MAX * times)
    }
}

/// A pause of half of this time, or more: what failed together does not come back together.
pub(crate) fn jittered(longest: Duration) -> Duration {
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    #[test]
    fn server_has_a_twelfth_of_the_timeout_and_up_to_a_quarter_if_none_was_in_time() {
        let mut patience = Patience::default();
        assert!(!patience.is_tried());
        for twelfths in [1, 2, 3, 3] {
            assert_eq!(patience.of(T), T * twelfths / 12);
            patience = patience.more();
        }
        assert!(patience.is_tried());
        assert_eq!(patience.of(T), Patience::MOST.of(T));
        assert_eq!(patience.of(Duration::from_secs(1)), ANSWER_MIN);
        // Whoever gave up earlier and earlier of a long timeout would ask a slow server again and again.
        assert_eq!(Patience::default().of(100 * T), ANSWER_MAX);
        assert_eq!(patience.of(100 * T), 3 * ANSWER_MAX);
    }

    #[test]
    fn server_that_ends_a_long_look_is_asked_again_as_soon_as_a_lone_one() {
        let outage = T / 3 - T / 48;
        assert!(T / 6 + outage + look_pause(T, 1) < T / 2);
        for servers in [1, 3, 100] {
            for took in [look_pause(T, servers), T / 12, T] {
                assert!(T / 6 + outage + rest(T, servers, took) < T / 2);
            }
            let rests: Vec<_> = (0..100).map(|_| rest(T, servers, T)).collect();
            let least = look_pause(T, 1) / 4;
            assert!(rests.iter().any(|it| *it < least) && rests.iter().any(|it| *it > 3 * least));
            assert!(rest(T, servers, Duration::ZERO) >= look_pause(T, servers) / 2);
            assert!(rest(T, servers, Duration::ZERO) <= look_pause(T, servers));
        }
    }

    #[test]
    fn many_servers_are_not_asked_more_often_than_one() {
        assert_eq!(look_pause(T, 1), T / 96);
        assert_eq!(look_pause(T, 3), T / 32);
        for servers in [4, 100, usize::MAX] {
            assert_eq!(look_pause(T, servers), pause_max(T));
        }
        assert_eq!(pause_max(100 * T), PAUSE_MAX);
    }

    /// How many of ten thousand sessions come at each of eighty moments.
    fn at_each_moment(pause: impl Fn() -> Duration, longest: Duration) -> [usize; 80] {
        let mut moments = [0; 80];
        for _ in 0..10_000 {
            let moment = pause().as_nanos() * 80 / longest.as_nanos();
            moments[usize::try_from(moment).unwrap().min(79)] += 1;
        }
        moments
    }

    #[test]
    fn ten_thousand_that_fail_together_come_back_in_all_moments_alike() {
        let after_a_round = at_each_moment(|| jittered(T), T);
        assert!(after_a_round[..40].iter().all(|it| *it == 0));
        assert!(
            after_a_round[40..]
                .iter()
                .all(|it| (150..=350).contains(it))
        );
        let after_a_silence = at_each_moment(|| rest(T, 3, T), look_pause(T, 1));
        assert!(after_a_silence.iter().all(|it| (60..=190).contains(it)));
    }
}
