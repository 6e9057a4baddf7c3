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
    List(&'a [u8]),
    Look {
        directory: &'a [u8],
        own: &'a [u8],
        numbers: [&'a [u8]; 3],
    },
    Read(&'a [u8]),
    /// As a read. Its number is for those who look for news.
    Watch(&'a [u8]),
    Stat(&'a [u8]),
    /// Nothing to do here.
    Nothing,
}

/// A part of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Create {
        path: &'a [u8],
        data: &'a [u8],
        kind: u8,
    },
    Delete {
        path: &'a [u8],
        version: &'a [u8],
    },
    Set {
        path: &'a [u8],
        data: &'a [u8],
        version: &'a [u8],
    },
    Check {
        path: &'a [u8],
        version: &'a [u8],
    },
}

impl<'a> Operation<'a> {
    pub(super) fn path(&self) -> &'a [u8] {
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
    pub(super) secret: &'a [u8],
    /// The number of its connection, or 0 if it is not named.
    pub(super) connection: u64,
}

impl<'a> Name<'a> {
    /// `id:timeout:secret`, and the number of the connection behind another colon.
    pub(super) fn of(name: &'a [u8]) -> Result<Self, CallError> {
        let mut parts = name.split(|it| *it == b':');
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
pub(super) fn number<T: std::str::FromStr>(word: &[u8]) -> Result<T, CallError> {
    let text = std::str::from_utf8(word).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| Unexpected::words("a number"))
}

/// The words of a call, one after the other.
pub(super) struct Said<'a, I>(I, std::marker::PhantomData<&'a ()>);

impl<'a, I: Iterator<Item = &'a [u8]>> Said<'a, I> {
    pub(super) fn new(words: I) -> Self {
        Self(words, std::marker::PhantomData)
    }

    pub(super) fn word(&mut self) -> Result<&'a [u8], CallError> {
        self.0.next().ok_or_else(|| Unexpected::words("a word"))
    }

    pub(super) fn more(&mut self) -> Option<&'a [u8]> {
        self.0.next()
    }
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
    while let Some(word) = said.more() {
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
    word: &[u8],
    said: &mut Said<'a, I>,
) -> Result<Request<'a>, CallError> {
    Ok(match word {
        b"multi" => {
            let count: usize = number(said.word()?)?;
            let operations: Result<_, _> = (0..count).map(|_| operation(said)).collect();
            Request::Multi(operations?)
        }
        b"list" => Request::List(said.word()?),
        b"look" => Request::Look {
            directory: said.word()?,
            own: said.word()?,
            numbers: [said.word()?, said.word()?, said.word()?],
        },
        b"read" => Request::Read(said.word()?),
        b"stat" => Request::Stat(said.word()?),
        b"watch" => {
            let path = said.word()?;
            said.word()?;
            Request::Watch(path)
        }
        b"unwatch" => {
            said.word()?;
            Request::Nothing
        }
        b"beat" => Request::Nothing,
        _ => return Err(Unexpected::words("a request")),
    })
}

fn operation<'a, I: Iterator<Item = &'a [u8]>>(
    said: &mut Said<'a, I>,
) -> Result<Operation<'a>, CallError> {
    Ok(match said.word()? {
        b"create" => Operation::Create {
            path: said.word()?,
            data: said.word()?,
            kind: match said.word()? {
                [kind @ (b'P' | b'C' | b'E' | b'S')] => *kind,
                _ => return Err(Unexpected::words("a kind of node")),
            },
        },
        b"delete" => Operation::Delete {
            path: said.word()?,
            version: said.word()?,
        },
        b"set" => Operation::Set {
            path: said.word()?,
            data: said.word()?,
            version: said.word()?,
        },
        b"check" => Operation::Check {
            path: said.word()?,
            version: said.word()?,
        },
        _ => return Err(Unexpected::words("an operation")),
    })
}

/// Splits a path: the parent's, and the name. Those of the root are empty.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|it| *it == b'/').unwrap_or_default();
    match (path, at) {
        (b"/", _) => (b"", b""),
        (_, 0) => (b"/", path.get(1..).unwrap_or_default()),
        _ => (
            path.get(..at).unwrap_or_default(),
            path.get(at + 1..).unwrap_or_default(),
        ),
    }
}

/// The path of a child.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let dir = if dir == b"/" { b"" } else { dir };
    [dir, b"/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_and_joined() {
        for (path, dir, name) in [
            (&b"/"[..], &b""[..], &b""[..]),
            (b"/a", b"/", b"a"),
            (b"/a/b", b"/a", b"b"),
            (b"/a/", b"/a", b""),
        ] {
            assert_eq!(split(path), (dir, name));
            assert_eq!(join(dir, name), path);
        }
    }

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
            secret: b"secret",
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
            path: b"/a/b-",
            data: &[0, 255],
            kind: b'S',
        };
        let delete = Operation::Delete {
            path: b"/a/c",
            version: b"",
        };
        let look = Request::Look {
            directory: b"/a",
            own: b"",
            numbers: [b"1", b"2", b"3"],
        };
        let rest = [Request::Nothing, Request::Watch(b"/a/b")];
        let all: Vec<_> = [Request::Multi(vec![create, delete]), look]
            .into_iter()
            .chain(rest)
            .collect();
        assert_eq!(requests, all);
        words.arg("sing");
        assert!(parse(&words).is_err());
    }
}
