//! The seam to a store: how it is asked, and what it answers.
//!
//! | file | noun |
//! |---|---|
//! | `store` (this file) | `Store`, which opens one `Nodes` for each epoch, and its `Traits` |
//! | `nodes` | the requests that a lock needs, and their answers |
//! | `panics` | a client that panics is a lost connection |
//! | `refusals` | why a request has no good answer |
//! | `retry` | a read is sent again until it has an answer |
//! | `limit` | how large a request may be |
//! | `machine` | how long this machine has been suspended |

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use uuid::Uuid;

use crate::store::nodes::{Nodes, NodesError};

pub(crate) mod fence;
pub(crate) mod limit;
pub(crate) mod machine;
pub(crate) mod nodes;
pub(crate) mod panics;
pub(crate) mod refusals;
pub(crate) mod retry;

/// A store that holds locks: it opens one [`Nodes`] for each epoch of a session.
///
/// A crate for each store implements it. What differs between them is in [`Traits`].
#[doc(hidden)]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What the session has to know about this store.
    fn traits(&self) -> Traits;

    /// Opens a new session of the store.
    ///
    /// The future may be dropped at any time, and the method called again. It gives up by itself
    /// after about the session timeout, so that the caller can log and try again.
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>>;

    /// Why no session was opened in time, found out after that failed. `None` if the store has
    /// nothing to say.
    ///
    /// Takes a few seconds at most, and opens no session.
    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        future::ready(None).boxed()
    }

    /// A fresh random identifier for a lock node.
    ///
    /// Part of the store so that a simulation can replay a run exactly.
    fn new_uuid(&self) -> Uuid {
        Uuid::new_v4()
    }

    /// How long the machine has been suspended so far, which tokio's clock does not count.
    ///
    /// Part of the store so that tests and simulations can suspend it.
    fn suspended(&self) -> Duration {
        machine::suspended()
    }
}

/// How far a store's promises reach: what has to go wrong before two hold one lock.
///
/// With each of them a lock is exclusive while the store keeps what it has acknowledged. Fencing
/// tokens rise in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// The store may forget what it has acknowledged: when it is restarted, or when a copy takes
    /// its place. Two may then hold one lock, and tokens tell who is the later.
    BestEffort,
    /// One server keeps what it has acknowledged, also over a crash. Nothing is promised beyond the
    /// loss of its disk, or if a copy takes its place.
    OneCopy,
    /// A majority of servers has agreed on what is acknowledged. Machines may fail.
    Consensus,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestEffort => "best effort",
            Self::OneCopy => "one copy",
            Self::Consensus => "consensus",
        })
    }
}

/// What differs between stores, and between ways to connect to one.
///
/// The session decides by these values, never by which store it is.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// The shortest session timeout that can be requested.
    pub session_timeout_min: Duration,
    /// The longest session timeout that can be requested.
    pub session_timeout_max: Duration,
    /// Whether another session of the store can be opened after one has ended.
    pub reopens: bool,
    /// Whether a session of the store is closed when its last handle is dropped. It is not if the
    /// service keeps a handle of its own.
    pub closes: bool,
    /// Whether the client of an idle session may be silent for longer than a lease that relies on
    /// its answers could bear.
    pub pings_rarely: bool,
    /// Whether an unchanged watch on a lock directory proves that nothing in it has changed: its
    /// event comes before the answers to later requests, and setting it disturbs no watch of the
    /// service.
    pub watches_directories: bool,
    /// Whether a directory is a node of its own, which is made before the first node in it. If not, it is there as
    /// long as something is in it.
    pub keeps_directories: bool,
    /// Whether each name that was ever in a directory makes it slower, until the store forgets the past. If so, the uuid
    /// of a node that is gone is used again. A later node of a directory must have a higher number then.
    pub remembers_names: bool,
}

impl Default for Traits {
    /// A store without limits.
    fn default() -> Self {
        Self {
            session_timeout_min: Duration::ZERO,
            session_timeout_max: Duration::MAX,
            reopens: true,
            closes: true,
            pings_rarely: false,
            watches_directories: true,
            keeps_directories: true,
            remembers_names: false,
        }
    }
}
