//! Names the frames of one connection to etcd: requests by their messages, answers by their requests,
//! of whose streams they are.
//!
//! Decoding is total, as that of ZooKeeper's frames.

mod requests;

use std::collections::HashMap;
use std::fmt;

use loona_hpack::Decoder;

use super::frame::{Direction, Opcode};
use super::http2::{self, Part, kind};
use super::message::Message;

/// In front of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Far above what etcd takes and gives.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The state of one connection that is needed to name later frames.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    asked: Headers,
    answered: Headers,
    /// By the numbers of their streams.
    calls: HashMap<u32, RpcCall>,
}

/// What compresses the headers of one direction. It learns from all of them.
#[derive(Default)]
struct Headers(Decoder<'static>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Headers").finish_non_exhaustive()
    }
}

impl Headers {
    /// All of them, or those before the damage.
    fn decode(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        let decoded = self.0.decode_with_cb(block, |name, value| {
            headers.push((text(&name), text(&value)));
        });
        if let Err(error) = decoded {
            tracing::debug!(%error, "headers are damaged");
        }
        headers
    }
}

/// A call of a method, which is a stream.
#[derive(Debug, Default)]
struct RpcCall {
    method: String,
    /// What its last message asks for.
    names: Vec<String>,
    paths: Vec<String>,
    /// What has come of the next message, in each direction.
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Conversation {
    pub(super) fn message(&mut self, direction: Direction, bytes: &[u8]) -> Message {
        let mut message = Message::new(Opcode::Etcd);
        if bytes.starts_with(http2::PREFACE) {
            message.names.push("PRI".to_owned());
            return message;
        }
        let mut block = Vec::new();
        let mut ends_stream = false;
        for part in http2::parts(bytes) {
            if part.stream > 0 {
                message.xid = i32::try_from(part.stream).ok();
            }
            ends_stream |= part.ends_stream();
            match part.kind {
                kind::HEADERS | kind::CONTINUATION => {
                    block.extend(part.body);
                    if part.ends_headers() {
                        self.headers(direction, part, &block, ends_stream, &mut message);
                    }
                }
                kind::DATA => self.data(direction, part, &mut message),
                _ => self.other(direction, part, &mut message),
            }
        }
        if message.names.is_empty() {
            message.opcode = Opcode::Unknown;
        }
        message
    }

    fn headers(
        &mut self,
        direction: Direction,
        part: Part<'_>,
        block: &[u8],
        ends_stream: bool,
        message: &mut Message,
    ) {
        let decoder = match direction {
            Direction::ToServer => &mut self.asked,
            Direction::FromServer => &mut self.answered,
        };
        let headers = decoder.decode(block);
        let value = |name: &str| {
            let found = headers.iter().find(|(it, _)| it == name);
            found.map(|(_, value)| value.as_str())
        };
        let call = self.calls.entry(part.stream).or_default();
        if let Some(path) = value(":path").filter(|_| direction == Direction::ToServer) {
            let method = path.rsplit('/').next().unwrap_or_default();
            method.clone_into(&mut call.method);
            call.names = Vec::from_iter((!method.is_empty()).then(|| method.to_owned()));
        }
        let is_last = ends_stream && direction == Direction::FromServer;
        call.name_part(if is_last { "TRAILERS" } else { "HEADERS" }, message);
        message.error = value("grpc-status").and_then(|it| it.parse().ok());
        if is_last {
            self.calls.remove(&part.stream);
        }
    }

    fn data(&mut self, direction: Direction, part: Part<'_>, message: &mut Message) {
        let Some(call) = self.calls.get_mut(&part.stream) else {
            return message.names.push(part.name().to_owned());
        };
        let unread = match direction {
            Direction::ToServer => &mut call.request,
            Direction::FromServer => &mut call.answer,
        };
        unread.extend(part.body);
        let mut said = Message::new(Opcode::Etcd);
        let (mut is_whole, method) = (false, &call.method);
        while let Some(body) = next_message(unread) {
            is_whole = true;
            match (direction, method.as_str()) {
                (Direction::ToServer, _) => requests::read(method, &body, &mut said),
                (Direction::FromServer, "Watch") => requests::read_news(&body, &mut said),
                (Direction::FromServer, _) => {}
            }
        }
        if direction == Direction::ToServer && is_whole {
            said.add_name(method);
            call.names.clone_from(&said.names);
            call.paths.clone_from(&said.paths);
        }
        if said.names.is_empty() {
            // The message has no end yet, or the request's end is all that comes, or it is an answer.
            match direction {
                Direction::ToServer if part.is_empty_end() => call.name_part("END", &mut said),
                Direction::ToServer => call.name_part(part.name(), &mut said),
                Direction::FromServer => said.names.clone_from(&call.names),
            }
            said.paths.clone_from(&call.paths);
        }
        message.opcode = said.opcode;
        // It has the headers of the same call, which say less.
        message.names = said.names;
        message.paths = said.paths;
    }

    fn other(&mut self, direction: Direction, part: Part<'_>, message: &mut Message) {
        match self.calls.get(&part.stream) {
            Some(call) => call.name_part(part.name(), message),
            None => message.names.push(part.name().to_owned()),
        }
        if part.kind == kind::RST_STREAM && direction == Direction::FromServer {
            self.calls.remove(&part.stream);
        }
    }
}

impl RpcCall {
    /// Names a frame that is not the message itself.
    fn name_part(&self, part: &str, message: &mut Message) {
        let names = self.names.iter();
        message.names = names.map(|it| format!("{it} {part}")).collect();
        message.paths.clone_from(&self.paths);
    }
}

impl Message {
    /// Each name once. What is damaged may have none.
    fn add_name(&mut self, name: &str) {
        if !name.is_empty() && !self.names.iter().any(|it| it == name) {
            self.names.push(name.to_owned());
        }
    }
}

/// Takes the next message from what was sent, once it is there. One that is compressed says nothing.
fn next_message(unread: &mut Vec<u8>) -> Option<Vec<u8>> {
    let [compressed, length @ ..] = unread.first_chunk::<PREFIX_BYTES>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (is_compressed, end) = (*compressed != 0, PREFIX_BYTES + length);
    if length > MESSAGE_BYTES_MAX {
        unread.clear();
        return None;
    }
    if unread.len() < end {
        return None;
    }
    let body = unread.drain(..end).skip(PREFIX_BYTES).collect();
    Some(if is_compressed { Vec::new() } else { body })
}

#[cfg(test)]
mod tests;
