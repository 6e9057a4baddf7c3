//! Names the messages of one connection to MySQL or MariaDB: requests by their statements, answers by
//! the last request.
//!
//! Decoding is total, as that of ZooKeeper's frames.

mod answer;
mod scan;

use std::collections::HashMap;

pub(super) use scan::Scan;

use self::answer::{Awaited, Client};
use self::scan::HEADER_BYTES;
use super::frame::{Direction, Opcode};
use super::message::Message;
use super::statement;

/// What a client says of itself, in the lower half of its first message (`CLIENT_DEPRECATE_EOF`) and
/// in the upper (`MARIADB_CLIENT_CACHE_METADATA`), which MariaDB reads if the client is not MySQL's.
const NO_EOF: u32 = 1 << 24;
const IS_MYSQL: u32 = 1;
const KNOWS_COLUMNS: u32 = 1 << 4;
/// Where that half stands.
const UPPER_CAPABILITIES: usize = HEADER_BYTES + 28;
/// The number of a statement for the one that was prepared last.
const LAST_PREPARED: u32 = u32::MAX;

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;

/// The last request.
#[derive(Debug, Default)]
struct Asked {
    prepares: bool,
    statement: String,
    number: i32,
}

/// The state of one connection that is needed to name later messages.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    has_greeted: bool,
    /// The client is let in, and sends commands.
    is_in: bool,
    client: Client,
    asked: Asked,
    awaited: Awaited,
    /// What prepared statements are called, by the server's numbers of them.
    statements: HashMap<u32, String>,
    /// How many requests were sent.
    requests: i32,
}

impl Conversation {
    pub(super) fn message(&mut self, direction: Direction, bytes: &[u8]) -> Message {
        match direction {
            Direction::ToServer => self.request(bytes),
            Direction::FromServer => self.answer(bytes),
        }
    }

    fn request(&mut self, bytes: &[u8]) -> Message {
        let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let command = match bytes.get(3) {
            Some(0) if self.is_in => body.first().copied(),
            // An answer to a question of the server.
            _ => None,
        };
        self.requests = self.requests.wrapping_add(1);
        let mut message = Message::new(Opcode::Sql);
        message.xid = Some(self.requests);
        let Some(command) = command else {
            let name = match self.awaited {
                _ if self.requests == 1 => self.introduction(bytes),
                Awaited::Login => "Authentication",
                _ => "Data",
            };
            message.names = statement::names(&self.asked.statement, name);
            return message;
        };
        let operands = body.get(1..).unwrap_or_default();
        let (name, awaited) = command_name(command);
        let statement = match command {
            QUERY | PREPARE => statement::name(&String::from_utf8_lossy(operands)),
            _ if name.starts_with("Statement") => self.prepared(operands),
            _ => String::new(),
        };
        message.names = statement::names(&statement, name);
        if awaited != Awaited::Nothing {
            self.awaited = awaited;
            self.asked = Asked {
                prepares: command == PREPARE,
                statement,
                number: self.requests,
            };
        }
        message
    }

    /// The first message of a client, which may only be that it wants TLS.
    fn introduction(&mut self, bytes: &[u8]) -> &'static str {
        let capabilities = scan::capabilities(bytes).unwrap_or(0);
        let upper = bytes
            .get(UPPER_CAPABILITIES..)
            .and_then(|it| it.first_chunk());
        let upper = upper.map_or(0, |it| u32::from_le_bytes(*it));
        self.client = Client {
            has_no_eof: capabilities & NO_EOF != 0,
            knows_columns: capabilities & IS_MYSQL == 0 && upper & KNOWS_COLUMNS != 0,
        };
        match bytes.get(UPPER_CAPABILITIES + 4..) {
            Some([_, ..]) => "HandshakeResponse",
            _ => "SSLRequest",
        }
    }

    /// What the statement is called that has this number.
    fn prepared(&self, operands: &[u8]) -> String {
        let number = operands.first_chunk().map(|it| u32::from_le_bytes(*it));
        match number {
            Some(LAST_PREPARED) => self.asked.statement.clone(),
            Some(number) => self.statements.get(&number).cloned().unwrap_or_default(),
            None => String::new(),
        }
    }

    fn answer(&mut self, bytes: &[u8]) -> Message {
        if !std::mem::replace(&mut self.has_greeted, true) {
            self.awaited = Awaited::Login;
            let mut greeting = Message::new(Opcode::Notification);
            greeting.names.push("Greeting".to_owned());
            return greeting;
        }
        let is_news = self.awaited == Awaited::Nothing;
        let part = self.awaited.next(bytes, self.asked.prepares, self.client);
        self.is_in |= part.name == "OK";
        if let Some(number) = part.prepared {
            self.statements.insert(number, self.asked.statement.clone());
        }
        let mut message = Message::new(if is_news {
            Opcode::Notification
        } else {
            Opcode::Sql
        });
        let statement = if is_news { "" } else { &self.asked.statement };
        message.names = statement::names(statement, part.name);
        if let Some((_, state)) = part.error.filter(|(_, state)| !state.is_empty()) {
            let state = String::from_utf8_lossy(state).into_owned();
            message.names.push(state);
        }
        if !is_news {
            message.xid = Some(self.asked.number.max(1));
            message.error = Some(part.error.map_or(0, |(code, _)| i32::from(code)));
        }
        message
    }
}

/// What a command is called, and what its answer begins with.
fn command_name(command: u8) -> (&'static str, Awaited) {
    match command {
        0x01 => ("Quit", Awaited::Nothing),
        0x02 => ("InitDb", Awaited::First),
        QUERY => ("Query", Awaited::First),
        0x0E => ("Ping", Awaited::First),
        0x11 => ("ChangeUser", Awaited::Login),
        PREPARE => ("Prepare", Awaited::First),
        0x17 => ("StatementExecute", Awaited::First),
        0x18 => ("StatementLongData", Awaited::Nothing),
        0x19 => ("StatementClose", Awaited::Nothing),
        0x1A => ("StatementReset", Awaited::First),
        0x1B => ("SetOption", Awaited::First),
        0x1C => ("StatementFetch", Awaited::Rows),
        0x1F => ("ResetConnection", Awaited::First),
        0xFA => ("StatementBulkExecute", Awaited::First),
        _ => ("Unknown", Awaited::First),
    }
}

/// An error in place of an answer, with its number.
pub(super) fn refusal(reply: &[u8], code: i32) -> Option<Vec<u8>> {
    let number = *reply.get(3)?;
    let code = u16::try_from(code).ok()?;
    let text = format!("#HY000refused with code {code}");
    let body = [&[0xFF], &code.to_le_bytes()[..], text.as_bytes()].concat();
    let length = u32::try_from(body.len()).ok()?.to_le_bytes();
    let length = length.get(..3)?;
    Some([length, &[number], &body].concat())
}

#[cfg(test)]
mod tests;
