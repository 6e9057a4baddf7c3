//! Options of sessions and locks, with the reasons for their defaults.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{ConfigError, Error};
use crate::names::record::{self, NodeData};
use crate::store::Traits;
use crate::store::nodes::NodeMode;

/// Long enough that a garbage collection or a leader election in the store loses no lock (a
/// lease is given up after half of it), short enough that a crashed holder frees its lock soon.
const SESSION_TIMEOUT: Duration = Duration::from_secs(12);

/// As in Curator. A store that is electing a leader answers within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// So much of an identity that an error shows, which may be a megabyte.
const SHOWN_BYTES_MAX: usize = 40;

/// How the missing parents of a lock are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ParentMode {
    /// The server removes them when they have been empty for about a minute, so locks with many
    /// names leave nothing behind. Persistent if the server does not know containers. Curator does
    /// the same.
    #[default]
    Container,
    /// They stay.
    Persistent,
}

impl ParentMode {
    pub(crate) fn node_mode(self) -> NodeMode {
        match self {
            Self::Container => NodeMode::Container,
            Self::Persistent => NodeMode::Persistent,
        }
    }
}

/// Options of a session that are the same for every store: how long it waits, and what it puts into
/// its nodes.
///
/// The builder of each store has them too, with those of its connection.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # mod lock_recipes { pub use recipes_core::*; pub use recipes_testing as testing; }
/// use lock_recipes::SessionOptions;
/// use lock_recipes::testing::MemoryEnsemble;
///
/// let options = SessionOptions::new().application("orders");
/// let session = MemoryEnsemble::new().session_with(options);
/// # session.close().await;
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a session is opened with them"]
pub struct SessionOptions {
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) data: NodeData,
    /// The owner that the session is nested in.
    pub(crate) within: Option<Arc<str>>,
    pub(crate) parent_mode: ParentMode,
    pub(crate) read_only: bool,
    /// The store, as errors and logs name it; without secrets.
    pub(crate) address: Option<Arc<str>>,
    flaw: Option<ConfigError>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            session_timeout: SESSION_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            data: NodeData::of_this_process(),
            within: None,
            parent_mode: ParentMode::default(),
            read_only: false,
            address: None,
            flaw: None,
        }
    }
}

impl SessionOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the store keeps the nodes of a process that has gone silent. Default 12 s. The
    /// store limits it; what it cannot express is refused.
    ///
    /// The lock of a crashed process is free after this time. A guard is lost after half of it
    /// without an answer.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long opening the session, reads and tries such as `try_acquire` wait for an answer, and
    /// [`Session::close`](crate::Session::close) for pending clean-ups. Default 15 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Name of the application in the record that lock nodes carry. Default: the executable's.
    pub fn application(mut self, name: &str) -> Self {
        self.data = NodeData::of(name);
        self
    }

    /// Names the owner, in another process, that goes on only when this session is done. Records
    /// name it ahead of the session's own owners, so that deadlocks over both are found. It lets
    /// nobody re-enter.
    #[doc(hidden)]
    pub fn within(mut self, owner: &str) -> Self {
        self.within = Some(owner.into());
        self
    }

    /// Writes these bytes into lock nodes instead of the record of host, process and application.
    pub fn identity(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        match NodeData::custom(bytes.into()) {
            Ok(data) => self.data = data,
            Err(flaw) => self.note(flaw),
        }
        self
    }

    /// How missing parents are created. Default: containers.
    pub fn parent_mode(mut self, mode: ParentMode) -> Self {
        self.parent_mode = mode;
        self
    }

    /// The session only reads, as `inspect`, `scan` and `participants` do. Whoever acquires in it is refused with
    /// [`AcquireError::ReadOnly`](crate::AcquireError::ReadOnly). Default: false.
    ///
    /// On Redis and in databases, the right to read is enough then: nothing is written there, and no session is opened.
    /// Nothing can be watched then, so a [`LeaderObserver`] ends with an error. On ZooKeeper a session needs no right.
    ///
    /// [`LeaderObserver`]: https://docs.rs/recipes-leader
    pub fn read_only(mut self, only_reads: bool) -> Self {
        self.read_only = only_reads;
        self
    }

    /// Whether the session only reads, for stores.
    #[doc(hidden)]
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.read_only
    }

    /// The session timeout to request, for stores.
    #[doc(hidden)]
    #[must_use]
    pub fn requested_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// How long opening a session may take, for stores.
    #[doc(hidden)]
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.connect_timeout
    }

    /// Notes what is wrong with an option of the store, to be reported when the session is opened.
    /// The first flaw counts.
    #[doc(hidden)]
    pub fn note(&mut self, flaw: ConfigError) {
        self.flaw.get_or_insert(flaw);
    }

    /// Whether the options can be used on a store with these traits.
    ///
    /// # Errors
    /// Names the first option that cannot be used.
    #[doc(hidden)]
    pub fn check(&self, traits: &Traits) -> Result<(), ConfigError> {
        let timeout = self.session_timeout;
        let (timeout_min, timeout_max) = (traits.session_timeout_min, traits.session_timeout_max);
        match &self.flaw {
            Some(flaw) => Err(flaw.clone()),
            None if !(timeout_min..=timeout_max).contains(&timeout) => {
                Err(ConfigError::SessionTimeout {
                    timeout,
                    timeout_min,
                    timeout_max,
                })
            }
            None => Ok(()),
        }
    }
}

/// Options of one lock path. They must be the same for all handles of the path in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockOptions {
    pub(crate) data: Option<NodeData>,
    pub(crate) purpose: Option<String>,
    pub(crate) local_handoffs: u32,
    pub(crate) shared_reads: Duration,
    /// Options of a live handle take the place of these, instead of being refused.
    pub(crate) yields: bool,
}

impl LockOptions {
    /// The defaults, which are the session's.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes these bytes into the lock's nodes, instead of the session's record of host, process
    /// and application. Curator calls it the lock's node data.
    ///
    /// # Errors
    /// [`ConfigError::IdentityTooLarge`] beyond 1,000,000 bytes, [`ConfigError::IdentityReserved`]
    /// for Curator's revocation request.
    pub fn identity(mut self, bytes: impl Into<Vec<u8>>) -> Result<Self, Error> {
        self.data = Some(NodeData::custom(bytes.into())?);
        Ok(self)
    }

    /// A text for people that says what the lock is for, such as `nightly export`. It is part of
    /// the record in the lock's nodes, so it is not written if [`identity`](Self::identity)
    /// replaces that record.
    ///
    /// # Errors
    /// [`ConfigError::PurposeTooLarge`] beyond 256 bytes.
    pub fn purpose(mut self, text: impl Into<String>) -> Result<Self, Error> {
        self.purpose = Some(record::purpose(text.into())?);
        Ok(self)
    }

    /// Lets the contenders of this session share one node. A release hands the lock to the next of
    /// them without a request to the store, up to `max` times in a row.
    ///
    /// Default 0: each contender has a node of its own, and all processes share one queue, first
    /// come, first served. With more, a session whose tasks contend for one lock costs the store
    /// one create and one delete for up to `max + 1` critical sections. The price is fairness
    /// between processes: a contender of another process waits for at most `max + 1` critical
    /// sections on the node ahead of it. Within the session it stays first come, first served,
    /// unless the lock is lost during a hand-off. The contender that was next then waits again.
    ///
    /// For mutexes and write locks; readers hold together anyway. A set of several locks contends
    /// with nodes of its own. The node is deleted and not handed on if something under the lock may
    /// outlast the guard: a read lock that its owner holds next to a write lock or has downgraded
    /// to, or a [`transaction`](crate::LockGuard::transaction) without an answer.
    ///
    /// Only the contender that has the turn shows among the participants. An acquire that is not
    /// polled when its turn comes holds up the others of its session until it is polled or dropped,
    /// as with [`tokio::sync::Mutex`]. Timeouts and the end of the session still reach them. See
    /// [`FencingToken`](crate::FencingToken) for the tokens of local hand-offs.
    #[must_use]
    pub fn local_handoffs(mut self, max: u32) -> Self {
        self.local_handoffs = max;
        self
    }

    /// Lets the readers of this session share one node. The session keeps it for so long after its grant, and
    /// gives the lock to its readers without a request meanwhile, one after the other or at one time.
    ///
    /// For configuration that many tasks read and few write. Default zero: each reader has a node of its own,
    /// which goes with it. A longer time than the session timeout counts as the session timeout.
    ///
    /// # Guarantees
    /// - A writer of another process waits for this time at most, whether or not anybody reads, and then for
    ///   the readers that still hold. A stream of readers never keeps it out.
    /// - A writer of this session ends the sharing when it comes, and no later reader gets ahead of it.
    /// - A reader joins what a watch on the node, or a read of it, vouches for. Loss, deadline and requests
    ///   to give the lock up reach each of the readers that share a node. Each has a hold of its own, with
    ///   its own [`Owner`](crate::Owner); all have the token of the node.
    /// - A reader that waits, and is joined by others, may give up at any time; the others go on.
    ///
    /// The record in such a node names no owner, so `lockctl deadlocks` does not see who waits for it. A session
    /// whose handles are all dropped is closed when the time is over; [`close`](crate::Session::close) does not wait.
    /// The members of a set, readers next to their owner's writer, and writers have nodes of their own. It
    /// has an effect on read/write locks only.
    #[must_use]
    pub fn shared_reads(mut self, open_for: Duration) -> Self {
        self.shared_reads = open_for;
        self
    }

    /// For locks of a factory: if a live handle of the path has other options, those apply, and
    /// nothing is refused.
    #[doc(hidden)]
    #[must_use]
    pub fn yielding(mut self) -> Self {
        self.yields = true;
        self
    }

    /// The first option that differs, by name, with both values; `None` if all are equal.
    /// `yields` says nothing of a lock.
    pub(crate) fn difference(&self, other: &Self) -> Option<(&'static str, [String; 2])> {
        let Self {
            data,
            purpose,
            local_handoffs,
            shared_reads,
            yields: _,
        } = self;
        if *local_handoffs != other.local_handoffs {
            let both = [*local_handoffs, other.local_handoffs];
            return Some(("local_handoffs", both.map(|it| it.to_string())));
        }
        if *shared_reads != other.shared_reads {
            let both = [*shared_reads, other.shared_reads];
            return Some(("shared_reads", both.map(|it| format!("{it:?}"))));
        }
        if *purpose != other.purpose {
            let both = [purpose, &other.purpose].map(|it| match it {
                Some(purpose) => format!("{purpose:?}"),
                None => "unset".to_owned(),
            });
            return Some(("purpose", both));
        }
        (*data != other.data).then(|| ("identity", [data, &other.data].map(shown)))
    }
}

/// The beginning of an identity; the session's is a record.
fn shown(identity: &Option<NodeData>) -> String {
    match identity {
        Some(NodeData::Custom(bytes)) => {
            let shown = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
            format!("\"{}\"", shown.escape_ascii())
        }
        Some(NodeData::Record { .. }) | None => "unset".to_owned(),
    }
}
