//! The clock for deadlines, which goes on while this machine is suspended.

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
