//! How `lockctl` ends: errors, each with one line of text and an exit code.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::process::ExitCode;

use recipes_core::internal::log::Causes;
use recipes_core::{
    AcquireError, ConfigError, ConnectError, Error, LockKind, NodesError, QueryError,
};

use recipes_sql::{MySqlRefusal, PostgresRefusal};

use crate::output::messages;

/// Paths and answers may contain anything.
pub(crate) use recipes_core::internal::one_line;

/// Exit codes, as in `sysexits.h` where it has one.
pub(crate) mod code {
    /// The command line is wrong.
    pub(crate) const USAGE: u8 = 64;
    /// No such path, or no lock there.
    pub(crate) const NO_LOCK: u8 = 66;
    /// No connection to the store, or not any more.
    pub(crate) const NO_CONNECTION: u8 = 69;
    /// Another error, such as a refusal by the operating system.
    pub(crate) const INTERNAL: u8 = 70;
    pub(crate) const TIMED_OUT: u8 = 75;
    /// The lock was lost while the command ran.
    #[cfg(target_os = "linux")]
    pub(crate) const LOST: u8 = 76;
    /// The store does not permit it.
    pub(crate) const NO_PERMISSION: u8 = 77;
    /// `deadlocks` has found one.
    pub(crate) const DEADLOCK: u8 = 80;
    /// `deadlocks` has found what may be one, and nothing that certainly is.
    pub(crate) const POSSIBLE_DEADLOCK: u8 = 81;
    /// A signal ended it: the code is this plus its number, as in shells.
    #[cfg(target_os = "linux")]
    pub(crate) const SIGNAL: u8 = 128;
}

/// Why lockctl ends without having done its task.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    /// A refusal by the operating system.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        Self::new(code::INTERNAL, format!("cannot {what}: {error}"))
    }

    /// A refusal by the store, or no answer.
    pub(crate) fn refused(what: &str, error: &NodesError) -> Self {
        Self::new(code_of(error), format!("{what}: {}", chain(error)))
    }

    /// The same, with more text.
    pub(crate) fn with(self, more: &str) -> Self {
        Self::new(self.code, self.message + more)
    }

    pub(crate) fn report(&self) -> ExitCode {
        warn(&self.message);
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints a warning to standard error, and does not wait for it.
pub(crate) fn warn(message: &str) {
    messages::send(format!("lockctl: {}\n", one_line(message)).into_bytes());
}

/// An error with its sources, in one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    Causes(error).to_string()
}

fn code_of(error: &NodesError) -> u8 {
    match error {
        NodesError::NoNode => code::NO_LOCK,
        NodesError::NoAuth => code::NO_PERMISSION,
        NodesError::Unknown(_) | NodesError::Throttled | NodesError::SessionEnded => {
            code::NO_CONNECTION
        }
        _ => code::INTERNAL,
    }
}

/// Whether no service has used locks in the database so far.
fn is_without_schema(refusal: &NodesError) -> bool {
    let NodesError::Refused(why) = refusal else {
        return false;
    };
    matches!(why.downcast_ref(), Some(PostgresRefusal::NoSchema { .. }))
        || matches!(why.downcast_ref(), Some(MySqlRefusal::NoSchema { .. }))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Config(_) => code::USAGE,
            Error::Connect(error) => match error {
                ConnectError::ChrootMissing { .. } => code::NO_LOCK,
                ConnectError::Refused { source, .. } if is_without_schema(source) => code::NO_LOCK,
                // A scheme refuses its credentials at once.
                ConnectError::Refused { .. } => code::USAGE,
                _ => code::NO_CONNECTION,
            },
            Error::Acquire(error) => match error {
                AcquireError::TimedOut { .. } => code::TIMED_OUT,
                AcquireError::SessionClosed { .. } | AcquireError::SessionEnded { .. } => {
                    code::NO_CONNECTION
                }
                AcquireError::NotAuthorized { .. } => code::NO_PERMISSION,
                AcquireError::RecipeDiffers { .. } | AcquireError::ReadOnly { .. } => code::USAGE,
                AcquireError::Refused { source, .. } => code_of(source),
                _ => code::INTERNAL,
            },
            Error::Query(error) => match error {
                QueryError::Config(_) => code::USAGE,
                QueryError::NoSuchNode { .. } | QueryError::NotALock { .. } => code::NO_LOCK,
                QueryError::NotAuthorized { .. } => code::NO_PERMISSION,
                QueryError::SessionClosed { .. }
                | QueryError::Unanswered { .. }
                | QueryError::Unknown { .. } => code::NO_CONNECTION,
                QueryError::Refused { source, .. } => code_of(source),
                _ => code::INTERNAL,
            },
            _ => code::INTERNAL,
        };
        let advice = match &error {
            Error::Acquire(AcquireError::RecipeDiffers { found, .. }) => match found {
                LockKind::Mutex => "; or use --mode mutex or leader",
                LockKind::Read | LockKind::Write => "; or use --mode read or write",
                LockKind::Permit => "; or use --mode semaphore:N",
                LockKind::Latch => "; or use --mode leader-latch",
            },
            Error::Connect(ConnectError::Refused { source, .. }) if is_without_schema(source) => {
                "; no service has used locks there yet, and who only looks creates nothing"
            }
            _ => "",
        };
        Self::new(code, chain(&error)).with(advice)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Error::from(error).into()
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Error::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::chain;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("not read")
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn message_has_the_sources() {
        let inner = "x".parse::<i32>().unwrap_err();
        let text = chain(&Outer(inner));
        assert_eq!(text, "not read: invalid digit found in string");
    }
}
