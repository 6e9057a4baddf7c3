//! What the functions answer, and what the server's errors mean.

use std::error::Error as StdError;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

use recipes_core::NodesError;
use recipes_keeper::{Answers, Asked, CallError, Outcome, Parts, Source, Watched, duration};
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

/// A list whose length is not what the server says.
#[derive(Debug, Error)]
#[error("the server's answer is not whole")]
pub(super) struct Cut;

/// What `requests` has answered.
#[derive(Debug)]
pub(super) enum Answered {
    Ended,
    /// Nothing was done: a beat must come first.
    Late,
    Done(Answers),
}

/// Reads the answer of `requests`: see there.
pub(super) fn read(all: &[Asked], words: Vec<Option<&[u8]>>) -> Result<Answered, CallError> {
    match words.as_slice() {
        [Some(b"ended")] => return Ok(Answered::Ended),
        [Some(b"late")] => return Ok(Answered::Late),
        _ => {}
    }
    let mut words = Words(words.into_iter().peekable());
    let step = Some(duration(words.number()?));
    let outcomes = all.iter().map(|asked| words.answer(asked));
    let outcomes = outcomes.collect::<Result<_, _>>()?;
    match words.0.next() {
        Some(_) => Err(CallError::unexpected("too long")),
        None => Ok(Answered::Done(Answers { outcomes, step })),
    }
}

/// The words of an answer, one after the other.
struct Words<'a>(Peekable<IntoIter<Option<&'a [u8]>>>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<Option<&'a [u8]>, CallError> {
        let word = self.0.next();
        word.ok_or_else(|| CallError::unexpected("too short"))
    }

    fn mark(&mut self) -> Result<(), CallError> {
        match self.next()? {
            None => Ok(()),
            Some(_) => Err(CallError::unexpected("no mark")),
        }
    }

    fn answer(&mut self, asked: &Asked) -> Result<Outcome, CallError> {
        self.mark()?;
        let word = self.text()?;
        self.outcome(asked, &word, true)
    }
}

impl Parts for Words<'_> {
    fn number(&mut self) -> Result<i64, CallError> {
        self.text()?.parse().map_err(lost)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, CallError> {
        let word = self.next()?.map(<[u8]>::to_vec);
        word.ok_or_else(|| CallError::unexpected("a mark"))
    }

    /// How many, and these with slashes between them.
    fn names(&mut self) -> Result<Vec<String>, CallError> {
        self.mark()?;
        self.mark()?;
        let (count, joined) = (self.number()?, self.next()?);
        let joined = joined.map(std::str::from_utf8).transpose().map_err(lost)?;
        let names = joined.map(|joined| joined.split('/').map(str::to_owned));
        let names: Vec<_> = names.into_iter().flatten().collect();
        // Who takes the rest for all may be granted a lock that another holds.
        match usize::try_from(count).is_ok_and(|count| count == names.len()) {
            true => Ok(names),
            false => Err(lost(Cut)),
        }
    }

    fn watched(&mut self, _: u64) -> Result<Vec<Watched>, CallError> {
        let mut watched = Vec::new();
        while let Some(Some(_)) = self.0.peek() {
            let number = self.number()?;
            watched.push(self.watched_as(number)?);
        }
        Ok(watched)
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
        return of_client(error);
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

/// An error of the client. It has no codes.
fn of_client(error: PgError) -> NodesError {
    let said = StdError::source(&error).map(ToString::to_string);
    let why = match said.as_deref() {
        Some("server does not support TLS") => PostgresRefusal::Plain,
        Some(said @ "password missing") => PostgresRefusal::Credentials {
            said: said.to_owned(),
        },
        _ => return NodesError::Unknown(Arc::new(error)),
    };
    NodesError::Refused(Arc::new(why))
}

#[cfg(test)]
mod tests {
    use recipes_core::{Created, NewNode, NodeMode, NodeOp, NodeOpDone};
    use recipes_keeper::{Said, stat};

    use super::*;

    fn words(words: &[&'static str]) -> Vec<Option<&'static [u8]>> {
        let words = words
            .iter()
            .map(|it| (*it != "NULL").then_some(it.as_bytes()));
        words.collect()
    }

    fn done(all: &[Asked], answer: &[&'static str]) -> Answers {
        match read(all, words(answer)).unwrap() {
            Answered::Done(answers) => answers,
            other => panic!("{other:?}"),
        }
    }

    fn list() -> Asked {
        Asked::List("/a".to_owned())
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn answers_are_read_in_their_order() {
        let create = NodeOp::Create(NewNode {
            path: "/a/x-".to_owned(),
            data: Arc::default(),
            mode: NodeMode::EphemeralSequential,
        });
        let look = Asked::Look {
            directory: "/a".to_owned(),
            own: None,
            first: 4,
        };
        let stat_of = || Asked::Stat("/b".to_owned());
        let all = [
            Asked::Multi([create].into()),
            look,
            stat_of(),
            Asked::Beat,
            stat_of(),
        ];
        let Answers { outcomes, step } = done(
            &all,
            &[
                "30", "NULL", "", "/a/x-1", "5", "NULL", "", "NULL", "NULL", "2", "x-1/x-2", "4",
                "x-1", "me", "5", "5", "0", "7", "0", "0", "5", "NULL", "NoNode", "0", "NULL", "",
                "NULL", "", "1", "2", "3", "0", "4", "5", "6",
            ],
        );
        assert_eq!(step, Some(duration(30)));
        let [created, looked, missing, beaten, found] = outcomes.try_into().unwrap();
        let (path, czxid) = ("/a/x-1".to_owned(), Some(5));
        let made = NodeOpDone::Created(Created { path, czxid });
        assert_eq!(created.unwrap(), Said::Multi(vec![made]));
        let watched = Watched {
            number: 4,
            name: "x-1".to_owned(),
            data: b"me".to_vec(),
            stat: stat([5, 5, 0, 7, 0, 0, 5]).unwrap(),
        };
        let expected = Said::Names(names(&["x-1", "x-2"]), vec![watched]);
        assert_eq!(looked.unwrap(), expected);
        assert!(matches!(missing.unwrap_err().source, NodesError::NoNode));
        assert_eq!(beaten.unwrap(), Said::Nothing);
        let like = stat([1, 2, 3, 0, 4, 5, 6]).unwrap();
        assert_eq!(found.unwrap(), Said::Stat(like));
    }

    #[test]
    fn empty_directory_has_no_names() {
        let answer = ["30", "NULL", "", "NULL", "NULL", "0", "NULL", "NULL", ""];
        let answers = done(&[list(), Asked::Beat], &answer);
        let first = answers.outcomes.into_iter().next().unwrap().unwrap();
        assert_eq!(first, Said::Names(Vec::new(), Vec::new()));
    }

    #[test]
    fn listing_with_fewer_or_more_names_than_it_says_is_refused() {
        for (count, names) in [
            ("3", "x-1/x-2"),
            ("1", "x-1/x-2"),
            ("1", "NULL"),
            ("NULL", "x-1"),
        ] {
            let answer = words(&["30", "NULL", "", "NULL", "NULL", count, names]);
            assert!(read(&[list()], answer).is_err(), "{count} of {names}");
        }
    }

    #[test]
    fn answer_of_another_shape_is_an_error() {
        for answer in [
            &["30"][..],
            &["30", "NULL"],
            &["30", "", "NULL"],
            &["30", "NULL", "", "more"],
            &["30", "NULL", "Strange", "0"],
            &["NULL", "NULL", ""],
            &["x", "NULL", ""],
        ] {
            assert!(read(&[Asked::Beat], words(answer)).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn session_may_be_over_or_late() {
        let read = |words| super::read(&[], words);
        assert!(matches!(read(words(&["ended"])), Ok(Answered::Ended)));
        assert!(matches!(read(words(&["late"])), Ok(Answered::Late)));
        assert!(read(Vec::new()).is_err());
        assert!(done(&[], &["30"]).outcomes.is_empty());
    }
}
