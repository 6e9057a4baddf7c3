//! When the command of `run` must end if no more heartbeats are answered.
//!
//! Times are parts of the session timeout T, from the last heartbeat that the store answered:
//!
//! | | `term` | `kill` | |
//! |---|---|---|---|
//! | 1/6 | | | the next heartbeat is due, and moves everything below by as much |
//! | 1/3 | SIGTERM | | one heartbeat is missing and the next is due |
//! | 11/24 | SIGKILL | | so that no process is left at the loss |
//! | 1/2 | | SIGKILL | the lock is lost |
//! | 61/120 | | | `lockctl` ends all itself if the supervisor has not reported that it has |
//! | 11/20 | | | the store may let the next contender in, at the earliest |
//!
//! So `lockctl` has T/24 left to end all that a halted supervisor does not end. The last row is for
//! a T of two ticks of the server. With more ticks, the next contender comes later.
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

/// When the supervisor must have reported that all processes are gone.
///
/// The loss was noticed at `noticed`. `lost_at` is the deadline that the supervisor got, if it got
/// one. If the loss came before it, the supervisor first learns of it now, and gets T/24. Otherwise
/// it has acted by itself, and gets T/120, because the next contender may come T/20 after the loss.
pub(crate) fn report_by(noticed: Instant, lost_at: Option<Instant>, lease: Duration) -> Instant {
    let after_order = noticed + lease / 12;
    let after_deadline = lost_at.map(|it| it.max(noticed) + lease / 60);
    after_deadline.map_or(after_order, |it| it.min(after_order))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Schedule, report_by};
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
    fn halted_supervisor_is_given_up_in_time_for_the_next_contender() {
        let timeout = Duration::from_secs(12);
        let lost_at = Instant::now();
        let next_at = lost_at + timeout / 20;
        let report_by = report_by(lost_at, Some(lost_at), timeout / 2);
        assert!(report_by > lost_at && report_by + timeout / 24 <= next_at);
    }

    /// As after Ctrl-Z and `fg`. It kills the command at the moment at which `lockctl` notices.
    #[test]
    fn supervisor_that_was_halted_with_lockctl_may_still_report() {
        let timeout = Duration::from_secs(12);
        let noticed = Instant::now() + timeout;
        let given = noticed + timeout / 120;
        assert_eq!(report_by(noticed, Some(Instant::now()), timeout / 2), given);
    }

    #[test]
    fn after_a_loss_without_warning_the_supervisor_has_time_to_kill_and_to_report() {
        let timeout = Duration::from_secs(12);
        let noticed = Instant::now();
        let given = noticed + timeout / 24;
        for lost_at in [None, Some(noticed + timeout / 6)] {
            assert_eq!(report_by(noticed, lost_at, timeout / 2), given);
        }
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
