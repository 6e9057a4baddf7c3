//! Decodes the frames of one connection to ZooKeeper: requests by themselves, replies by their requests.
//!
//! Decoding is total: all bytes give a message, if only [`Opcode::Unknown`].

use std::collections::HashMap;

use super::frame::{Direction, Opcode};
use crate::jute::Jute;

/// Numbers in replies that do not answer a numbered request.
mod xid {
    pub(super) const NOTIFICATION: i32 = -1;
    pub(super) const PING: i32 = -2;
    pub(super) const AUTH: i32 = -4;
    pub(super) const SET_WATCHES: i32 = -8;
}

/// The parts of a frame that rules can match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) opcode: Opcode,
    /// None for ZooKeeper, whose opcodes say all.
    pub(super) names: Vec<String>,
    pub(super) paths: Vec<String>,
    pub(super) watch: bool,
    pub(super) xid: Option<i32>,
    pub(super) zxid: Option<i64>,
    pub(super) error: Option<i32>,
}

impl Message {
    pub(super) fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            names: Vec::new(),
            paths: Vec::new(),
            watch: false,
            xid: None,
            zxid: None,
            error: None,
        }
    }
}

/// The state of one connection that is needed to decode later frames.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    greeted: bool,
    answered: bool,
    /// Requests without a reply, by their number.
    asked: HashMap<i32, Message>,
}

impl Conversation {
    pub(super) fn message(&mut self, direction: Direction, body: &[u8]) -> Message {
        let greeted = match direction {
            Direction::ToServer => &mut self.greeted,
            Direction::FromServer => &mut self.answered,
        };
        if !std::mem::replace(greeted, true) {
            return Message::new(Opcode::Connect);
        }
        let message = match direction {
            Direction::ToServer => self.request(Jute::new(body)),
            Direction::FromServer => self.reply(Jute::new(body)),
        };
        message.unwrap_or_else(|| Message::new(Opcode::Unknown))
    }

    fn request(&mut self, mut body: Jute<'_>) -> Option<Message> {
        let (xid, number) = (body.int()?, body.int()?);
        let mut message = Message::new(opcode(number));
        message.xid = Some(xid);
        // A truncated or garbled request names fewer nodes.
        read_operands(number, &mut body, &mut message);
        self.asked.insert(xid, message.clone());
        Some(message)
    }

    fn reply(&mut self, mut body: Jute<'_>) -> Option<Message> {
        let (xid, zxid, error) = (body.int()?, body.long()?, body.int()?);
        let mut message = match (xid, self.asked.remove(&xid)) {
            (xid::NOTIFICATION, _) => notification(&mut body),
            (_, Some(request)) => request,
            (xid::PING, None) => Message::new(Opcode::Ping),
            (xid::AUTH, None) => Message::new(Opcode::Auth),
            (xid::SET_WATCHES, None) => Message::new(Opcode::SetWatches),
            (_, None) => Message::new(Opcode::Unknown),
        };
        message.xid = Some(xid);
        message.zxid = Some(zxid);
        message.error = Some(error);
        Some(message)
    }
}

fn notification(body: &mut Jute<'_>) -> Message {
    let mut message = Message::new(Opcode::Notification);
    let (_event, _state) = (body.int(), body.int());
    message.paths.extend(body.string_lossy());
    message
}

/// `ZooDefs.OpCode`.
fn opcode(number: i32) -> Opcode {
    match number {
        1 | 15 | 19 | 21 => Opcode::Create,
        2 => Opcode::Delete,
        3 => Opcode::Exists,
        4 => Opcode::GetData,
        5 => Opcode::SetData,
        8 | 12 => Opcode::GetChildren,
        9 => Opcode::Sync,
        11 => Opcode::Ping,
        14 => Opcode::Multi,
        17 | 18 => Opcode::RemoveWatches,
        22 => Opcode::MultiRead,
        100 | 102 => Opcode::Auth,
        101 | 105 => Opcode::SetWatches,
        106 => Opcode::AddWatch,
        -11 => Opcode::CloseSession,
        other => Opcode::Other(other),
    }
}

/// Reads the operands after the header of a request. `None` if they end too early.
fn read_operands(number: i32, body: &mut Jute<'_>, message: &mut Message) -> Option<()> {
    match number {
        14 | 22 => loop {
            let (number, is_end, _error) = (body.int()?, body.bool()?, body.int()?);
            if is_end {
                return Some(());
            }
            read_operands_of_one(number, body, message)?;
        },
        101 | 105 => {
            let _last_zxid = body.long()?;
            // Lists for data, existence and children; 105 adds two kinds of persistent watches.
            let lists = if number == 101 { 3 } else { 5 };
            for _ in 0..lists {
                message.paths.extend(body.list(Jute::string_lossy)?);
            }
            Some(())
        }
        number => read_operands_of_one(number, body, message),
    }
}

/// Reads all operands of a single operation, because another may follow in a transaction.
fn read_operands_of_one(number: i32, body: &mut Jute<'_>, message: &mut Message) -> Option<()> {
    match number {
        1 | 15 | 19 | 21 => {
            message.paths.push(body.string_lossy()?);
            body.buffer_or_empty()?;
            body.list(|acl| Some((acl.int()?, acl.buffer_or_empty()?, acl.buffer_or_empty()?)))?;
            body.int()?;
            if number == 21 {
                body.long()?;
            }
        }
        // Delete and check name a version; removing, checking and adding watches, a type.
        2 | 13 | 17 | 18 | 106 => {
            message.paths.push(body.string_lossy()?);
            body.int()?;
        }
        3 | 4 | 8 | 12 => {
            message.paths.push(body.string_lossy()?);
            message.watch |= body.bool()?;
        }
        5 => {
            message.paths.push(body.string_lossy()?);
            body.buffer_or_empty()?;
            body.int()?;
        }
        // Access control, sync, ephemerals, the number of all children: never in a transaction.
        6 | 7 | 9 | 103 | 104 => message.paths.push(body.string_lossy()?),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests;
