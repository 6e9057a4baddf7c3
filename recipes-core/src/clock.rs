//! The clock for deadlines, which goes on while this machine is suspended; durations as text.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::Store;

/// A time on a clock that goes on while the machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Instant);

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

#[cfg(test)]
impl Default for Moment {
    fn default() -> Self {
        Self(Instant::now())
    }
}

/// The clock for a session's deadline.
#[derive(Clone)]
pub(crate) struct Clock {
    store: Arc<dyn Store>,
    suspended_before: Duration,
}

impl Clock {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Arc::clone(store),
            suspended_before: store.suspended(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(Instant::now() + self.suspended())
    }

    /// This moment in the time of tokio's timers, if the machine does not sleep until then.
    pub(crate) fn timer(&self, moment: Moment) -> Instant {
        // A moment before the start of the process has passed in any case.
        moment.0.checked_sub(self.suspended()).unwrap_or(moment.0)
    }

    fn suspended(&self) -> Duration {
        let suspended = self.store.suspended();
        suspended.saturating_sub(self.suspended_before)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock")
            .field("suspended", &self.suspended())
            .finish_non_exhaustive()
    }
}

/// A duration as people say it: one unit, and at most one decimal.
#[must_use]
pub fn human(duration: Duration) -> String {
    const UNITS: [(&str, f64, f64); 4] = [
        ("ms", 0.001, 1000.0),
        ("s", 1.0, 120.0),
        ("min", 60.0, 120.0),
        ("h", 3600.0, f64::INFINITY),
    ];
    let in_unit = |length: f64| (duration.as_secs_f64() / length * 10.0).round() / 10.0;
    let units = UNITS
        .iter()
        .map(|(unit, length, end)| (unit, in_unit(*length), end));
    let mut fitting = units.filter(|(_, count, end)| count < *end);
    match fitting.next() {
        Some((unit, count, _)) if count > 0.0 => format!("{count} {unit}"),
        _ => "0 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::human;

    #[test]
    fn durations_have_one_unit_and_no_digits_that_nobody_reads() {
        for (micros, expected) in [
            (0, "0 s"),
            (20, "0 s"),
            (1_500, "1.5 ms"),
            (700_000, "700 ms"),
            (999_980, "1 s"),
            (1_000_000, "1 s"),
            (1_500_321, "1.5 s"),
            (15_000_000, "15 s"),
            (119_960_000, "2 min"),
            (300_000_000, "5 min"),
            (7_200_000_000, "2 h"),
            (2_147_483_647_000, "596.5 h"),
        ] {
            assert_eq!(human(Duration::from_micros(micros)), expected);
        }
    }
}
