//! Where the messages of Redis end, and what they are made of. RESP2 and RESP3.

use super::frame::Direction;

/// Redis refuses longer lines of its clients.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Redis refuses longer strings of its clients, by default.
const STRING_BYTES_MAX: u64 = 512 << 20;
/// More values in one message than fit into memory.
const VALUES_MAX: u64 = 1 << 40;
const LINE_END: &[u8] = b"\r\n";

/// These bytes are not of this protocol, or of a part of it that Redis does not use: streamed
/// strings and aggregates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotResp;

/// How much of a message has been seen. It never looks at what it has seen again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// Where the next value begins.
    at: usize,
    /// Values that must still come. Values in values are counted, so nothing recurses.
    missing: u64,
}

impl Default for Scan {
    fn default() -> Self {
        Self { at: 0, missing: 1 }
    }
}

impl Scan {
    /// Returns the length of the first message in the buffer once it is there. The next call is for
    /// the next message.
    pub(super) fn end(
        &mut self,
        buffer: &[u8],
        direction: Direction,
    ) -> Result<Option<usize>, NotResp> {
        if direction == Direction::ToServer && buffer.first().is_some_and(|it| *it != b'*') {
            return line_by_hand(buffer);
        }
        while self.missing > 0 {
            let rest = buffer.get(self.at..).unwrap_or_default();
            let Some(token) = token(rest)? else {
                return Ok(None);
            };
            self.at += token.length;
            self.missing = self.missing - 1 + token.values;
            if self.missing > VALUES_MAX {
                return Err(NotResp);
            }
        }
        Ok(Some(std::mem::take(self).at))
    }
}

/// A command as a person types it: words in a line. Whatever does not look like one, such as TLS,
/// is not waited for.
fn line_by_hand(buffer: &[u8]) -> Result<Option<usize>, NotResp> {
    let is_typed = |it: &u8| it.is_ascii_alphabetic() || it.is_ascii_whitespace();
    if !buffer.first().is_some_and(is_typed) {
        return Err(NotResp);
    }
    match buffer.iter().position(|it| *it == b'\n') {
        Some(end) => Ok(Some(end + 1)),
        None if buffer.len() > LINE_BYTES_MAX => Err(NotResp),
        None => Ok(None),
    }
}

/// A value, or the head of one that has others in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// The first byte, which says what it is.
    pub(super) kind: u8,
    /// A string, or the line of anything else.
    pub(super) content: &'a [u8],
    /// How many values come next that belong to it.
    pub(super) values: u64,
    length: usize,
}

/// The first token. `None` if it has not arrived as a whole.
fn token(bytes: &[u8]) -> Result<Option<Token<'_>>, NotResp> {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    // Before the end of the line has come, so that noise is not waited for.
    if !b"+-:_#,($!=*~>%|".contains(&kind) {
        return Err(NotResp);
    }
    let Some(end) = rest.windows(2).position(|it| it == LINE_END) else {
        return match rest.len() > LINE_BYTES_MAX {
            true => Err(NotResp),
            false => Ok(None),
        };
    };
    let line = rest.get(..end).unwrap_or_default();
    let token = Token {
        kind,
        content: line,
        values: 0,
        length: 1 + end + LINE_END.len(),
    };
    match kind {
        b'$' | b'!' | b'=' => string(token, bytes),
        b'*' | b'~' | b'>' | b'%' | b'|' => Ok(Some(Token {
            values: match (kind, length(line)?) {
                (b'*', None) => 0,
                (_, None) => return Err(NotResp),
                (b'%', Some(pairs)) => pairs * 2,
                // What it describes comes after it.
                (b'|', Some(pairs)) => pairs * 2 + 1,
                (_, Some(values)) => values,
            },
            ..token
        })),
        _ => Ok(Some(token)),
    }
}

/// The bytes that the line of a string announces.
fn string<'a>(head: Token<'a>, bytes: &'a [u8]) -> Result<Option<Token<'a>>, NotResp> {
    let Some(announced) = length(head.content)? else {
        let null = Token {
            content: &[],
            ..head
        };
        return Ok(Some(null));
    };
    let announced = usize::try_from(announced).map_err(|_| NotResp)?;
    let end = head.length + announced;
    let Some(line_end) = bytes.get(end..end + LINE_END.len()) else {
        return Ok(None);
    };
    if line_end != LINE_END {
        return Err(NotResp);
    }
    Ok(Some(Token {
        content: bytes.get(head.length..end).unwrap_or_default(),
        length: end + LINE_END.len(),
        ..head
    }))
}

/// A length; `None` for the null of RESP2. None is longer than a string may be.
fn length(line: &[u8]) -> Result<Option<u64>, NotResp> {
    if line == b"-1" {
        return Ok(None);
    }
    let digits = std::str::from_utf8(line).map_err(|_| NotResp)?;
    let length: u64 = digits.parse().map_err(|_| NotResp)?;
    match length <= STRING_BYTES_MAX {
        true => Ok(Some(length)),
        false => Err(NotResp),
    }
}

/// All tokens of a message, in the order in which they came.
pub(super) fn tokens(message: &[u8]) -> impl Iterator<Item = Token<'_>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        let token = token(rest).ok()??;
        rest = rest.get(token.length..).unwrap_or_default();
        Some(token)
    })
}

/// The tokens of an answer, without the attributes that may come before it.
pub(super) fn answer(message: &[u8]) -> impl Iterator<Item = Token<'_>> {
    let mut tokens = tokens(message).peekable();
    while let Some(attributes) = tokens.next_if(|it| it.kind == b'|') {
        // What they describe is not skipped.
        let mut left = attributes.values - 1;
        while left > 0 {
            let Some(token) = tokens.next() else { break };
            left = left - 1 + token.values;
        }
    }
    tokens
}

/// The words of a request.
pub(super) fn words(message: &[u8]) -> Vec<&[u8]> {
    if message.first() == Some(&b'*') {
        return tokens(message).skip(1).map(|it| it.content).collect();
    }
    let words = message.split(u8::is_ascii_whitespace);
    words.filter(|it| !it.is_empty()).collect()
}

#[cfg(test)]
mod tests;
