//! What the procedures answer, as the keeper wants it.

use recipes_keeper::{CallError, Value};

use super::batch::unfit;
use super::errors::Unexpected;
use super::request::{Operation, Request, join, split};

/// Why a request is refused, in the order of the numbers in `requests.sql`.
const REASONS: [&str; 7] = [
    "",
    "NoNode",
    "NodeExists",
    "BadVersion",
    "NotEmpty",
    "EphemeralParent",
    "Busy",
];

/// The answer for a node that is watched from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) path: Vec<u8>,
    pub(super) is_own: bool,
}

/// The answer to a call: one for each request; and the nodes that they watch.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) values: Vec<Value>,
    pub(super) watched: Vec<Watched>,
}

/// Of an acquire that found everything in order.
#[derive(Debug, Default)]
pub(super) struct Entered {
    pub(super) number: i64,
    pub(super) place: i64,
    pub(super) names: Vec<Vec<u8>>,
    /// How many nodes ahead, and these.
    pub(super) ahead: i64,
    pub(super) nodes: Vec<u8>,
}

fn word(word: &str) -> Value {
    Value::Bytes(word.as_bytes().to_vec())
}

/// Signed 32-bit numbers, as in ZooKeeper.
fn signed(number: i64) -> i64 {
    (number + 0x8000_0000).rem_euclid(0x1_0000_0000) - 0x8000_0000
}

/// The path of a sequential node.
fn placed(path: &[u8], place: i64) -> Vec<u8> {
    [path, format!("{:010}", signed(place)).as_bytes()].concat()
}

/// Reads the answers of `requests`.
pub(super) fn of_requests(
    requests: &[Request<'_>],
    id: i64,
    text: &[u8],
) -> Result<Answers, CallError> {
    let mut answers = Answers::default();
    let mut text = Text(text);
    for request in requests {
        let value = match (request, unfit(request)) {
            (Request::Nothing, _) => vec![word("")],
            (Request::Multi(_), Some(index)) => {
                let index = i64::try_from(index).unwrap_or_default();
                vec![word("TooLong"), Value::Number(index)]
            }
            (_, Some(_)) => vec![word("TooLong")],
            (Request::Multi(operations), None) => multi(operations, &mut text)?,
            (request, None) => of_request(request, id, &mut text, &mut answers.watched)?,
        };
        answers.values.push(Value::List(value));
    }
    match text.0 {
        [] => Ok(answers),
        _ => Err(Unexpected::answer("too long")),
    }
}

fn multi(operations: &[Operation<'_>], text: &mut Text<'_>) -> Result<Vec<Value>, CallError> {
    let reason = text.reason()?;
    if !reason.is_empty() {
        return Ok(vec![word(reason), Value::Number(text.number()?)]);
    }
    let mut parts = vec![word("")];
    for operation in operations {
        match operation {
            Operation::Create { path, kind, .. } => {
                let (number, place) = (text.number()?, text.number()?);
                let path = match kind {
                    b'S' => placed(path, place),
                    _ => path.to_vec(),
                };
                parts.extend([Value::Bytes(path), Value::Number(number)]);
            }
            Operation::Set { .. } => parts.extend(text.stat()?.values()),
            Operation::Delete { .. } | Operation::Check { .. } => {}
        }
    }
    Ok(parts)
}

fn of_request(
    request: &Request<'_>,
    id: i64,
    text: &mut Text<'_>,
    watched: &mut Vec<Watched>,
) -> Result<Vec<Value>, CallError> {
    let reason = text.reason()?;
    let mut parts = vec![word(reason)];
    if !reason.is_empty() {
        return Ok(parts);
    }
    match request {
        Request::List(_) => parts.push(text.names()?),
        Request::Look {
            directory, numbers, ..
        } => {
            parts.push(text.names()?);
            let count = text.count()?;
            for number in numbers.iter().take(count) {
                parts.extend(text.node(id, directory, number, watched)?);
            }
        }
        Request::Read(path) | Request::Watch(path) => {
            let data = text.bytes()?.to_vec();
            let stat = text.stat()?;
            if matches!(request, Request::Watch(_)) {
                watched.push(Watched {
                    path: path.to_vec(),
                    is_own: stat.owner == id,
                });
            }
            parts.push(Value::Bytes(data));
            parts.extend(stat.values());
        }
        _ => parts.extend(text.stat()?.values()),
    }
    Ok(parts)
}

/// Reads the answer of `enter`.
pub(super) fn of_enter(
    requests: &[Request<'_>],
    id: i64,
    entered: &Entered,
) -> Result<Answers, CallError> {
    let mut answers = Answers::default();
    let mut created = (Vec::new(), &b""[..]);
    for request in requests {
        let value = match request {
            Request::Multi(operations) => {
                let mut parts = vec![word("")];
                for operation in operations {
                    if let Operation::Create { path, data, .. } = operation {
                        created = (placed(path, entered.place), data);
                        let path = Value::Bytes(created.0.clone());
                        parts.extend([path, Value::Number(entered.number)]);
                    }
                }
                parts
            }
            Request::Look {
                directory, numbers, ..
            } => {
                let names = entered.names.iter().cloned().map(Value::Bytes).collect();
                let mut parts = vec![word(""), Value::List(names)];
                if entered.ahead > 0 {
                    let [own, others @ ..] = numbers;
                    let (path, data) = &created;
                    let stat = Stat::new(entered.number, id);
                    let number = Value::Bytes(own.to_vec());
                    let name = Value::Bytes(split(path).1.to_vec());
                    parts.extend([number, name, Value::Bytes(data.to_vec())]);
                    parts.extend(stat.values());
                    answers.watched.push(Watched {
                        path: path.clone(),
                        is_own: true,
                    });
                    let ahead = usize::try_from(entered.ahead).unwrap_or_default();
                    let mut nodes = Text(&entered.nodes);
                    for number in others.iter().take(ahead) {
                        let watched = &mut answers.watched;
                        parts.extend(nodes.node(id, directory, number, watched)?);
                    }
                }
                parts
            }
            _ => vec![word("")],
        };
        answers.values.push(Value::List(value));
    }
    Ok(answers)
}

/// The answer where nothing is asked but done.
pub(super) fn of_leave(requests: &[Request<'_>]) -> Answers {
    let done = requests.iter().map(|_| Value::List(vec![word("")]));
    Answers {
        values: done.collect(),
        watched: Vec::new(),
    }
}

struct Stat {
    owner: i64,
    parts: [i64; 7],
}

impl Stat {
    /// That of a node that this transaction has created.
    fn new(number: i64, owner: i64) -> Self {
        Self {
            owner,
            parts: [number, number, 0, owner, 0, 0, number],
        }
    }

    fn values(&self) -> impl Iterator<Item = Value> {
        self.parts.into_iter().map(Value::Number)
    }
}

/// Names with slashes between them.
fn names(count: i64, bytes: &[u8]) -> Result<Value, CallError> {
    let names: Vec<_> = match count {
        0 => Vec::new(),
        _ => {
            let names = bytes.split(|it| *it == b'/');
            names.map(|it| Value::Bytes(it.to_vec())).collect()
        }
    };
    // Who sees no holder would be granted a lock beside them.
    match usize::try_from(count).is_ok_and(|count| count == names.len()) {
        true => Ok(Value::List(names)),
        false => Err(Unexpected::answer("a listing was cut")),
    }
}

/// Numbers with a blank after each, and bytes after their count.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn number(&mut self) -> Result<i64, CallError> {
        let missing = || Unexpected::answer("no number");
        let end = self
            .0
            .iter()
            .position(|it| *it == b' ')
            .ok_or_else(missing)?;
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        let digits = std::str::from_utf8(digits).ok();
        digits.and_then(|it| it.parse().ok()).ok_or_else(missing)
    }

    fn count(&mut self) -> Result<usize, CallError> {
        usize::try_from(self.number()?).map_err(|_| Unexpected::answer("no count"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], CallError> {
        let count = self.count()?;
        let parts = self.0.split_at_checked(count);
        let (bytes, rest) = parts.ok_or_else(|| Unexpected::answer("too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn reason(&mut self) -> Result<&'static str, CallError> {
        let reason = REASONS.get(self.count()?);
        reason
            .copied()
            .ok_or_else(|| Unexpected::answer("an unknown reason"))
    }

    fn names(&mut self) -> Result<Value, CallError> {
        let count = self.number()?;
        names(count, self.bytes()?)
    }

    fn stat(&mut self) -> Result<Stat, CallError> {
        let mut parts = [0; 7];
        for part in &mut parts {
            *part = self.number()?;
        }
        let [_, _, _, owner, children, created, _] = parts;
        // The version of the children counts creations and deletions.
        let [_, _, _, _, _, version, _] = &mut parts;
        *version = signed(created * 2 - children);
        Ok(Stat { owner, parts })
    }

    /// A node that is watched under a number.
    fn node(
        &mut self,
        id: i64,
        directory: &[u8],
        number: &[u8],
        watched: &mut Vec<Watched>,
    ) -> Result<impl Iterator<Item = Value> + use<>, CallError> {
        let (name, data) = (self.bytes()?, self.bytes()?);
        let stat = self.stat()?;
        watched.push(Watched {
            path: join(directory, name),
            is_own: stat.owner == id,
        });
        let parts = [number, name, data].map(|it| Value::Bytes(it.to_vec()));
        Ok(parts.into_iter().chain(stat.parts.map(Value::Number)))
    }
}

#[cfg(test)]
mod tests;
