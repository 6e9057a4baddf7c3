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
        self.at.elapsed() + machine_slept().saturating_sub(self.slept)
    }
}

impl Default for Moment {
    fn default() -> Self {
        Self::now()
    }
}
