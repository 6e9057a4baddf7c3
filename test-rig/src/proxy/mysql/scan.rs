//! Where the messages of MySQL and MariaDB end.
//!
//! A message is one packet, or several if it has 16 MB or more: all but the last are as long as a
//! packet can be. A packet is its length in three bytes, its number, and so many bytes.

use crate::proxy::frame::Direction;

pub(super) const HEADER_BYTES: usize = 4;
/// A packet of this length is not the last of its message.
pub(super) const PACKET_BYTES_MAX: usize = 0xFF_FFFF;
/// Where the version of the protocol stands in what a server says first, or else an error.
const GREETINGS: [u8; 2] = [10, 0xFF];
/// The client goes on in TLS, if its first message is that short.
const CLIENT_SSL: u32 = 0x800;
const TLS_REQUEST_BYTES: usize = HEADER_BYTES + 32;

/// These bytes are not of this protocol: TLS, noise.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proxy) struct NotMySql;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Scan {
    /// How many messages there were; no more than two are counted.
    messages: usize,
    is_encrypted: bool,
}

impl Scan {
    /// Returns the length of the first message in the buffer once it is there.
    pub(in crate::proxy) fn end(
        &mut self,
        buffer: &[u8],
        direction: Direction,
    ) -> Result<Option<usize>, NotMySql> {
        if self.is_encrypted {
            return Err(NotMySql);
        }
        let (number, first) = (buffer.get(3), buffer.get(HEADER_BYTES));
        // Messages that open a connection are numbered through. A record of TLS has a length there
        // whose upper byte is zero, and noise has anything.
        let is_ours = match (direction, self.messages) {
            (Direction::FromServer, 0) => {
                number.is_none_or(|it| *it == 0) && first.is_none_or(|it| GREETINGS.contains(it))
            }
            (Direction::FromServer, 1) => number.is_none_or(|it| *it != 0),
            (Direction::ToServer, 0) => number.is_none_or(|it| *it == 1),
            _ => true,
        };
        if !is_ours {
            return Err(NotMySql);
        }
        let Some(end) = end(buffer) else {
            return Ok(None);
        };
        self.is_encrypted = direction == Direction::ToServer
            && self.messages == 0
            && end == TLS_REQUEST_BYTES
            && capabilities(buffer).is_some_and(|it| it & CLIENT_SSL != 0);
        self.messages = (self.messages + 1).min(2);
        Ok(Some(end))
    }
}

/// What the client can do, as it says in its first message.
pub(super) fn capabilities(message: &[u8]) -> Option<u32> {
    let body = message.get(HEADER_BYTES..)?;
    Some(u32::from_le_bytes(*body.first_chunk()?))
}

fn end(buffer: &[u8]) -> Option<usize> {
    let mut at = 0;
    // Ends with the last packet, or with the buffer.
    loop {
        let [a, b, c, _] = *buffer.get(at..)?.first_chunk::<HEADER_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, 0])).ok()?;
        at += HEADER_BYTES + length;
        if buffer.len() < at {
            return None;
        }
        if length < PACKET_BYTES_MAX {
            return Some(at);
        }
    }
}
