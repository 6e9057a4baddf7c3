//! What the procedures answer, as the keeper wants it.

use mysql_async::Row;
use recipes_keeper::{CallError, Value};

use super::batch::unfit;
use super::errors::Unexpected;
use crate::path::split;

use super::procedures::Columns;
use super::request::{Operation, Request};

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

/// Of an acquire that found everything in order.
#[derive(Debug, Default)]
pub(super) struct Entered {
    pub(super) number: i64,
    pub(super) place: i64,
    /// How many names, and these with slashes between them.
    pub(super) count: i64,
    pub(super) names: Vec<u8>,
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
fn placed(path: &str, place: i64) -> String {
    format!("{path}{:010}", signed(place))
}

/// Reads the answers of `requests`.
pub(super) fn of_requests(requests: &[Request<'_>], text: &[u8]) -> Result<Vec<Value>, CallError> {
    let mut answers = Vec::with_capacity(requests.len() + 1);
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
            (request, None) => of_request(request, &mut text)?,
        };
        answers.push(Value::List(value));
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
                    _ => (*path).to_owned(),
                };
                parts.extend([word(&path), Value::Number(number)]);
            }
            Operation::Set { .. } => parts.extend(text.stat()?.map(Value::Number)),
            Operation::Delete { .. } | Operation::Check { .. } => {}
        }
    }
    Ok(parts)
}

fn of_request(request: &Request<'_>, text: &mut Text<'_>) -> Result<Vec<Value>, CallError> {
    let reason = text.reason()?;
    let mut parts = vec![word(reason)];
    if !reason.is_empty() {
        return Ok(parts);
    }
    match request {
        Request::List(_) => parts.push(text.names()?),
        Request::Look { numbers, .. } => {
            parts.push(text.names()?);
            let count = text.count()?;
            for number in numbers.iter().take(count) {
                parts.extend(text.node(number)?);
            }
        }
        Request::Read(_) | Request::Watch(_) => {
            parts.push(Value::Bytes(text.bytes()?.to_vec()));
            parts.extend(text.stat()?.map(Value::Number));
        }
        _ => parts.extend(text.stat()?.map(Value::Number)),
    }
    Ok(parts)
}

impl Entered {
    /// Reads the row that `enter` selects.
    pub(super) fn of(row: Option<Row>) -> Result<Self, CallError> {
        let mut row = Columns::of(row)?;
        Ok(Self {
            number: row.number()?,
            place: row.number()?,
            count: row.number()?,
            names: row.bytes()?,
            ahead: row.number()?,
            nodes: row.bytes()?,
        })
    }
}

/// The answer of an acquire that found everything in order.
pub(super) fn of_enter(
    requests: &[Request<'_>],
    id: i64,
    entered: &Entered,
) -> Result<Vec<Value>, CallError> {
    let mut own = (String::new(), &b""[..]);
    let mut answers = Vec::with_capacity(requests.len() + 1);
    for request in requests {
        let mut parts = vec![word("")];
        match request {
            Request::Multi(operations) => {
                for operation in operations {
                    if let Operation::Create { path, data, .. } = operation {
                        own = (placed(path, entered.place), data);
                        parts.extend([word(&own.0), Value::Number(entered.number)]);
                    }
                }
            }
            Request::Look { numbers, .. } => {
                parts.push(names(entered.count, &entered.names)?);
                if entered.ahead > 0 {
                    parts.extend(watched(numbers, &own, id, entered)?);
                }
            }
            _ => {}
        }
        answers.push(Value::List(parts));
    }
    Ok(answers)
}

/// The nodes that an acquire watches: its own, as this transaction has created it, and those ahead.
fn watched(
    [first, others @ ..]: &[&str; 3],
    (path, data): &(String, &[u8]),
    id: i64,
    entered: &Entered,
) -> Result<Vec<Value>, CallError> {
    let number = entered.number;
    let mut parts = vec![
        word(first),
        word(split(path).1),
        Value::Bytes(data.to_vec()),
    ];
    parts.extend([number, number, 0, id, 0, 0, number].map(Value::Number));
    let ahead = usize::try_from(entered.ahead).unwrap_or_default();
    let mut nodes = Text(&entered.nodes);
    for number in others.iter().take(ahead) {
        parts.extend(nodes.node(number)?);
    }
    Ok(parts)
}

/// The answer where nothing is asked but done.
pub(super) fn of_leave(requests: &[Request<'_>]) -> Vec<Value> {
    requests
        .iter()
        .map(|_| Value::List(vec![word("")]))
        .collect()
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
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl<'a> Text<'a> {
    pub(super) fn number(&mut self) -> Result<i64, CallError> {
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

    pub(super) fn count(&mut self) -> Result<usize, CallError> {
        usize::try_from(self.number()?).map_err(|_| Unexpected::answer("no count"))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], CallError> {
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

    fn stat(&mut self) -> Result<[i64; 7], CallError> {
        let mut stat = [0; 7];
        for part in &mut stat {
            *part = self.number()?;
        }
        let [_, _, _, _, children, version, _] = &mut stat;
        // It counts creations and deletions of children; so far it has the creations.
        *version = signed(*version * 2 - *children);
        Ok(stat)
    }

    /// A node that is watched under a number.
    fn node(&mut self, number: &str) -> Result<Vec<Value>, CallError> {
        let (name, data) = (self.bytes()?, self.bytes()?);
        let mut parts = vec![word(number)];
        parts.extend([name, data].map(|it| Value::Bytes(it.to_vec())));
        parts.extend(self.stat()?.map(Value::Number));
        Ok(parts)
    }
}

#[cfg(test)]
mod tests;
