//! What a store's crate brings: the server, connections to it, and the words that they carry.

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{Guarantee, NodesError};

use crate::answers::Trouble;
use crate::shared::Shared;

/// An error of a store's client.
pub type Source = Arc<dyn StdError + Send + Sync>;

/// Where connections come from.
pub trait Server: Send + Sync + Debug {
    /// Connects, judges the server, and makes the functions ready.
    ///
    /// The news of the connection are those of this `number`; the first of a session is 1. The future
    /// may be dropped at any time. An error that a retry cannot fix is [`NodesError::Refused`].
    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>>;

    /// A statement for a transaction of the service: see [`Nodes::fence`](recipes_core::Nodes::fence).
    fn fence(&self, held: &[(&str, i64)]) -> Option<String> {
        let _ = held;
        None
    }
}

/// One connection of a session. Dropping it closes it.
pub trait Wire: Send + Sync + Debug {
    /// The number with which it was opened.
    fn number(&self) -> u64;

    /// What the server has said about itself.
    fn facts(&self) -> &Facts;

    /// How many calls of [`Function::Requests`] may be on their way. What waits meanwhile leaves
    /// together.
    fn in_flight_max(&self) -> usize;

    /// How many names may be on their way in listings.
    fn names_max(&self) -> usize {
        usize::MAX
    }

    /// Whether the wire keeps the session alive by itself from [`started`](Self::started) on.
    ///
    /// Then the keeper sends no beats of its own, and those that somebody asks for travel as
    /// [`Function::Beat`], beside requests instead of among them. All wires of a server say the same.
    fn beats_apart(&self) -> bool {
        false
    }

    /// Whether the first poll of a [`call`](Self::call) of [`Function::Requests`] may happen anywhere, also
    /// outside of a runtime. Then a request leaves where it is asked for, without waking the keeper.
    fn leaves_anywhere(&self) -> bool {
        false
    }

    /// Calls a function. The call is sent at the first poll, behind those that were sent before. Its
    /// future may be dropped; the function may then run nevertheless.
    ///
    /// Answers come in the order of the calls. Those of [`Function::Beat`] are in an order of their own
    /// if beats are apart.
    fn call(
        &self,
        function: Function,
        words: Words,
    ) -> BoxFuture<'static, Result<Value, CallError>>;

    /// Completes when the connection is of no more use.
    fn lost(&self) -> BoxFuture<'_, Loss>;

    /// Has the server send the news for the session with this id over this connection, from now on. It
    /// comes before the session is resumed. A session that looks for its news by itself needs none.
    fn subscribe(&self, id: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        let _ = id;
        async { Ok(()) }.boxed()
    }

    /// The session is open, or goes on, over this connection. All that happened to its watches until
    /// now has been told.
    fn started(&self, session: &Started) {
        let _ = session;
    }
}

/// What ended the use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It is lost. The session goes on over another one.
    Connection,
    /// The server has ended the session.
    Session,
}

/// A session that is open, for its wire.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its number.
    pub id: i64,
    /// By which the server knows it over this connection: id, timeout in microseconds, secret, number
    /// of the connection, with colons between them. It is the first word of most calls.
    pub name: String,
    /// How long the server keeps it without a beat.
    pub timeout: Duration,
    /// How long a container may be empty.
    pub container_rest: Duration,
}

impl Started {
    /// The words with which calls of [`Function::Requests`] and [`Function::Beat`] begin: the name,
    /// the id, and both times in microseconds.
    pub fn words(&self) -> Words {
        let mut words = Words::default();
        words
            .arg(&self.name)
            .number(self.id)
            .number(micros(self.timeout))
            .number(micros(self.container_rest));
        words
    }
}

/// As the functions count time.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a server has said about itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Differs after each start and each promotion of a server that may forget by it, and between
    /// servers.
    pub run: String,
    /// For how long it has been running.
    pub uptime_s: u64,
    /// It followed another server before.
    pub was_replica: bool,
    /// How far its promises reach.
    pub guarantee: Guarantee,
}

/// One of the functions that run on the server. Their words and answers are at the top of the files in
/// `recipes-redis/src/library`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Opens a session.
    Open,
    /// Goes on with it over a new connection.
    Resume,
    /// Carries out requests of a session.
    Requests,
    /// As `Requests`, while the session is resumed: deletes its nodes that should be gone. The session
    /// goes on once it is answered; no replica has to confirm it.
    Undo,
    /// Keeps a session alive. It has the words of `Requests` without any request, and answers 'ended'
    /// or a list. Called only if beats are [apart](Wire::beats_apart).
    Beat,
    /// Closes the session.
    Close,
}

/// The words of a call.
#[derive(Clone, Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Words {
    /// Adds a word.
    pub fn arg(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(word.as_ref());
        self.end()
    }

    /// Adds a number, in digits.
    pub fn number(&mut self, number: impl Display) -> &mut Self {
        // A vector takes all.
        drop(write!(self.bytes, "{number}"));
        self.end()
    }

    fn end(&mut self) -> &mut Self {
        self.ends.push(self.bytes.len());
        self
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How long they are together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The words, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }
}

/// An answer, whatever the client calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i64),
    /// Data, or text. Numbers may also come as text.
    Bytes(Vec<u8>),
    /// Several, in order.
    List(Vec<Value>),
    /// What no function answers, as the client shows it.
    Other(String),
}

impl Value {
    /// The number, also if it has come as text.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            Self::List(_) | Self::Other(_) => None,
        }
    }

    /// Whether the session is over.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self, Self::Bytes(word) if word == b"ended")
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub enum CallError {
    /// It did nothing, and may soon.
    NotNow(Source),
    /// Nobody knows what it did, or this server no longer serves. The connection is given up.
    Lost(Source),
    /// As `Lost`, and when a session is opened, no retry helps.
    Refused(Source),
    /// It was done, but only so many replicas of those that must have it have said so in time.
    Unconfirmed {
        /// How many have.
        heard: i64,
        /// How many must.
        asked: u32,
    },
}

impl From<CallError> for NodesError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotNow(source) | CallError::Lost(source) => Self::Unknown(source),
            CallError::Refused(source) => Self::Refused(source),
            CallError::Unconfirmed { heard, asked } => Trouble::Replicas { heard, asked }.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_as_they_were_said() {
        let mut words = Words::default();
        words
            .arg("a")
            .arg("")
            .number(-7_i64)
            .arg([0, 1])
            .number(3_usize);
        let said: Vec<_> = words.iter().collect();
        assert_eq!(said, [&b"a"[..], b"", b"-7", &[0, 1], b"3"]);
        assert_eq!((words.len(), words.bytes()), (5, 6));
        assert!(Words::default().is_empty() && Words::default().iter().next().is_none());
    }
}
