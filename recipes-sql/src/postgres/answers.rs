//! What the functions answer, and what the server's errors mean.

use std::error::Error as StdError;
use std::sync::Arc;

use recipes_core::NodesError;
use recipes_keeper::{CallError, Source, Value};
use thiserror::Error;
use tokio_postgres::Error as PgError;
use tokio_postgres::error::SqlState;

use super::checks::PostgresRefusal;

/// The functions were called at a level of isolation that shows the past.
const ISOLATION: &str = "LR002";

/// An error for which a connection is given up.
pub(super) fn lost(error: impl StdError + Send + Sync + 'static) -> CallError {
    CallError::Lost(Arc::new(error))
}

/// An answer that no function gives.
#[derive(Debug, Error)]
#[error("unexpected answer")]
struct Unexpected;

/// A list whose length is not what the server says.
#[derive(Debug, Error)]
#[error("the server's answer is not whole")]
pub(super) struct Cut;

/// What `requests` has answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Ended,
    /// Nothing was done: a beat must come first.
    Late,
    Done(Value),
}

/// Reads the answer of `requests`: see there.
pub(super) fn read(words: Vec<Option<&[u8]>>) -> Result<Answered, CallError> {
    match words.as_slice() {
        [Some(b"ended")] => return Ok(Answered::Ended),
        [Some(b"late")] => return Ok(Answered::Late),
        _ => {}
    }
    let mut words = words.into_iter().peekable();
    let step = words.next().flatten().ok_or_else(|| lost(Unexpected))?;
    let mut answers = Vec::new();
    let mut answer = Vec::new();
    while let Some(word) = words.next() {
        if let Some(word) = word {
            answer.push(Value::Bytes(word.to_vec()));
        } else if words.peek() == Some(&None) {
            words.next();
            let count = words.next().flatten();
            answer.push(names(count, words.next().flatten())?);
        } else {
            if !answer.is_empty() {
                answers.push(Value::List(std::mem::take(&mut answer)));
            }
        }
    }
    if !answer.is_empty() {
        answers.push(Value::List(answer));
    }
    // It comes last.
    answers.push(Value::Bytes(step.to_vec()));
    Ok(Answered::Done(Value::List(answers)))
}

/// So many names, with slashes between them.
fn names(count: Option<&[u8]>, joined: Option<&[u8]>) -> Result<Value, CallError> {
    let names = joined.map(|joined| joined.split(|it| *it == b'/'));
    let names = names.into_iter().flatten();
    let names: Vec<_> = names.map(|name| Value::Bytes(name.to_vec())).collect();
    // Who takes the rest for all may be granted a lock that another holds.
    match count.and_then(|it| std::str::from_utf8(it).ok()?.parse::<usize>().ok()) {
        Some(count) if names.len() == count => Ok(Value::List(names)),
        _ => Err(lost(Cut)),
    }
}

/// What an error says about the call that it answers. The server has undone what the call did, unless the
/// connection is over.
pub(super) enum Failed {
    /// It may be sent again at once.
    Again(PgError),
    Otherwise(CallError),
}

pub(super) fn failed(error: PgError) -> Failed {
    let Some(code) = error.code() else {
        return Failed::Otherwise(lost(error));
    };
    if [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ]
    .contains(code)
    {
        return Failed::Again(error);
    }
    let is_busy = [
        SqlState::LOCK_NOT_AVAILABLE,
        // A limit of the user's, such as statement_timeout.
        SqlState::QUERY_CANCELED,
    ];
    // Out of memory, disk or the like.
    let lacks = code.code().starts_with("53");
    Failed::Otherwise(match is_busy.contains(code) || lacks {
        true => CallError::NotNow(Arc::new(error)),
        false if code == &SqlState::INSUFFICIENT_PRIVILEGE || code.code() == ISOLATION => {
            CallError::Refused(Arc::new(error))
        }
        // The server ends, has become read-only, lacks the functions, and whatever else it may say.
        false => lost(error),
    })
}

pub(super) fn call_error(error: PgError) -> CallError {
    match failed(error) {
        Failed::Again(error) => CallError::NotNow(Arc::new(error)),
        Failed::Otherwise(error) => error,
    }
}

/// Classifies an error of connecting. Errors that a retry cannot fix are refusals.
pub(super) fn refusal(error: PgError) -> NodesError {
    let Some(told) = error.as_db_error() else {
        return NodesError::Unknown(Arc::new(error));
    };
    let said = told.message().to_owned();
    let code = told.code();
    let why = match code {
        &SqlState::TOO_MANY_CONNECTIONS => {
            let why: Source = Arc::new(PostgresRefusal::TooManyConnections { said });
            return NodesError::Unknown(why);
        }
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            PostgresRefusal::Credentials { said }
        }
        &SqlState::INVALID_CATALOG_NAME | &SqlState::INSUFFICIENT_PRIVILEGE => {
            PostgresRefusal::Database { said }
        }
        _ => return NodesError::Unknown(Arc::new(error)),
    };
    NodesError::Refused(Arc::new(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(word: &str) -> Value {
        Value::Bytes(word.as_bytes().to_vec())
    }

    fn said(words: &[&'static str]) -> Vec<Option<&'static [u8]>> {
        let words = words
            .iter()
            .map(|it| (*it != "NULL").then_some(it.as_bytes()));
        words.collect()
    }

    #[test]
    fn answers_are_lists_and_the_step_comes_last() {
        let words = said(&[
            "30", "NULL", "", "/a/x-1", "5", "NULL", "", "NULL", "NULL", "2", "x-1/x-2", "2",
            "x-1", "NULL", "NoNode",
        ]);
        let names = Value::List(vec![bytes("x-1"), bytes("x-2")]);
        let answers = vec![
            Value::List(vec![bytes(""), bytes("/a/x-1"), bytes("5")]),
            Value::List(vec![bytes(""), names, bytes("2"), bytes("x-1")]),
            Value::List(vec![bytes("NoNode")]),
            bytes("30"),
        ];
        assert_eq!(read(words).unwrap(), Answered::Done(Value::List(answers)));
    }

    #[test]
    fn empty_directory_has_no_names() {
        let words = said(&["30", "NULL", "", "NULL", "NULL", "0", "NULL", "NULL", ""]);
        let answers = vec![
            Value::List(vec![bytes(""), Value::List(Vec::new())]),
            Value::List(vec![bytes("")]),
            bytes("30"),
        ];
        assert_eq!(read(words).unwrap(), Answered::Done(Value::List(answers)));
    }

    #[test]
    fn listing_with_fewer_or_more_names_than_it_says_is_refused() {
        for (count, names) in [
            ("3", "x-1/x-2"),
            ("1", "x-1/x-2"),
            ("1", "NULL"),
            ("NULL", "x-1"),
        ] {
            let words = said(&["30", "NULL", "", "NULL", "NULL", count, names]);
            assert!(read(words).is_err(), "{count} of {names}");
        }
    }

    #[test]
    fn session_may_be_over_or_late() {
        assert_eq!(read(said(&["ended"])).unwrap(), Answered::Ended);
        assert_eq!(read(said(&["late"])).unwrap(), Answered::Late);
        assert!(read(Vec::new()).is_err());
        let nothing = Answered::Done(Value::List(vec![bytes("30")]));
        assert_eq!(read(said(&["30"])).unwrap(), nothing);
    }
}
