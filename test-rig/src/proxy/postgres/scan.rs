//! Where PostgreSQL's messages end. Protocol 3.
//!
//! A connection begins with messages that have no type, and with answers that have no length.

use crate::proxy::frame::Direction;

/// PostgreSQL refuses longer ones (`MAX_STARTUP_PACKET_LENGTH`).
const FIRST_BYTES_MAX: usize = 10_000;
/// PostgreSQL refuses longer ones (`PQ_LARGE_MESSAGE_LIMIT`).
const BYTES_MAX: usize = 1 << 30;
/// In place of a version, those who want something else first.
pub(super) const CANCEL: i32 = 80_877_102;
pub(super) const TLS: i32 = 80_877_103;
pub(super) const GSS: i32 = 80_877_104;

/// These bytes are not of this protocol: TLS, noise.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::proxy) struct NotPostgres;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Scan {
    /// Messages have types from now on.
    is_typed: bool,
}

impl Scan {
    /// Returns the length of the first message in the buffer once it is there.
    pub(in crate::proxy) fn end(
        &mut self,
        buffer: &[u8],
        direction: Direction,
    ) -> Result<Option<usize>, NotPostgres> {
        let Some(first) = buffer.first() else {
            return Ok(None);
        };
        match direction {
            Direction::ToServer if !self.is_typed => self.first_of_client(buffer),
            Direction::FromServer if !self.is_typed => match first {
                // Yes and no to TLS and GSS. What follows a yes has no type of ours.
                b'S' | b'G' | b'N' => Ok(Some(1)),
                _ => {
                    self.is_typed = true;
                    self.end(buffer, direction)
                }
            },
            Direction::ToServer => typed(buffer, b"BCDEFHPQSXcdfp"),
            Direction::FromServer => typed(buffer, b"123ACDEGHIKNRSTVWZcdnstv"),
        }
    }

    fn first_of_client(&mut self, buffer: &[u8]) -> Result<Option<usize>, NotPostgres> {
        // Before more has come, so that TLS without a question is not waited for.
        if buffer.first() != Some(&0) {
            return Err(NotPostgres);
        }
        let Some((length, code)) = first(buffer) else {
            return Ok(None);
        };
        if !(8..=FIRST_BYTES_MAX).contains(&length) {
            return Err(NotPostgres);
        }
        if buffer.len() < length {
            return Ok(None);
        }
        match code {
            CANCEL | TLS | GSS => {}
            version if version >> 16 == 3 => self.is_typed = true,
            _ => return Err(NotPostgres),
        }
        Ok(Some(length))
    }
}

/// The length and the code of a message without a type.
pub(super) fn first(message: &[u8]) -> Option<(usize, i32)> {
    let (length, rest) = message.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    Some((length, i32::from_be_bytes(*rest.first_chunk()?)))
}

fn typed(buffer: &[u8], types: &[u8]) -> Result<Option<usize>, NotPostgres> {
    let Some((kind, rest)) = buffer.split_first() else {
        return Ok(None);
    };
    if !types.contains(kind) {
        return Err(NotPostgres);
    }
    let Some(length) = rest.first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| NotPostgres)?;
    if !(4..=BYTES_MAX).contains(&length) {
        return Err(NotPostgres);
    }
    Ok((buffer.len() > length).then_some(1 + length))
}
