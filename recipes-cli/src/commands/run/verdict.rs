//! From the end of the command of `run` to an exit code, and a line of text if more is to be said.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::signal_code;
use super::signals::PASSED_ON;
use super::wire::End;
use crate::exit::code;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended(End),
    /// The lock was lost, or about to be, before the command was started.
    NotStarted,
    /// A signal, such as Ctrl-C, ended the run before the command was started.
    Interrupted(i32),
    /// Its supervisor has failed with this exit code, and has reported why.
    Failed(u8),
    /// Its supervisor was killed, and the command with it.
    Killed,
}

impl Outcome {
    /// Takes the supervisor's report, whether the lock was lost before it could start anything, and
    /// how the supervisor itself has ended.
    pub(crate) fn of(
        report: Option<End>,
        is_lost_before: bool,
        supervisor: Option<ExitStatus>,
    ) -> Self {
        let is_asked = |signal: &i32| PASSED_ON.iter().any(|it| it.as_raw() == *signal);
        // The supervisor dies of such a signal only until it is ready to start anything.
        let asked = supervisor.and_then(|it| it.signal()).filter(is_asked);
        match (report, supervisor.and_then(|it| it.code())) {
            (Some(end), _) => Self::Ended(end),
            (None, Some(0)) => Self::NotStarted,
            (None, Some(code)) => Self::Failed(u8::try_from(code).unwrap_or(code::INTERNAL)),
            (None, None) if is_lost_before => Self::NotStarted,
            (None, None) => asked.map_or(Self::Killed, Self::Interrupted),
        }
    }
}

pub(crate) fn verdict(outcome: &Outcome, lost: Option<String>) -> (u8, Option<String>) {
    let is_about_to_be_lost = match outcome {
        Outcome::Ended(end) => end.for_the_lock,
        Outcome::NotStarted => true,
        Outcome::Interrupted(_) | Outcome::Failed(_) | Outcome::Killed => false,
    };
    let silent = || "the store does not answer".to_owned();
    let why = lost.or_else(|| is_about_to_be_lost.then(silent));
    match (outcome, why) {
        (Outcome::Ended(end), None) => (end.code(), None),
        (Outcome::Ended(end), Some(why)) => (code::LOST, Some(format!("{why}; the command {end}"))),
        (Outcome::NotStarted, why) => {
            let why = why.unwrap_or_default();
            let message = format!("{why}; the command was not started");
            (code::LOST, Some(message))
        }
        (Outcome::Interrupted(signal), None) => {
            let message = format!("ended by signal {signal} before the command was started");
            (signal_code(*signal), Some(message))
        }
        (Outcome::Interrupted(_), Some(why)) => (
            code::LOST,
            Some(format!("{why}; the command was not started")),
        ),
        (Outcome::Failed(code), None) => (*code, None),
        (Outcome::Failed(_), Some(why)) => (code::LOST, Some(why)),
        (Outcome::Killed, why) => {
            let code = why.as_ref().map_or(code::INTERNAL, |_| code::LOST);
            let why = why.map(|it| it + "; ").unwrap_or_default();
            let message = format!("{why}the command's supervisor was killed");
            (code, Some(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::super::wire::End;
    use super::{Outcome, verdict};

    fn said(report: Option<End>, wait_status: i32, lost: bool) -> (u8, String) {
        let outcome = Outcome::of(report, false, Some(ExitStatus::from_raw(wait_status)));
        let (code, message) = verdict(&outcome, lost.then(|| "gone".to_owned()));
        (code, message.unwrap_or_default())
    }

    fn end(code: i32, for_the_lock: bool) -> Option<End> {
        Some(End {
            code: Some(code),
            signal: None,
            for_the_lock,
        })
    }

    fn expected(code: u8, message: &str) -> (u8, String) {
        (code, message.to_owned())
    }

    #[test]
    fn code_of_a_command_is_passed_on_unless_the_lock_was_lost() {
        assert_eq!(said(end(3, false), 0, false), expected(3, ""));
        let lost = expected(76, "gone; the command ended with code 3");
        assert_eq!(said(end(3, false), 0, true), lost);
        assert_eq!(said(end(3, true), 0, true), lost);
        let silent = "the store does not answer; the command ended with code 3";
        assert_eq!(said(end(3, true), 0, false), expected(76, silent));
    }

    #[test]
    fn loss_before_the_start_is_a_loss() {
        let lost = expected(76, "gone; the command was not started");
        assert_eq!(said(None, 0, true), lost);
        let silent = "the store does not answer; the command was not started";
        assert_eq!(said(None, 0, false), expected(76, silent));
        let killed = Outcome::of(None, true, Some(ExitStatus::from_raw(9)));
        assert_eq!(killed, Outcome::NotStarted);
    }

    #[test]
    fn signal_before_the_start_is_no_fault_of_the_supervisor() {
        let interrupted = "ended by signal 2 before the command was started";
        assert_eq!(said(None, 2, false), expected(130, interrupted));
        let lost = expected(76, "gone; the command was not started");
        assert_eq!(said(None, 2, true), lost);
    }

    #[test]
    fn failed_supervisor_has_spoken_and_a_killed_one_has_not() {
        assert_eq!(said(None, 70 << 8, false), expected(70, ""));
        assert_eq!(said(None, 70 << 8, true), expected(76, "gone"));
        let killed = expected(70, "the command's supervisor was killed");
        assert_eq!(said(None, 9, false), killed);
        let lost = expected(76, "gone; the command's supervisor was killed");
        assert_eq!(said(None, 9, true), lost);
    }
}
