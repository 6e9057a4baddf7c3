//! What the server's answers and errors mean.

use std::sync::Arc;

use recipes_core::NodesError;
use recipes_keeper::{
    Answers, Asked, CallError, Opened, Outcome, Parts, Resumed, Watched, duration, told,
};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::checks::RedisRefusal;

/// An answer, unless the session is over.
fn unless_ended(answer: Value) -> Option<Value> {
    match answer {
        Value::BulkString(word) if word == b"ended" => None,
        answer => Some(answer),
    }
}

/// The answer of `open`.
pub(crate) fn opened(answer: Value) -> Result<Opened, CallError> {
    let mut parts = Items::of(answer)?;
    Ok(Opened {
        id: parts.number()?,
        quarantine: duration(parts.number()?),
        doubt: duration(parts.number()?),
    })
}

/// The answer of `resume`.
pub(crate) fn resumed(answer: Value) -> Result<Option<Resumed>, CallError> {
    let Some(answer) = unless_ended(answer) else {
        return Ok(None);
    };
    let mut parts = Items::of(answer)?;
    let quarantine = duration(parts.number()?);
    let news = parts.names()?;
    Ok(Some(Resumed {
        quarantine,
        news: news
            .iter()
            .map(|word| told(word))
            .collect::<Result<_, _>>()?,
        nodes: parts.names()?,
    }))
}

/// The answer of `close`.
pub(crate) fn closed(answer: Value) -> Result<bool, CallError> {
    Ok(number(answer)? > 0)
}

/// The answer of `requests`.
pub(crate) fn answers(all: &[Asked], answer: Value) -> Result<Option<Answers>, CallError> {
    let Some(answer) = unless_ended(answer) else {
        return Ok(None);
    };
    let mut parts = Items::of(answer)?;
    let outcome = |asked| outcome(asked, parts.next()?);
    let outcomes = all.iter().map(outcome).collect::<Result<_, _>>()?;
    let step = Some(duration(parts.number()?));
    parts.end()?;
    Ok(Some(Answers { outcomes, step }))
}

fn outcome(asked: &Asked, answer: Value) -> Result<Outcome, CallError> {
    let mut parts = Items::of(answer)?;
    let word = parts.text()?;
    let outcome = parts.outcome(asked, &word, matches!(asked, Asked::Multi(_)))?;
    parts.end()?;
    Ok(outcome)
}

/// Numbers may also come as text.
fn number(value: Value) -> Result<i64, CallError> {
    let parsed = match &value {
        Value::Int(number) => Some(*number),
        Value::BulkString(text) => std::str::from_utf8(text)
            .ok()
            .and_then(|it| it.parse().ok()),
        _ => None,
    };
    parsed.ok_or_else(|| unexpected(&value))
}

fn unexpected(value: &Value) -> CallError {
    CallError::unexpected(format!("{value:?}"))
}

/// The items of a list.
struct Items(std::vec::IntoIter<Value>);

impl Items {
    fn of(value: Value) -> Result<Self, CallError> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
            other => Err(unexpected(&other)),
        }
    }

    /// There must be no more.
    fn end(&mut self) -> Result<(), CallError> {
        match self.0.next() {
            Some(more) => Err(unexpected(&more)),
            None => Ok(()),
        }
    }

    fn next(&mut self) -> Result<Value, CallError> {
        let item = self.0.next();
        item.ok_or_else(|| CallError::unexpected("too short"))
    }
}

impl Parts for Items {
    fn number(&mut self) -> Result<i64, CallError> {
        number(self.next()?)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, CallError> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    fn names(&mut self) -> Result<Vec<String>, CallError> {
        let mut items = Self::of(self.next()?)?;
        (0..items.0.len()).map(|_| items.text()).collect()
    }

    fn watched(&mut self, _: u64) -> Result<Vec<Watched>, CallError> {
        let mut watched = Vec::new();
        while self.0.len() > 0 {
            let number = self.number()?;
            watched.push(self.watched_as(number)?);
        }
        Ok(watched)
    }
}

/// What an error says about the call that it answers.
pub(crate) fn call_error(error: RedisError) -> CallError {
    let lacks = |detail: &str| detail.contains("unknown command") && detail.contains("HELLO");
    let lacks_hello = error.detail().is_some_and(lacks);
    match (error.kind(), error.code()) {
        (ErrorKind::Server(ServerErrorKind::BusyLoading), _)
        | (_, Some("BUSY" | "LOADING" | "NOREPLICAS")) => CallError::NotNow(Arc::new(error)),
        (ErrorKind::RESP3NotSupported, _) => CallError::Refused(Arc::new(RedisRefusal::Resp3)),
        _ if lacks_hello => CallError::Refused(Arc::new(RedisRefusal::Resp3)),
        // NOPERM may come in the middle of a call.
        (ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig, _)
        | (_, Some("NOPERM" | "NOAUTH" | "WRONGPASS" | "NOPROTO")) => {
            CallError::Refused(Arc::new(error))
        }
        // A function that is not there, MOVED, ASK, READONLY, MASTERDOWN, CLUSTERDOWN, a call that was
        // killed, and whatever else a server may say.
        _ => CallError::Lost(Arc::new(error)),
    }
}

/// Classifies an error of connecting. Errors that a retry cannot fix are refusals.
pub(crate) fn refusal(error: RedisError) -> NodesError {
    // The client gives it no kind of its own.
    if error.to_string().contains("refused to switch database") {
        let said = error.detail().unwrap_or_default().to_owned();
        return NodesError::Refused(Arc::new(RedisRefusal::Database { said }));
    }
    call_error(error).into()
}

#[cfg(test)]
mod tests {
    use recipes_core::{Created, NewNode, NodeMode, NodeOp, NodeOpDone};
    use recipes_keeper::{Said, stat};

    use super::*;

    fn text(word: &str) -> Value {
        Value::BulkString(word.into())
    }

    fn list(parts: impl IntoIterator<Item = Value>) -> Value {
        Value::Array(parts.into_iter().collect())
    }

    fn create() -> Asked {
        let create = NodeOp::Create(NewNode {
            path: "/a/x-".to_owned(),
            data: Default::default(),
            mode: NodeMode::EphemeralSequential,
        });
        let (path, version) = ("/a".to_owned(), None);
        let check = NodeOp::Check { path, version };
        Asked::Multi([check, create].into())
    }

    fn look() -> Asked {
        Asked::Look {
            directory: "/a".to_owned(),
            own: None,
            first: 4,
        }
    }

    #[test]
    fn answers_are_read_as_they_were_asked_for() {
        let created = list([text(""), text("/a/x-7"), text("5")]);
        let names = list([text("x-6"), text("x-7")]);
        let node = [text("4"), text("x-7"), text("me")];
        let stat_of = [5, 5, 0, 9, 0, 0, 5];
        let node = node.into_iter().chain(stat_of.map(Value::Int));
        let looked = list([text(""), names].into_iter().chain(node));
        let all = [create(), look(), Asked::Beat];
        let answer = list([created, looked, list([text("")]), Value::Int(30)]);
        let told = answers(&all, answer).unwrap().unwrap();
        assert_eq!(told.step, Some(duration(30)));
        let said: Vec<_> = told.outcomes.into_iter().map(Result::unwrap).collect();
        let path = "/a/x-7".to_owned();
        let czxid = Some(5);
        let done = vec![
            NodeOpDone::Checked,
            NodeOpDone::Created(Created { path, czxid }),
        ];
        let watched = Watched {
            number: 4,
            name: "x-7".to_owned(),
            data: b"me".to_vec(),
            stat: stat(stat_of).unwrap(),
        };
        let names = ["x-6", "x-7"].map(str::to_owned).to_vec();
        let expected = [
            Said::Multi(done),
            Said::Names(names, vec![watched]),
            Said::Nothing,
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn refusal_names_the_operation() {
        let answer = list([list([text("NoNode"), Value::Int(1)]), Value::Int(30)]);
        let told = answers(&[create()], answer).unwrap().unwrap();
        let refused = told.outcomes.into_iter().next().unwrap().unwrap_err();
        assert_eq!(refused.index, Some(1));
        assert!(matches!(refused.source, NodesError::NoNode));
    }

    #[test]
    fn answer_of_another_shape_costs_the_connection() {
        let step = || Value::Int(30);
        let beaten = || list([text("")]);
        for answer in [
            Value::Int(1),
            list([]),
            list([step()]),
            list([beaten()]),
            list([beaten(), beaten(), step()]),
            list([list([text(""), text("more")]), step()]),
            list([list([text("Strange")]), step()]),
        ] {
            let told = answers(&[Asked::Beat], answer.clone());
            assert!(matches!(told, Err(CallError::Lost(_))), "{answer:?}");
        }
        assert!(answers(&[Asked::Beat], text("ended")).unwrap().is_none());
        assert!(resumed(text("ended")).unwrap().is_none());
    }
}
