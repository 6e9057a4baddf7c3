//! Where the frames of HTTP/2 end, and what is in them.

use super::frame::Direction;

/// What a client begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;

/// The types of frames.
pub(super) mod kind {
    pub(in crate::proxy) const DATA: u8 = 0;
    pub(in crate::proxy) const HEADERS: u8 = 1;
    pub(in crate::proxy) const RST_STREAM: u8 = 3;
    pub(in crate::proxy) const SETTINGS: u8 = 4;
    pub(in crate::proxy) const CONTINUATION: u8 = 9;
}

/// Of data and headers: their end has no other frame after it. Of settings and pings: an answer.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 1 << 2;
const PADDED: u8 = 1 << 3;
const PRIORITY: u8 = 1 << 5;
/// On whom a stream depends, and how much it weighs.
const PRIORITY_BYTES: usize = 5;

/// These bytes are not of this protocol: text, TLS, noise.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotHttp2;

/// A frame of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) kind: u8,
    flags: u8,
    /// 0 is the connection.
    pub(super) stream: u32,
    /// Without padding and priority.
    pub(super) body: &'a [u8],
    /// Of all of it.
    length: usize,
}

impl Part<'_> {
    /// Whether it is the last of its stream that this end sends.
    pub(super) fn ends_stream(&self) -> bool {
        self.flags & END_STREAM != 0 && matches!(self.kind, kind::DATA | kind::HEADERS)
    }

    /// Whether it only says that no more data come.
    pub(super) fn is_empty_end(&self) -> bool {
        self.ends_stream() && self.body.is_empty()
    }

    /// Whether no more headers come.
    pub(super) fn ends_headers(&self) -> bool {
        self.flags & END_HEADERS != 0
    }

    pub(super) fn name(&self) -> &'static str {
        let is_answer = self.flags & END_STREAM != 0;
        match (self.kind, is_answer) {
            (kind::DATA, _) => "DATA",
            (kind::HEADERS | kind::CONTINUATION, _) => "HEADERS",
            (2, _) => "PRIORITY",
            (kind::RST_STREAM, _) => "RST_STREAM",
            (kind::SETTINGS, false) => "SETTINGS",
            (kind::SETTINGS, true) => "SETTINGS ACK",
            (5, _) => "PUSH_PROMISE",
            (6, false) => "PING",
            (6, true) => "PING ACK",
            (7, _) => "GOAWAY",
            (8, _) => "WINDOW_UPDATE",
            _ => "Unknown",
        }
    }
}

/// One direction of a connection.
///
/// | a frame of the proxy is | because |
/// |---|---|
/// | the headers of a stream, all of them | the table that compresses them knows no half of them |
/// | of a client, with the data that come next | they leave together, and only the message says what is asked |
/// | the preface, or any other frame of HTTP/2 | |
#[derive(Debug, Default)]
pub(super) struct Scan {
    has_greeted: bool,
}

impl Scan {
    /// Returns the length of the first frame in the buffer once it is there.
    pub(super) fn end(
        &mut self,
        buffer: &[u8],
        direction: Direction,
    ) -> Result<Option<usize>, NotHttp2> {
        if !self.has_greeted {
            match direction {
                Direction::ToServer => return self.preface(buffer),
                // Before more has come, so that text and noise are not waited for.
                Direction::FromServer => match buffer.get(3) {
                    Some(&kind::SETTINGS) => self.has_greeted = true,
                    Some(_) => return Err(NotHttp2),
                    None => return Ok(None),
                },
            }
        }
        let Some(first) = part(buffer) else {
            return Ok(None);
        };
        if first.kind != kind::HEADERS {
            return Ok(Some(first.length));
        }
        let Some(end) = end_of_headers(buffer, first)? else {
            return Ok(None);
        };
        if direction == Direction::FromServer || first.ends_stream() {
            return Ok(Some(end));
        }
        let rest = buffer.get(end..).unwrap_or_default();
        let Some(next) = header(rest) else {
            return Ok(None);
        };
        if (next.kind, next.stream) != (kind::DATA, first.stream) {
            return Ok(Some(end));
        }
        Ok(part(rest).map(|it| end + it.length))
    }

    fn preface(&mut self, buffer: &[u8]) -> Result<Option<usize>, NotHttp2> {
        if buffer.starts_with(PREFACE) {
            self.has_greeted = true;
            return Ok(Some(PREFACE.len()));
        }
        match PREFACE.starts_with(buffer) {
            true => Ok(None),
            false => Err(NotHttp2),
        }
    }
}

/// Where the headers end that begin with this frame.
fn end_of_headers(buffer: &[u8], first: Part<'_>) -> Result<Option<usize>, NotHttp2> {
    let (mut end, mut last) = (first.length, first);
    // Ends with the buffer.
    while !last.ends_headers() {
        let Some(next) = part(buffer.get(end..).unwrap_or_default()) else {
            return Ok(None);
        };
        if (next.kind, next.stream) != (kind::CONTINUATION, first.stream) {
            return Err(NotHttp2);
        }
        (end, last) = (end + next.length, next);
    }
    Ok(Some(end))
}

/// The frames of HTTP/2 that these bytes begin with.
pub(super) fn parts(bytes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let part = part(rest)?;
        rest = rest.get(part.length..).unwrap_or_default();
        Some(part)
    })
}

/// The first frame. `None` if it has not arrived as a whole.
fn part(bytes: &[u8]) -> Option<Part<'_>> {
    let part = header(bytes)?;
    let body = bytes.get(HEADER_BYTES..part.length)?;
    let body = match part.kind {
        kind::DATA | kind::HEADERS => content(part, body).unwrap_or_default(),
        _ => body,
    };
    Some(Part { body, ..part })
}

/// The first frame, without its body.
fn header(bytes: &[u8]) -> Option<Part<'static>> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let [high, middle, low, kind, flags, stream @ ..] = header;
    let length = u32::from_be_bytes([0, *high, *middle, *low]);
    Some(Part {
        kind: *kind,
        flags: *flags,
        // The first bit means nothing.
        stream: u32::from_be_bytes(*stream) & (u32::MAX >> 1),
        body: &[],
        length: HEADER_BYTES + usize::try_from(length).ok()?,
    })
}

/// What is left without padding and priority. `None` if there is less than they say.
fn content<'a>(part: Part<'_>, body: &'a [u8]) -> Option<&'a [u8]> {
    let mut body = body;
    if part.flags & PADDED != 0 {
        let (padding, rest) = body.split_first()?;
        body = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    if part.kind == kind::HEADERS && part.flags & PRIORITY != 0 {
        body = body.get(PRIORITY_BYTES..)?;
    }
    Some(body)
}
