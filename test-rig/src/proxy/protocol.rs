//! What the two ends of a connection speak.

use super::frame::Direction;
use super::message::{self, Message};
use super::splitter::body;
use super::{etcd, mysql, postgres, redis};

/// What the clients and the server of a proxy speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    ZooKeeper,
    Redis,
    Postgres,
    MySql,
    Etcd,
}

/// The state of one connection that is needed to decode later frames.
#[derive(Debug)]
pub(super) enum Conversation {
    ZooKeeper(message::Conversation),
    Redis(redis::Conversation),
    Postgres(postgres::Conversation),
    MySql(mysql::Conversation),
    Etcd(etcd::Conversation),
}

impl Protocol {
    pub(super) fn conversation(self) -> Conversation {
        match self {
            Self::ZooKeeper => Conversation::ZooKeeper(message::Conversation::default()),
            Self::Redis => Conversation::Redis(redis::Conversation::default()),
            Self::Postgres => Conversation::Postgres(postgres::Conversation::default()),
            Self::MySql => Conversation::MySql(mysql::Conversation::default()),
            Self::Etcd => Conversation::Etcd(etcd::Conversation::default()),
        }
    }

    /// Puts this error in place of the answer. `None` if there is nothing to answer.
    pub(super) fn refusal(self, reply: &[u8], code: i32) -> Option<Vec<u8>> {
        match self {
            Self::ZooKeeper => {
                let length = i32::to_be_bytes(16);
                // The reply's number and transaction stay.
                let header = reply.get(4..16)?;
                Some([&length, header, &code.to_be_bytes()].concat())
            }
            Self::Redis => Some(format!("-ERR refused with code {code}\r\n").into_bytes()),
            Self::Postgres => postgres::refusal(code),
            Self::MySql => mysql::refusal(reply, code),
            // The headers of an answer cannot be left out: later ones refer to them.
            Self::Etcd => None,
        }
    }
}

impl Conversation {
    pub(super) fn message(&mut self, direction: Direction, frame: &[u8]) -> Message {
        match self {
            Self::ZooKeeper(conversation) => conversation.message(direction, body(frame)),
            Self::Redis(conversation) => conversation.message(direction, frame),
            Self::Postgres(conversation) => conversation.message(direction, frame),
            Self::MySql(conversation) => conversation.message(direction, frame),
            Self::Etcd(conversation) => conversation.message(direction, frame),
        }
    }
}
