//! What a store's crate brings: the server, connections to it, and the calls that they carry.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{Fence, Guarantee, MultiError, NodeEvent, NodeOpDone, NodeStat, NodesError};
use tokio::sync::watch;

use crate::answers::Trouble;
use crate::asked::Asked;
use crate::reading::Reads;
use crate::shared::Shared;
use crate::watches::Rewatch;

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

    /// Connects for somebody who only reads, and who may have no other right.
    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>>;

    /// Whether a refusal may be over in a moment, as another server is promoted.
    fn may_pass(&self, refusal: &Source) -> bool;

    /// Whether the server may be another in a moment, also before there was a session.
    fn may_move(&self) -> bool {
        false
    }

    /// Whether a directory is a node of its own: see [`Traits`](recipes_core::Traits).
    fn keeps_directories(&self) -> bool {
        true
    }

    /// Whether a directory gets slower by the names that were in it: see [`Traits`](recipes_core::Traits).
    fn remembers_names(&self) -> bool {
        false
    }

    /// What more is to be said of a server that did not answer in time.
    fn silence(&self) -> &'static str {
        ""
    }

    /// A statement for a transaction of the service: see [`Nodes::fence`](recipes_core::Nodes::fence).
    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        let _ = held;
        None
    }
}

/// The answer to a call. The call is sent at the first poll, behind those that were sent before. The
/// future may be dropped; the server may then carry it out nevertheless.
pub type Called<T> = BoxFuture<'static, Result<T, CallError>>;

/// One connection of a session. Dropping it closes it.
///
/// Answers come in the order of the calls. Those of [`beat`](Self::beat) are in an order of their own if
/// beats are apart.
pub trait Wire: Send + Sync + Debug {
    /// The number with which it was opened.
    fn number(&self) -> u64;

    /// What the server has said about itself.
    fn facts(&self) -> &Facts;

    /// How many calls of [`requests`](Self::requests) may be on their way. What waits meanwhile leaves
    /// together.
    fn in_flight_max(&self) -> usize;

    /// How many names may be on their way in listings.
    fn names_max(&self) -> usize {
        usize::MAX
    }

    /// Whether the wire keeps the session alive by itself from [`started`](Self::started) on.
    ///
    /// Then the keeper sends no beats of its own, and those that somebody asks for travel as a
    /// [`beat`](Self::beat), beside requests instead of among them. All wires of a server say the same.
    fn beats_apart(&self) -> bool {
        false
    }

    /// Whether the first poll of [`requests`](Self::requests) may happen anywhere, also outside of a runtime.
    /// Then a request leaves where it is asked for, without waking the keeper.
    fn leaves_anywhere(&self) -> bool {
        false
    }

    /// Opens a session.
    fn open(&self, open: Open) -> Called<Opened>;

    /// Goes on with a session over this connection, and compares or sets again what it watches. `None` if it
    /// is over.
    fn resume(&self, resume: Resume) -> Called<Option<Resumed>>;

    /// Carries out requests, in order. Each is refused or done by itself. `None` if the session is over.
    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>>;

    /// As [`requests`](Self::requests), while the session is resumed: deletes its nodes that should be gone.
    /// The session goes on once it is answered; no replica has to confirm it.
    fn undo(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        self.requests(caller, asked)
    }

    /// Keeps a session alive. False if it is over.
    fn beat(&self, caller: &Arc<Caller>) -> Called<bool> {
        let beaten = self.requests(caller, &[Asked::Beat].into());
        beaten.map(|beaten| Ok(beaten?.is_some())).boxed()
    }

    /// Closes the session. Whether some of its nodes are left for another call.
    fn close(&self, caller: &Arc<Caller>) -> Called<bool>;

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
    fn started(&self, session: &Arc<Caller>) {
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

/// What has ended the use of a wire, if anything.
pub type LossSender = Arc<watch::Sender<Option<Loss>>>;

/// Completes when the use of a wire has ended: see [`Wire::lost`].
pub fn until_lost(loss: &LossSender) -> BoxFuture<'static, Loss> {
    let mut loss = loss.subscribe();
    async move {
        let first = loss.wait_for(Option::is_some).await;
        // An error means that the wire is gone.
        first.ok().and_then(|it| *it).unwrap_or(Loss::Connection)
    }
    .boxed()
}

/// A session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Only who has opened it knows this.
    pub secret: String,
    /// How long the server keeps it without a beat.
    pub timeout: Duration,
    /// The [run](Facts::run) of the server.
    pub run: String,
    /// Nobody can hold a lock of which this run knows nothing.
    pub is_known: bool,
}

/// A session that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its number.
    pub id: i64,
    /// How long nobody may be granted a lock.
    pub quarantine: Duration,
    /// How long sessions that were there before may be there although they are over.
    pub doubt: Duration,
}

/// A session, as its server knows it over one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its number.
    pub id: i64,
    /// Only who has opened it knows this.
    pub secret: String,
    /// The number of the connection.
    pub connection: u64,
    /// How long the server keeps it without a beat.
    pub timeout: Duration,
    /// How long a container may be empty.
    pub container_rest: Duration,
}

impl Caller {
    /// Its name on any connection: id, timeout in microseconds, secret, with colons between them.
    pub fn lasting_name(&self) -> String {
        format!("{}:{}:{}", self.id, micros(self.timeout), self.secret)
    }

    /// Its name on this connection, whose number comes last.
    pub fn name(&self) -> String {
        format!("{}:{}", self.lasting_name(), self.connection)
    }
}

/// As servers count time.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A time that a server has told. It is over if it is negative.
pub fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

/// How a session goes on.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The session over the new connection.
    pub caller: Arc<Caller>,
    /// The numbers of connections by which it may be known.
    pub known_by: Vec<u64>,
    /// The [run](Facts::run) of the server.
    pub run: String,
    /// Whether to list the nodes of the session.
    pub wants_nodes: bool,
    /// What it watches, as it was.
    pub watches: Vec<Rewatch>,
}

/// A session that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// How long nobody may be granted a lock.
    pub quarantine: Duration,
    /// What has happened to each node that it watched, in their order.
    pub news: Vec<Option<NodeEvent>>,
    /// Paths of its nodes, if they were wanted.
    pub nodes: Vec<String>,
}

/// What has become of requests.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Of each, in their order.
    pub outcomes: Vec<Outcome>,
    /// The most that the store's clock advances at once, if it is told.
    pub step: Option<Duration>,
}

/// What has become of a request. One that is refused has changed nothing.
pub type Outcome = Result<Said, MultiError>;

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// To a transaction: of each operation.
    Multi(Vec<NodeOpDone>),
    /// To a listing: all names, and the nodes that are watched from now on.
    Names(Vec<String>, Vec<Watched>),
    /// To a read, or for a watch.
    Node(Vec<u8>, NodeStat),
    /// Without the data.
    Stat(NodeStat),
    /// There is nothing to tell.
    Nothing,
}

/// A node that is watched since the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Of the watch.
    pub number: u64,
    /// In its directory.
    pub name: String,
    /// Its data.
    pub data: Vec<u8>,
    /// What else it is like.
    pub stat: NodeStat,
}

/// What a server has said about itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Differs after each start and each promotion of a server that may forget by it, and between
    /// servers.
    pub run: String,
    /// How far its promises reach.
    pub guarantee: Guarantee,
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

impl CallError {
    /// An answer that no function gives.
    pub fn unexpected(what: impl Into<String>) -> Self {
        Self::Lost(Arc::new(Trouble::Unexpected(what.into())))
    }
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
    use futures::future;

    use super::*;

    /// A wire that has nothing but what every wire must have, and says this to requests.
    #[derive(Debug)]
    struct Plain(Facts, Result<Option<Answers>, CallError>);

    impl Wire for Plain {
        fn number(&self) -> u64 {
            1
        }

        fn facts(&self) -> &Facts {
            &self.0
        }

        fn in_flight_max(&self) -> usize {
            1
        }

        fn open(&self, _: Open) -> Called<Opened> {
            future::pending().boxed()
        }

        fn resume(&self, _: Resume) -> Called<Option<Resumed>> {
            future::pending().boxed()
        }

        fn requests(&self, _: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
            assert_eq!(**asked, [Asked::Beat]);
            future::ready(self.1.clone()).boxed()
        }

        fn close(&self, _: &Arc<Caller>) -> Called<bool> {
            future::pending().boxed()
        }

        fn lost(&self) -> BoxFuture<'_, Loss> {
            future::pending().boxed()
        }
    }

    #[test]
    fn beat_among_requests_tells_a_session_that_lives_from_one_that_is_over() {
        let caller = Arc::new(Caller {
            id: 5,
            secret: "secret".to_owned(),
            connection: 1,
            timeout: Duration::ZERO,
            container_rest: Duration::ZERO,
        });
        let beaten = |says| {
            let facts = Facts {
                run: String::new(),
                guarantee: Guarantee::OneCopy,
            };
            let wire = Plain(facts, says);
            assert!(!wire.beats_apart() && !wire.leaves_anywhere());
            assert_eq!(wire.names_max(), usize::MAX);
            wire.beat(&caller).now_or_never().expect("it is answered")
        };
        assert!(matches!(beaten(Ok(Some(Answers::default()))), Ok(true)));
        assert!(matches!(beaten(Ok(None)), Ok(false)));
        assert!(beaten(Err(CallError::unexpected("lost"))).is_err());
    }

    #[test]
    fn time_that_a_server_tells_is_over_if_it_is_negative() {
        assert_eq!(duration(-1), Duration::ZERO);
        assert_eq!(duration(1_500), Duration::from_micros(1_500));
        assert_eq!(duration(i64::MAX), Duration::from_micros(i64::MAX as u64));
        assert_eq!(micros(Duration::from_micros(1_500)), 1_500);
        assert_eq!(micros(Duration::MAX), i64::MAX);
    }
}
