//! The acquire, the look and the release of one lock: calls that have functions of their own.

use recipes_keeper::{CallError, Value, Words};
use tokio_postgres::error::SqlState;

use crate::path::{split, split_new};

use super::answers::{Failed, failed, lost};
use super::line::Parameter;
use super::wire::Lines;
use super::words::{Caller, PATH_BYTES_MAX, Reader};

/// What `watch_ahead` has of each node: number of the watch, name, data, and the seven parts of the stat.
const PARTS: usize = 10;

/// A call that is nothing but this.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Simple<'a> {
    /// An ephemeral, sequential node is created, and its directory is listed for it.
    Enter {
        path: &'a str,
        data: &'a [u8],
        /// The first of three numbers for watches.
        first: i64,
    },
    /// A directory is listed again for a node.
    Look {
        directory: &'a str,
        own: &'a str,
        first: i64,
    },
    /// A node is deleted, whatever its version.
    Leave { path: &'a str },
}

impl<'a> Simple<'a> {
    /// Reads the words of a call. `None` if it is not one of these.
    pub(super) fn of(words: &'a Words) -> Option<(Caller, Self)> {
        let mut reader = Reader::of(words);
        let caller = Caller::read(&mut reader).ok()?;
        let simple = match reader.bytes().ok()? {
            b"look" => Self::look(&mut reader)?,
            b"multi" if reader.bytes().ok()? == b"1" => match reader.bytes().ok()? {
                b"create" => Self::enter(&mut reader)?,
                b"delete" => {
                    let path = reader.text().ok()?;
                    (reader.bytes().ok()? == b"").then_some(Self::Leave { path })?
                }
                _ => return None,
            },
            _ => return None,
        };
        reader.ends().then_some((caller, simple))
    }

    fn enter(reader: &mut Reader<'a>) -> Option<Self> {
        let (path, data) = (reader.text().ok()?, reader.bytes().ok()?);
        let is_simple = path.len() <= PATH_BYTES_MAX
            && reader.bytes().ok()? == b"S"
            && reader.bytes().ok()? == b"look"
            && reader.text().ok()? == split_new(path).0
            && reader.bytes().ok()? == b"";
        let first = is_simple.then(|| three(reader)).flatten()?;
        Some(Self::Enter { path, data, first })
    }

    fn look(reader: &mut Reader<'a>) -> Option<Self> {
        let (directory, own) = (reader.text().ok()?, reader.text().ok()?);
        let first = three(reader)?;
        (!own.is_empty()).then_some(Self::Look {
            directory,
            own,
            first,
        })
    }
}

/// Three numbers, one after the other. Returns the first.
fn three(reader: &mut Reader<'_>) -> Option<i64> {
    let first = reader.number().ok()?;
    let others = [reader.number().ok()?, reader.number().ok()?];
    (others == [first + 1, first + 2]).then_some(first)
}

impl Lines {
    /// Carries it out. `None` if that is not possible, and nothing was done: then `requests` finds out why.
    pub(super) async fn simply(
        &self,
        caller: &Caller,
        simple: &Simple<'_>,
    ) -> Result<Option<Value>, CallError> {
        match self.simple_answer(caller, simple).await {
            Ok(done) => Ok(done),
            // The server has undone it because of others.
            Err(Failed::Again(_)) => Ok(None),
            Err(Failed::Otherwise(error)) => Err(error),
        }
    }

    async fn simple_answer(
        &self,
        caller: &Caller,
        simple: &Simple<'_>,
    ) -> Result<Option<Value>, Failed> {
        let Caller {
            name, id, timeout, ..
        } = caller;
        let answer = match simple {
            Simple::Enter { path, data, first } => {
                let (dir, base) = split_new(path);
                let (up_dir, up_name) = split(dir);
                let seen = self.seen();
                let said: [Parameter<'_>; 10] = [
                    name, id, timeout, &seen, &up_dir, &up_name, &dir, &base, data, first,
                ];
                self.requests.one(&self.calls.enter, &said).await
            }
            Simple::Look {
                directory,
                own,
                first,
            } => {
                let said: [Parameter<'_>; 6] = [name, id, timeout, directory, own, first];
                self.requests.one(&self.calls.look, &said).await
            }
            Simple::Leave { path } => return self.leave(caller, path).await,
        };
        let row = match answer {
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => return Ok(None),
            row => row.map_err(failed)?,
        };
        let Some(answer) = row.try_get::<_, Option<&str>>(0).map_err(failed)? else {
            return Ok(None);
        };
        let looked = Looked::read(simple, answer);
        let looked = looked.ok_or_else(|| {
            let why = "unexpected answer to an acquire";
            Failed::Otherwise(lost(std::io::Error::other(why)))
        })?;
        // Before anybody reads the answer.
        self.bell.signal(|it| it.has_watched |= looked.watches);
        Ok(Some(looked.answer))
    }

    async fn leave(&self, caller: &Caller, path: &str) -> Result<Option<Value>, Failed> {
        let (dir, node) = split(path);
        let said: [Parameter<'_>; 5] = [&caller.name, &caller.id, &caller.timeout, &dir, &node];
        // Nobody rings its own session. Who acquired without a wait does not watch its node.
        let is_watched = self.shared.watches.are_on(path);
        if is_watched {
            self.bell.changes();
        }
        let row = self.requests.one(&self.calls.leave, &said).await;
        let step = row.and_then(|row| row.try_get::<_, Option<i64>>(0));
        let step = step.map_err(failed);
        if is_watched {
            let is_known = match &step {
                Ok(_) | Err(Failed::Again(_)) => true,
                Err(Failed::Otherwise(error)) => matches!(error, CallError::NotNow(_)),
            };
            self.bell.changed(is_known);
        }
        let step = step?;
        let done = || Value::List(vec![Value::Bytes(Vec::new())]);
        Ok(step.map(|step| Value::List(vec![done(), Value::Number(step)])))
    }
}

/// An answer of `enter` or `look`.
struct Looked {
    /// As of `requests`: to the create, to the look, and the step.
    answer: Value,
    /// Whether nodes are watched.
    watches: bool,
}

impl Looked {
    /// Reads it: see `enter.sql`.
    fn read(simple: &Simple<'_>, answer: &str) -> Option<Self> {
        let bytes = |word: &str| Value::Bytes(word.as_bytes().to_vec());
        let done = || Value::Bytes(Vec::new());
        let mut words = answer.split('/');
        let step = Value::Number(words.next()?.parse().ok()?);
        let mut answers = Vec::new();
        if let Simple::Enter { path, .. } = simple {
            let number = Value::Number(words.next()?.parse().ok()?);
            let place: i64 = words.next()?.parse().ok()?;
            let path = format!("{path}{place:010}");
            answers.push(Value::List(vec![
                done(),
                Value::Bytes(path.into_bytes()),
                number,
            ]));
        }
        let count: usize = words.next()?.parse().ok()?;
        let names: Vec<_> = words.by_ref().take(count).map(bytes).collect();
        // Who takes the rest for all may be granted a lock that another holds.
        (names.len() == count).then_some(())?;
        let mut look = vec![done(), Value::List(names)];
        let mut at = 0;
        for word in words {
            look.push(match at % PARTS {
                1 => bytes(word),
                2 => Value::Bytes(data(word)?),
                _ => Value::Number(word.parse().ok()?),
            });
            at += 1;
        }
        answers.extend([Value::List(look), step]);
        (at % PARTS == 0).then_some(Self {
            answer: Value::List(answers),
            watches: at > 0,
        })
    }
}

/// Reads hexadecimal digits.
fn data(digits: &str) -> Option<Vec<u8>> {
    let digit = |it: u8| char::from(it).to_digit(16);
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    pairs.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &str) -> Words {
        let mut call = Words::default();
        call.arg("7:100:s:1").number(7).number(100).number(60);
        for word in words.split(' ') {
            call.arg(if word == "-" { "" } else { word });
        }
        call
    }

    fn simple(call: &Words) -> Option<Simple<'_>> {
        Simple::of(call).map(|(_, simple)| simple)
    }

    #[test]
    fn acquire_look_and_release_of_one_lock_are_simple() {
        let acquire = call("multi 1 create /l/a/x- me S look /l/a - 4 5 6");
        let enter = Simple::Enter {
            path: "/l/a/x-",
            data: b"me",
            first: 4,
        };
        assert_eq!(simple(&acquire), Some(enter));
        let release = call("multi 1 delete /l/a/x-1 -");
        let leave = Simple::Leave { path: "/l/a/x-1" };
        assert_eq!(simple(&release), Some(leave));
        let again = call("look /l/a x-1 4 5 6");
        let look = Simple::Look {
            directory: "/l/a",
            own: "x-1",
            first: 4,
        };
        assert_eq!(simple(&again), Some(look));
    }

    #[test]
    fn all_else_is_not() {
        for words in [
            "multi 1 create /l/a/x- me E look /l/a - 4 5 6",
            "multi 1 create /l/a/x- me S look /l - 4 5 6",
            "multi 1 create /l/a/x- me S look /l/a x 4 5 6",
            "multi 1 create /l/a/x- me S look /l/a - 4 5 7",
            "multi 1 create /l/a/x- me S look /l/a - 4 5 6 beat",
            "multi 1 create /l/a/x- me S",
            "multi 2 create /l/a/x- me S look /l/a - 4 5 6",
            "multi 1 delete /l/a/x-1 3",
            "multi 1 delete /l/a/x-1 - beat",
            "multi 1 check /l/a/x-1 -",
            "look /l/a - 4 5 6",
            "look /l/a x-1 4 5 9",
            "look /l/a x-1 4 5 6 beat",
        ] {
            assert_eq!(simple(&call(words)), None, "{words}");
        }
        let long = "a".repeat(PATH_BYTES_MAX);
        let words = format!("multi 1 create /{long}/x- me S look /{long} - 4 5 6");
        assert_eq!(simple(&call(&words)), None);
    }

    const ENTER: Simple<'_> = Simple::Enter {
        path: "/a/x-",
        data: b"",
        first: 4,
    };

    fn bytes(word: &str) -> Value {
        Value::Bytes(word.into())
    }

    #[test]
    fn answer_without_others_has_no_watches() {
        let entered = Looked::read(&ENTER, "30/5/7/1/x-0000000007").unwrap();
        let created = vec![bytes(""), bytes("/a/x-0000000007"), Value::Number(5)];
        let look = vec![bytes(""), Value::List(vec![bytes("x-0000000007")])];
        let answer = vec![Value::List(created), Value::List(look), Value::Number(30)];
        assert_eq!(entered.answer, Value::List(answer));
        assert!(!entered.watches);
    }

    #[test]
    fn watched_nodes_come_with_data_and_stat() {
        let own = "4/x-0000000007/00ff/1/2/3/4/5/6/7";
        let ahead = "5/y-0000000006//1/1/0/9/0/0/1";
        let answer = format!("30/5/7/2/y-0000000006/x-0000000007/{own}/{ahead}");
        let entered = Looked::read(&ENTER, &answer).unwrap();
        let Value::List(answer) = &entered.answer else {
            panic!("no list")
        };
        let Some(Value::List(look)) = answer.get(1) else {
            panic!("no look")
        };
        let mut expected = vec![Value::Number(4), bytes("x-0000000007")];
        expected.push(Value::Bytes(vec![0, 255]));
        expected.extend((1..=7).map(Value::Number));
        assert_eq!(look[2..12], expected);
        assert_eq!(
            look[12..15],
            [Value::Number(5), bytes("y-0000000006"), bytes("")]
        );
        assert!(entered.watches);
    }

    #[test]
    fn answer_to_a_look_has_no_node() {
        let look = Simple::Look {
            directory: "/a",
            own: "x",
            first: 1,
        };
        let answer = "30/1/x/1/x//1/2/3/4/5/6/7";
        let looked = Looked::read(&look, answer).unwrap();
        let Value::List(answers) = &looked.answer else {
            panic!("no list")
        };
        assert_eq!((answers.len(), &answers[1]), (2, &Value::Number(30)));
        assert!(looked.watches);
    }

    #[test]
    fn answer_that_is_cut_off_is_none() {
        for answer in [
            "",
            "30/5/7",
            "30/5/7/x",
            "30/5/7/2/x-7",
            "30/5/7/1/x-7/4/x-7/0",
            "30/5/7/1/x-7/4/x-7/0g/1/2/3/4/5/6/7",
        ] {
            assert!(Looked::read(&ENTER, answer).is_none(), "{answer}");
        }
    }
}
