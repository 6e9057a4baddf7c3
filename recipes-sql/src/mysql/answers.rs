//! What the procedures answer, as the keeper wants it.

use mysql_async::Row;
use recipes_core::{Created, NewNode, NodeMode, NodeOp, NodeOpDone, NodeStat};
use recipes_keeper::{
    Asked, CallError, Outcome, Parts, Said, Watched, counted, reason, signed, stat,
};

use crate::path::split;

use super::batch::{is_nothing, unfit};
use super::procedures::Columns;

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

/// The path of a sequential node.
fn placed(path: &str, place: i64) -> String {
    format!("{path}{:010}", signed(place))
}

/// Reads the answers of `requests`.
pub(super) fn of_requests(all: &[Asked], text: &[u8]) -> Result<Vec<Outcome>, CallError> {
    let mut text = Text(text);
    let outcome = |asked: &Asked| match (asked, unfit(asked)) {
        (Asked::Multi(_), Some(index)) => reason("TooLong", Some(index)).map(Err),
        (_, Some(_)) => reason("TooLong", None).map(Err),
        (asked, None) => text.answer(asked),
    };
    let outcomes = all.iter().map(outcome).collect::<Result<_, _>>()?;
    match text.0 {
        [] => Ok(outcomes),
        _ => Err(CallError::unexpected("too long")),
    }
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
    all: &[Asked],
    id: i64,
    entered: &Entered,
) -> Result<Vec<Outcome>, CallError> {
    let (mut own, mut said) = (None, Vec::with_capacity(all.len()));
    for asked in all {
        said.push(match asked {
            Asked::Multi(operations) => {
                let mut done = Vec::new();
                for operation in operations.iter() {
                    if let NodeOp::Create(node) = operation {
                        let path = placed(&node.path, entered.place);
                        own = Some((path.clone(), &*node.data));
                        let czxid = Some(entered.number);
                        done.push(NodeOpDone::Created(Created { path, czxid }));
                    }
                }
                Said::Multi(done)
            }
            Asked::Look { first, .. } => {
                let names = names(entered.count, &entered.names)?;
                let watched = match &own {
                    Some(own) if entered.ahead > 0 => watched(*first, own, id, entered)?,
                    _ => Vec::new(),
                };
                Said::Names(names, watched)
            }
            _ => Said::Nothing,
        });
    }
    Ok(said.into_iter().map(Ok).collect())
}

/// The nodes that an acquire watches: its own, as this transaction has created it, and those ahead.
fn watched(
    first: u64,
    (path, data): &(String, &[u8]),
    id: i64,
    entered: &Entered,
) -> Result<Vec<Watched>, CallError> {
    let number = entered.number;
    let mut watched = vec![Watched {
        number: first,
        name: split(path).1.to_owned(),
        data: data.to_vec(),
        stat: stat([number, number, 0, id, 0, 0, number])?,
    }];
    let mut nodes = Text(&entered.nodes);
    for after in 1..=entered.ahead.min(2) {
        let number = i64::try_from(first).unwrap_or(i64::MAX) + after;
        watched.push(nodes.watched_as(number)?);
    }
    Ok(watched)
}

/// The answer where nodes are deleted, and nothing is asked.
pub(super) fn of_leave(all: &[Asked]) -> Vec<Outcome> {
    let said = |asked: &Asked| match asked {
        Asked::Multi(operations) => {
            Said::Multi(operations.iter().map(|_| NodeOpDone::Deleted).collect())
        }
        _ => Said::Nothing,
    };
    all.iter().map(|it| Ok(said(it))).collect()
}

/// Names with slashes between them.
pub(super) fn names(count: i64, bytes: &[u8]) -> Result<Vec<String>, CallError> {
    let names = match count {
        0 => Vec::new(),
        _ => {
            let names = bytes.split(|it| *it == b'/').map(text);
            names.collect::<Result<Vec<_>, _>>()?
        }
    };
    // Who sees no holder would be granted a lock beside them.
    match usize::try_from(count).is_ok_and(|count| count == names.len()) {
        true => Ok(names),
        false => Err(CallError::unexpected("a listing was cut")),
    }
}

fn text(bytes: &[u8]) -> Result<String, CallError> {
    let text = String::from_utf8(bytes.to_vec());
    text.map_err(|_| CallError::unexpected("no text"))
}

/// Numbers with a blank after each, and bytes after their count.
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl<'a> Text<'a> {
    fn next_number(&mut self) -> Result<i64, CallError> {
        let missing = || CallError::unexpected("no number");
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
        usize::try_from(self.number()?).map_err(|_| CallError::unexpected("no count"))
    }

    pub(super) fn next_bytes(&mut self) -> Result<&'a [u8], CallError> {
        let count = self.count()?;
        let parts = self.0.split_at_checked(count);
        let (bytes, rest) = parts.ok_or_else(|| CallError::unexpected("too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn answer(&mut self, asked: &Asked) -> Result<Outcome, CallError> {
        if is_nothing(asked) {
            return self.outcome(asked, "", false);
        }
        let word = REASONS.get(self.count()?);
        let word = word.ok_or_else(|| CallError::unexpected("an unknown reason"))?;
        self.outcome(asked, word, matches!(asked, Asked::Multi(_)))
    }
}

impl Parts for Text<'_> {
    fn number(&mut self) -> Result<i64, CallError> {
        self.next_number()
    }

    fn bytes(&mut self) -> Result<Vec<u8>, CallError> {
        Ok(self.next_bytes()?.to_vec())
    }

    fn names(&mut self) -> Result<Vec<String>, CallError> {
        let count = self.number()?;
        names(count, self.next_bytes()?)
    }

    /// How many, and these.
    fn watched(&mut self, first: u64) -> Result<Vec<Watched>, CallError> {
        let count = self.number()?.min(3);
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        (first..first.saturating_add(count))
            .map(|number| self.watched_as(number))
            .collect()
    }

    fn stat(&mut self) -> Result<NodeStat, CallError> {
        let mut parts = [0; 7];
        for part in &mut parts {
            *part = self.number()?;
        }
        counted(parts)
    }

    fn created(&mut self, node: &NewNode) -> Result<Created, CallError> {
        let (number, place) = (self.number()?, self.number()?);
        let path = match node.mode {
            NodeMode::EphemeralSequential => placed(&node.path, place),
            _ => node.path.clone(),
        };
        let czxid = Some(number);
        Ok(Created { path, czxid })
    }
}

#[cfg(test)]
mod tests;
