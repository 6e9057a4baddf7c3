//! How long this machine has been suspended: time that tokio's clock does not count.
//!
//! `CLOCK_MONOTONIC`, which tokio and `std` read, stands still while a machine sleeps. The clocks
//! of a store go on, and so does `CLOCK_BOOTTIME`.

use std::time::Duration;

/// A smaller difference is the time between two readings, not sleep. Sessions live for seconds.
#[cfg(any(test, target_os = "linux"))]
const RESOLUTION: Duration = Duration::from_millis(50);

/// How long this machine has been suspended since it was started, in steps of 50 ms; zero if the
/// system does not report it.
#[cfg(target_os = "linux")]
pub fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |id| {
        let now = clock_gettime(id);
        Duration::try_from(now).unwrap_or_default()
    };
    between(|| read(ClockId::Monotonic), || read(ClockId::Boottime))
}

#[cfg(not(target_os = "linux"))]
pub fn suspended() -> Duration {
    Duration::ZERO
}

/// The difference of two clocks of which one counts sleep. A thread that does not run between two
/// readings must not be taken for a machine that slept.
#[cfg(any(test, target_os = "linux"))]
fn between(awake: impl Fn() -> Duration, always: impl Fn() -> Duration) -> Duration {
    loop {
        let (before, all, after) = (awake(), always(), awake());
        // Ends with the first readings that are not interrupted.
        if after.saturating_sub(before) < RESOLUTION {
            let slept = all.saturating_sub(after);
            let steps = slept.as_millis() / RESOLUTION.as_millis();
            return RESOLUTION * u32::try_from(steps).unwrap_or(u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn sleep_is_what_only_one_clock_counts() {
        assert_eq!(between(|| 5 * SECOND, || 5 * SECOND), Duration::ZERO);
        assert_eq!(between(|| 5 * SECOND, || 65 * SECOND), 60 * SECOND);
    }

    #[test]
    fn thread_that_is_halted_between_readings_has_not_slept() {
        let readings = Cell::new(0);
        let now = Cell::new(10 * SECOND);
        let read = || {
            readings.set(readings.get() + 1);
            // The thread halts after the first reading.
            if readings.get() == 2 {
                now.set(now.get() + 3 * SECOND);
            }
            now.get()
        };
        assert_eq!(between(read, read), Duration::ZERO);
        assert!(readings.get() > 3);
    }

    #[test]
    fn this_machine_tells_the_same_twice_unless_it_sleeps() {
        let (once, again) = (suspended(), suspended());
        assert!(again >= once);
    }
}
