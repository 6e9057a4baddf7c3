//! What is asked, as the keeper says it.

use std::time::Duration;

use recipes_keeper::{CallError, Words};

use super::errors::Unexpected;

/// Paths of at most so many bytes fit into an index.
pub(super) const PATH_BYTES_MAX: usize = 1_500;

/// One request. See `requests.lua` of `recipes-redis` for the words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Multi(Vec<Operation<'a>>),
    List(&'a str),
    Look {
        directory: &'a str,
        own: &'a str,
        numbers: [&'a str; 3],
    },
    Read(&'a str),
    /// As a read. Its number is for those who look for news.
    Watch(&'a str),
    Stat(&'a str),
    /// Nothing to do here.
    Nothing,
}

/// A part of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Create {
        path: &'a str,
        data: &'a [u8],
        kind: u8,
    },
    Delete {
        path: &'a str,
        version: &'a str,
    },
    Set {
        path: &'a str,
        data: &'a [u8],
        version: &'a str,
    },
    Check {
        path: &'a str,
        version: &'a str,
    },
}

impl Request<'_> {
    /// Whether it sets watches.
    pub(super) fn watches(&self) -> bool {
        matches!(self, Self::Look { .. } | Self::Watch(_))
    }

    /// Whether it deletes or changes nodes that somebody may watch.
    pub(super) fn tells(&self) -> bool {
        let tells =
            |it: &Operation<'_>| matches!(it, Operation::Delete { .. } | Operation::Set { .. });
        match self {
            Self::Multi(operations) => operations.iter().any(tells),
            _ => false,
        }
    }
}

impl<'a> Operation<'a> {
    pub(super) fn path(&self) -> &'a str {
        match self {
            Self::Create { path, .. } | Self::Delete { path, .. } => path,
            Self::Set { path, .. } | Self::Check { path, .. } => path,
        }
    }
}

/// The session and the terms that calls begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Caller<'a> {
    pub(super) session: Name<'a>,
    /// How long the server keeps the session without a beat.
    pub(super) timeout: Duration,
    /// How long a container may be empty, in microseconds.
    pub(super) rest: i64,
}

/// By what the server knows a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) id: i64,
    pub(super) secret: &'a str,
    /// The number of its connection, or 0 if it is not named.
    pub(super) connection: u64,
}

impl<'a> Name<'a> {
    /// `id:timeout:secret`, and the number of the connection behind another colon.
    pub(super) fn of(name: &'a str) -> Result<Self, CallError> {
        let mut parts = name.split(':');
        let (Some(id), Some(_), Some(secret)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Unexpected::words("a session"));
        };
        Ok(Self {
            id: number(id)?,
            secret,
            connection: match parts.next() {
                Some(connection) => number(connection)?,
                None => 0,
            },
        })
    }
}

/// A number in digits.
pub(super) fn number<T: std::str::FromStr>(word: &str) -> Result<T, CallError> {
    word.parse().map_err(|_| Unexpected::words("a number"))
}

/// The words of a call, one after the other.
pub(super) struct Said<'a, I>(I, std::marker::PhantomData<&'a ()>);

impl<'a, I: Iterator<Item = &'a [u8]>> Said<'a, I> {
    pub(super) fn new(words: I) -> Self {
        Self(words, std::marker::PhantomData)
    }

    fn bytes(&mut self) -> Result<&'a [u8], CallError> {
        self.0.next().ok_or_else(|| Unexpected::words("a word"))
    }

    pub(super) fn word(&mut self) -> Result<&'a str, CallError> {
        text(self.bytes()?)
    }

    pub(super) fn more(&mut self) -> Result<Option<&'a str>, CallError> {
        self.0.next().map(text).transpose()
    }
}

fn text(word: &[u8]) -> Result<&str, CallError> {
    std::str::from_utf8(word).map_err(|_| Unexpected::words("a text"))
}

/// Takes a call of `Requests` apart.
pub(super) fn parse(words: &Words) -> Result<(Caller<'_>, Vec<Request<'_>>), CallError> {
    let mut said = Said::new(words.iter());
    let session = Name::of(said.word()?)?;
    // The id is in the name.
    let (_, timeout) = (said.word()?, number(said.word()?)?);
    let timeout = Duration::from_micros(timeout);
    let rest = number(said.word()?)?;
    let mut requests = Vec::new();
    while let Some(word) = said.more()? {
        requests.push(request(word, &mut said)?);
    }
    let caller = Caller {
        session,
        timeout,
        rest,
    };
    Ok((caller, requests))
}

fn request<'a, I: Iterator<Item = &'a [u8]>>(
    word: &str,
    said: &mut Said<'a, I>,
) -> Result<Request<'a>, CallError> {
    Ok(match word {
        "multi" => {
            let count: usize = number(said.word()?)?;
            let operations: Result<_, _> = (0..count).map(|_| operation(said)).collect();
            Request::Multi(operations?)
        }
        "list" => Request::List(said.word()?),
        "look" => Request::Look {
            directory: said.word()?,
            own: said.word()?,
            numbers: [said.word()?, said.word()?, said.word()?],
        },
        "read" => Request::Read(said.word()?),
        "stat" => Request::Stat(said.word()?),
        "watch" => {
            let path = said.word()?;
            said.word()?;
            Request::Watch(path)
        }
        "unwatch" => {
            said.word()?;
            Request::Nothing
        }
        "beat" => Request::Nothing,
        _ => return Err(Unexpected::words("a request")),
    })
}

fn operation<'a, I: Iterator<Item = &'a [u8]>>(
    said: &mut Said<'a, I>,
) -> Result<Operation<'a>, CallError> {
    Ok(match said.word()? {
        "create" => Operation::Create {
            path: said.word()?,
            data: said.bytes()?,
            kind: match said.bytes()? {
                [kind @ (b'P' | b'C' | b'E' | b'S')] => *kind,
                _ => return Err(Unexpected::words("a kind of node")),
            },
        },
        "delete" => Operation::Delete {
            path: said.word()?,
            version: said.word()?,
        },
        "set" => Operation::Set {
            path: said.word()?,
            data: said.bytes()?,
            version: said.word()?,
        },
        "check" => Operation::Check {
            path: said.word()?,
            version: said.word()?,
        },
        _ => return Err(Unexpected::words("an operation")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_as_the_keeper_says_them() {
        let mut words = Words::default();
        words.arg("7:100:secret:3").number(7).number(100).number(60);
        words.arg("multi").number(2);
        words.arg("create").arg("/a/b-").arg([0, 255]).arg("S");
        words.arg("delete").arg("/a/c").arg("");
        words
            .arg("look")
            .arg("/a")
            .arg("")
            .number(1)
            .number(2)
            .number(3);
        words
            .arg("unwatch")
            .arg("/a")
            .arg("watch")
            .arg("/a/b")
            .number(4);
        let (caller, requests) = parse(&words).unwrap();
        let session = Name {
            id: 7,
            secret: "secret",
            connection: 3,
        };
        let timeout = Duration::from_micros(100);
        let rest = 60;
        assert_eq!(
            caller,
            Caller {
                session,
                timeout,
                rest
            }
        );
        let create = Operation::Create {
            path: "/a/b-",
            data: &[0, 255],
            kind: b'S',
        };
        let delete = Operation::Delete {
            path: "/a/c",
            version: "",
        };
        let look = Request::Look {
            directory: "/a",
            own: "",
            numbers: ["1", "2", "3"],
        };
        let rest = [Request::Nothing, Request::Watch("/a/b")];
        let all: Vec<_> = [Request::Multi(vec![create, delete]), look]
            .into_iter()
            .chain(rest)
            .collect();
        assert_eq!(requests, all);
        words.arg("sing");
        assert!(parse(&words).is_err());
    }
}
