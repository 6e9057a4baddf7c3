//! What the server's errors mean.

use std::sync::Arc;

use mysql_async::{DriverError, Error, ServerError};
use recipes_core::NodesError;
use recipes_keeper::{CallError, Source};
use thiserror::Error;

use super::checks::MySqlRefusal;

/// What no server says.
#[derive(Clone, Debug, Error)]
pub(super) enum Unexpected {
    #[error("the call before was given up")]
    GivenUp,
    #[error("the two connections of the session are to different servers")]
    TwoServers,
    #[error("others have locked the session or a directory")]
    Locked,
}

/// What an error says about the call that it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// A deadlock: it did nothing, and may be sent again.
    Again,
    /// A lock that others have: it did nothing, and may soon.
    NotNow,
    /// A simple procedure has not done it: the general one finds out why.
    NotSimple,
    /// Nobody knows, or this server no longer serves.
    Lost,
    /// What no retry helps.
    Refused,
}

pub(super) fn failed(error: &Error) -> Failed {
    let server = match error {
        Error::Server(server) => server,
        Error::Driver(
            DriverError::NoClientSslFlagFromServer | DriverError::UnknownAuthPlugin { .. },
        ) => return Failed::Refused,
        _ => return Failed::Lost,
    };
    match server.code {
        // Deadlock; the record has changed since the last read (of a snapshot).
        1213 | 1020 => Failed::Again,
        // Lock wait timeout; NOWAIT.
        1205 | 3572 => Failed::NotNow,
        // A node exists; the signal of `leave`.
        1062 | 1644 => Failed::NotSimple,
        _ if refusal(server).is_some() => Failed::Refused,
        _ => Failed::Lost,
    }
}

/// The end of a call that failed.
pub(super) fn call_error(error: Error) -> CallError {
    match failed(&error) {
        Failed::Again | Failed::NotNow => CallError::NotNow(Arc::new(error)),
        Failed::NotSimple | Failed::Lost => CallError::Lost(Arc::new(error)),
        Failed::Refused => CallError::Refused(source_of(error)),
    }
}

/// The end of an attempt to connect. Errors that a retry cannot fix are refusals.
pub(super) fn refused(error: Error) -> NodesError {
    if failed(&error) != Failed::Refused {
        return NodesError::Unknown(Arc::new(error));
    }
    let source = source_of(error);
    match source.downcast_ref() {
        // Somebody may disconnect.
        Some(MySqlRefusal::Connections { .. }) => NodesError::Unknown(source),
        _ => NodesError::Refused(source),
    }
}

/// What the user has to do, if it is known.
fn source_of(error: Error) -> Source {
    let refusal = match &error {
        Error::Server(server) => refusal(server),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => Some(MySqlRefusal::Plain),
        // MySQL asks for any plugin if there is no such user.
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => Some(MySqlRefusal::Credentials {
            said: format!("it asks for the plugin {name}, which this client does not have"),
        }),
        _ => None,
    };
    match refusal {
        Some(refusal) => Arc::new(refusal),
        None => Arc::new(error),
    }
}

fn refusal(error: &ServerError) -> Option<MySqlRefusal> {
    let said = || error.message.clone();
    Some(match error.code {
        // No such user, or not this password, or not from this host; no such way to log in; an account that is
        // locked, or whose password has expired.
        1045 | 1130 | 1251 | 1698 | 1820 | 1862 | 3118 | 4151 => {
            MySqlRefusal::Credentials { said: said() }
        }
        // Unknown, or not for this user.
        1044 | 1049 => MySqlRefusal::Database { said: said() },
        // Of the server; of a user.
        1040 | 1203 | 1226 => MySqlRefusal::Connections { said: said() },
        // A command, a table, a column, a procedure; a privilege in general.
        1142 | 1143 | 1227 | 1370 => MySqlRefusal::Rights { said: said() },
        // No such table, no such procedure.
        1146 | 1305 => MySqlRefusal::NoSchema { said: said() },
        // Of a server that has become read-only. Other options prevent statements, too.
        1290 if !error.message.contains("read-only") => return None,
        1290 | 1792 | 1836 => MySqlRefusal::ReadOnly,
        3159 => MySqlRefusal::Secure,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_users_making_say_what_to_do() {
        let error = |code| {
            Error::Server(ServerError {
                code,
                message: "as it says, --read-only".to_owned(),
                state: "HY000".to_owned(),
            })
        };
        for (code, word) in [
            (1045, "password"),
            (1049, "database"),
            (1040, "max_connections"),
            (1142, "GRANT"),
            (1146, "schema"),
            (1290, "read-only"),
            (3159, "ssl-mode=required"),
        ] {
            let source = match refused(error(code)) {
                NodesError::Refused(source) if code != 1040 => source,
                NodesError::Unknown(source) if code == 1040 => source,
                other => panic!("{code}: {other}"),
            };
            let text = source.to_string();
            assert!(text.contains(word), "{text}");
            assert!(!text.contains('\n'));
        }
        assert!(matches!(call_error(error(1213)), CallError::NotNow(_)));
        assert!(matches!(call_error(error(1317)), CallError::Lost(_)));
    }
}
