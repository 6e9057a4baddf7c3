//! When the command of `run` must end if no more heartbeats are answered.
//!
//! Times are parts of the session timeout T, from the last heartbeat that the ensemble answered:
//!
//! | | `term` | `kill` | |
//! |---|---|---|---|
//! | 1/6 | | | the next heartbeat is due, and moves everything below by as much |
//! | 1/3 | SIGTERM | | one heartbeat is missing and the next is due |
//! | 11/24 | SIGKILL | | so that no process is left at the loss |
//! | 1/2 | | SIGKILL | the lock is lost |
//! | 11/20 | | | the ensemble may let the next contender in, at the earliest |
//!
//! A SIGTERM is not taken back when the connection returns after it.

use std::time::Duration;

use tokio::time::Instant;

use crate::args::OnLost;

/// When to do what; `None` means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) ask_at: Option<Instant>,
    pub(crate) kill_at: Option<Instant>,
}

impl Schedule {
    /// `lease` is how long a lock lasts after a heartbeat: half the session timeout.
    pub(crate) fn of(on_lost: OnLost, lost_at: Instant, lease: Duration) -> Self {
        match on_lost {
            OnLost::Term => Self {
                ask_at: lost_at.checked_sub(lease / 3),
                kill_at: lost_at.checked_sub(lease / 12),
            },
            OnLost::Kill => Self {
                ask_at: None,
                kill_at: Some(lost_at),
            },
            OnLost::Ignore => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Schedule;
    use crate::args::OnLost;

    #[test]
    fn command_is_asked_before_it_is_killed_and_killed_before_the_loss() {
        let lease = Duration::from_secs(6);
        let lost_at = Instant::now() + lease;
        let schedule = Schedule::of(OnLost::Term, lost_at, lease);
        assert_eq!(schedule.ask_at, Some(lost_at - Duration::from_secs(2)));
        assert_eq!(schedule.kill_at, Some(lost_at - Duration::from_millis(500)));
    }

    #[test]
    fn nothing_is_done_in_advance_where_it_was_not_asked_for() {
        let lease = Duration::from_secs(6);
        let lost_at = Instant::now() + lease;
        let killed = Schedule::of(OnLost::Kill, lost_at, lease);
        assert_eq!((killed.ask_at, killed.kill_at), (None, Some(lost_at)));
        let ignored = Schedule::of(OnLost::Ignore, lost_at, lease);
        assert_eq!(ignored, Schedule::default());
    }
}
