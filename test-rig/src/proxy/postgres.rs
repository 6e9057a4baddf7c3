//! Names the messages of one connection to PostgreSQL: requests by their statements, answers by
//! their requests, which are answered in order.
//!
//! Decoding is total, as that of ZooKeeper's frames.

mod scan;

use std::collections::{HashMap, VecDeque};

pub(super) use scan::Scan;

use super::frame::{Direction, Opcode};
use super::message::Message;
use super::statement;

/// The code of an answer that is an error. PostgreSQL has texts instead of numbers.
const REFUSED: i32 = -1;
/// In place of a type: what a connection begins with.
const START: u8 = 0;
/// The same, for what may be asked before, which is whether to encrypt, and for its answer.
const ENCRYPT: u8 = 1;

/// A request without its last answer.
#[derive(Debug)]
struct Asked {
    kind: u8,
    statement: String,
    number: i32,
}

impl Asked {
    /// Whether it ends with `ReadyForQuery`, even after an error.
    fn ends_with_ready(&self) -> bool {
        matches!(self.kind, b'S' | b'Q' | b'F' | START)
    }
}

/// The state of one connection that is needed to name later messages.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    has_started: bool,
    asked: VecDeque<Asked>,
    /// What prepared statements and portals are called, by the client's names of them.
    statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, String>,
    /// The statement since the last `Sync`.
    present: String,
    /// How many requests were sent.
    requests: i32,
}

impl Conversation {
    pub(super) fn message(&mut self, direction: Direction, bytes: &[u8]) -> Message {
        let (kind, body) = (bytes.first().copied(), bytes.get(5..).unwrap_or_default());
        match (direction, kind) {
            (_, None) => Message::new(Opcode::Unknown),
            (Direction::ToServer, _) if !self.has_started => self.start(bytes),
            (Direction::ToServer, Some(kind)) => self.request(kind, body),
            (Direction::FromServer, Some(_)) if bytes.len() == 1 => self.answer(ENCRYPT, body),
            (Direction::FromServer, Some(kind)) => self.answer(kind, body),
        }
    }

    fn start(&mut self, bytes: &[u8]) -> Message {
        let code = scan::first(bytes).map(|(_, code)| code);
        let (kind, name) = match code {
            Some(scan::CANCEL) => (START, "CancelRequest"),
            Some(scan::TLS) => (ENCRYPT, "SSLRequest"),
            Some(scan::GSS) => (ENCRYPT, "GSSENCRequest"),
            _ => {
                self.has_started = true;
                (START, "StartupMessage")
            }
        };
        self.ask(kind, String::new(), name, true)
    }

    fn request(&mut self, kind: u8, body: &[u8]) -> Message {
        let (first, rest) = text_to_zero(body);
        let of = |names: &HashMap<Vec<u8>, String>, name: &[u8]| {
            names.get(name).cloned().unwrap_or_default()
        };
        let (name, statement) = match kind {
            b'Q' => ("Query", statement_in(first)),
            b'P' => {
                let statement = statement_in(text_to_zero(rest).0);
                self.statements.insert(first.to_vec(), statement.clone());
                ("Parse", statement)
            }
            b'B' => {
                let statement = of(&self.statements, text_to_zero(rest).0);
                self.portals.insert(first.to_vec(), statement.clone());
                ("Bind", statement)
            }
            b'E' => ("Execute", of(&self.portals, first)),
            b'D' | b'C' => {
                let name = if kind == b'D' { "Describe" } else { "Close" };
                // The first byte says which of them.
                let known = match first.first() {
                    Some(b'P') => &mut self.portals,
                    _ => &mut self.statements,
                };
                let called = first.get(1..).unwrap_or_default();
                let statement = of(known, called);
                if kind == b'C' {
                    known.remove(called);
                }
                (name, statement)
            }
            b'S' => ("Sync", std::mem::take(&mut self.present)),
            b'F' => ("FunctionCall", String::new()),
            _ => {
                let name = match kind {
                    b'H' => "Flush",
                    b'X' => "Terminate",
                    b'p' => "Password",
                    b'd' => "CopyData",
                    b'c' => "CopyDone",
                    b'f' => "CopyFail",
                    _ => "Unknown",
                };
                let present = match kind {
                    b'X' | b'p' => String::new(),
                    _ => self.present.clone(),
                };
                return self.ask(kind, present, name, false);
            }
        };
        if kind != b'S' {
            self.present.clone_from(&statement);
        }
        self.ask(kind, statement, name, true)
    }

    fn ask(&mut self, kind: u8, statement: String, name: &str, is_answered: bool) -> Message {
        self.requests = self.requests.wrapping_add(1);
        let mut message = Message::new(Opcode::Sql);
        message.names = statement::names(&statement, name);
        message.xid = Some(self.requests);
        if is_answered {
            self.asked.push_back(Asked {
                kind,
                statement,
                number: self.requests,
            });
        }
        message
    }

    fn answer(&mut self, kind: u8, body: &[u8]) -> Message {
        let name = answer_name(kind);
        if kind == b'A' {
            // The process that tells, and the channel.
            let (channel, _) = text_to_zero(body.get(4..).unwrap_or_default());
            let mut news = answer_of_nobody(name);
            news.paths.push(text(channel));
            return news;
        }
        if kind == b'Z' {
            // Whatever it was that had no other answer, it has none any more.
            while self.asked.front().is_some_and(|it| !it.ends_with_ready()) {
                self.asked.pop_front();
            }
        }
        let Some(asked) = self.asked.front() else {
            let mut news = answer_of_nobody(name);
            news.names.extend(state(kind, body));
            return news;
        };
        let mut message = Message::new(Opcode::Sql);
        message.names = statement::names(&asked.statement, name);
        message.names.extend(state(kind, body));
        message.xid = Some(asked.number);
        message.error = Some(if kind == b'E' { REFUSED } else { 0 });
        let is_last = matches!(
            (asked.kind, kind),
            (b'P', b'1')
                | (b'B', b'2')
                | (b'C', b'3')
                | (b'D', b'T' | b'n')
                | (b'E', b'C' | b'I' | b's')
                | (ENCRYPT, ENCRYPT)
                | (_, b'Z')
        );
        if is_last {
            self.asked.pop_front();
        }
        // The server skips all until the next `Sync`.
        while kind == b'E' && self.asked.front().is_some_and(|it| !it.ends_with_ready()) {
            self.asked.pop_front();
        }
        message
    }
}

fn answer_name(kind: u8) -> &'static str {
    match kind {
        b'1' => "ParseComplete",
        b'2' => "BindComplete",
        b'3' => "CloseComplete",
        b'A' => "NotificationResponse",
        b'C' => "CommandComplete",
        b'D' => "DataRow",
        b'E' => "ErrorResponse",
        b'G' => "CopyInResponse",
        b'H' => "CopyOutResponse",
        b'I' => "EmptyQueryResponse",
        b'K' => "BackendKeyData",
        b'N' => "NoticeResponse",
        b'R' => "Authentication",
        b'S' => "ParameterStatus",
        b'T' => "RowDescription",
        b'V' => "FunctionCallResponse",
        b'W' => "CopyBothResponse",
        b'Z' => "ReadyForQuery",
        b'c' => "CopyDone",
        b'd' => "CopyData",
        b'n' => "NoData",
        b's' => "PortalSuspended",
        b't' => "ParameterDescription",
        b'v' => "NegotiateProtocolVersion",
        ENCRYPT => "EncryptionAnswer",
        _ => "Unknown",
    }
}

/// What the server says by itself, such as that it is about to end.
fn answer_of_nobody(name: &str) -> Message {
    let mut message = Message::new(Opcode::Notification);
    message.names.push(name.to_owned());
    message
}

/// The SQLSTATE of an error: one of its fields, which are a letter and a text each.
fn state(kind: u8, body: &[u8]) -> Option<String> {
    if kind != b'E' {
        return None;
    }
    let fields = body.split(|it| *it == 0);
    let mut states = fields.filter_map(|field| field.strip_prefix(b"C"));
    // What is damaged may have none.
    states.next().map(text).filter(|it| !it.is_empty())
}

/// An error in place of an answer. A code of five digits is its SQLSTATE.
pub(super) fn refusal(code: i32) -> Option<Vec<u8>> {
    let fields = [
        "SERROR".to_owned(),
        "VERROR".to_owned(),
        format!("C{code:05}"),
        format!("Mrefused with code {code}"),
    ];
    let body = fields.map(|it| it + "\0").concat() + "\0";
    let length = u32::try_from(4 + body.len()).ok()?.to_be_bytes();
    Some([b"E", &length[..], body.as_bytes()].concat())
}

/// A text that ends with a zero, and what comes after it.
fn text_to_zero(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|it| *it == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    (text, rest.get(1..).unwrap_or_default())
}

fn statement_in(text: &[u8]) -> String {
    statement::name(&String::from_utf8_lossy(text))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
