//! Time that goes on while the machine sleeps.

use std::time::Duration;

use recipes_core::internal::machine_slept;
use tokio::time::Instant;

/// A moment on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    at: Instant,
    /// How long the machine had slept by then.
    slept: Duration,
}

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            slept: machine_slept(),
        }
    }

    /// By a clock that stands still while the machine sleeps.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// The time since then, asleep or not.
    pub fn elapsed(&self) -> Duration {
        Self::now().since(*self)
    }

    fn since(self, earlier: Self) -> Duration {
        let slept = self.slept.saturating_sub(earlier.slept);
        self.at.saturating_duration_since(earlier.at) + slept
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_while_the_machine_sleeps() {
        let (second, at) = (Duration::from_secs(1), Instant::now());
        let after = |awake, slept| Moment {
            at: at + second * awake,
            slept: second * slept,
        };
        assert_eq!(after(1, 7).since(after(0, 5)), second * 3);
        assert_eq!(after(1, 5).since(after(0, 5)), second);
        assert_eq!(after(0, 4).since(after(0, 5)), Duration::ZERO);
    }
}
