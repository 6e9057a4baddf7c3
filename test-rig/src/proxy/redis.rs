//! Names the messages of one connection to Redis: requests by themselves, answers by their requests,
//! which are answered in order.
//!
//! Decoding is total, as that of ZooKeeper's frames.

mod requests;

use std::collections::VecDeque;

use super::frame::{Direction, Opcode};
use super::message::Message;
use super::resp::{self, Token};

/// The code of an answer that is an error. Redis has texts instead of numbers.
const REFUSED: i32 = -1;

/// A request without an answer.
#[derive(Debug)]
struct Asked {
    message: Message,
    /// Each channel is confirmed by itself.
    answers: usize,
}

/// The state of one connection that is needed to name later messages.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    asked: VecDeque<Asked>,
    /// How many requests were sent.
    requests: i32,
    /// Whether news come as pushes, which are nothing else. Otherwise they are arrays.
    has_pushes: bool,
    is_subscribed: bool,
}

impl Conversation {
    pub(super) fn message(&mut self, direction: Direction, bytes: &[u8]) -> Message {
        match direction {
            Direction::ToServer => self.request(&resp::words(bytes)),
            Direction::FromServer => self.answer(bytes),
        }
    }

    fn request(&mut self, words: &[&[u8]]) -> Message {
        let Some((command, operands)) = words.split_first() else {
            // Redis does not answer an empty line.
            return Message::new(Opcode::Unknown);
        };
        let command = upper(command);
        let mut asked = Asked {
            message: Message::new(Opcode::Redis),
            answers: 1,
        };
        let names = &mut asked.message.names;
        match (command.as_str(), operands) {
            ("FCALL", [function, rest @ ..]) => {
                // How many keys, and the one.
                let operands = rest.get(2..).unwrap_or_default();
                match function_of_the_store(&text(function)) {
                    Some("requests") => requests::read(operands, &mut asked.message),
                    Some("resume") => {
                        names.push("resume".to_owned());
                        let watches = operands.get(7..).unwrap_or_default().chunks(4);
                        let watched = watches.filter_map(|it| it.get(1));
                        asked.message.paths.extend(watched.map(|it| text(it)));
                    }
                    function => names.push(function.unwrap_or("FCALL").to_owned()),
                }
            }
            (
                "ACL" | "CLIENT" | "CONFIG" | "DEBUG" | "FUNCTION" | "PUBSUB" | "SCRIPT"
                | "SENTINEL",
                [subcommand, ..],
            ) => {
                names.push(format!("{command} {}", upper(subcommand)));
            }
            _ => {
                self.has_pushes |= command == "HELLO" && operands.first() == Some(&&b"3"[..]);
                if command.ends_with("SUBSCRIBE") {
                    self.is_subscribed = true;
                    asked.answers = operands.len().max(1);
                }
                names.push(command);
            }
        }
        self.requests = self.requests.wrapping_add(1);
        asked.message.xid = Some(self.requests);
        let message = asked.message.clone();
        self.asked.push_back(asked);
        message
    }

    fn answer(&mut self, bytes: &[u8]) -> Message {
        let mut tokens = resp::answer(bytes);
        let Some(head) = tokens.next() else {
            return Message::new(Opcode::Unknown);
        };
        let is_push = match head.kind {
            b'>' => true,
            b'*' => self.is_subscribed && !self.has_pushes,
            _ => false,
        };
        let pushed: Vec<_> = tokens.take(if is_push { 4 } else { 0 }).collect();
        let what = pushed.first().map(|it| text(it.content));
        match what {
            // These answer a request.
            Some(what) if what.ends_with("subscribe") => {}
            Some(what) if head.kind == b'>' || what.ends_with("message") => {
                return news(what, &pushed);
            }
            _ => {}
        }
        self.answered(head)
    }

    fn answered(&mut self, answer: Token<'_>) -> Message {
        let Some(asked) = self.asked.front_mut() else {
            return Message::new(Opcode::Unknown);
        };
        let mut message = asked.message.clone();
        let is_error = matches!(answer.kind, b'-' | b'!');
        message.error = Some(if is_error { REFUSED } else { 0 });
        asked.answers = asked.answers.saturating_sub(1);
        if asked.answers == 0 || is_error {
            self.asked.pop_front();
        }
        message
    }
}

/// The function of the store that is called `lock_recipes_HASH_function`.
fn function_of_the_store(called: &str) -> Option<&str> {
    let (_hash, function) = called.strip_prefix("lock_recipes_")?.split_once('_')?;
    Some(function)
}

/// News of a channel; those of the store are `D|C number path`.
fn news(what: String, pushed: &[Token<'_>]) -> Message {
    let mut message = Message::new(Opcode::Notification);
    let payload = pushed.last().map(|it| text(it.content));
    let path = payload.and_then(|it| it.splitn(3, ' ').nth(2).map(ToOwned::to_owned));
    message.paths.extend(path);
    message.names.push(what);
    message
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn upper(word: &[u8]) -> String {
    text(word).to_ascii_uppercase()
}

#[cfg(test)]
mod tests;
