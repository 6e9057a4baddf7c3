//! Options of sessions and locks, with the reasons for their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::Acls;

use crate::error::ConfigError;
use crate::names::record::{self, NodeData};
use crate::store::nodes::{Acl, NodeMode};

/// Long enough that a garbage collection or a leader election in the ensemble loses no lock (a
/// lease is given up after half of it), short enough that a crashed holder frees its lock soon.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(12);

/// The longest session timeout. The protocol counts milliseconds in 31 bits, and the client
/// truncates a longer one.
pub const SESSION_TIMEOUT_MAX: Duration = Duration::from_millis(0x7fff_ffff);

/// As in Curator. An ensemble that is electing a leader answers within this time.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

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

/// What a session puts into every node and how long it waits for the ensemble.
#[derive(Clone, Debug)]
pub(crate) struct SessionOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) acl: AclSource,
    pub(crate) data: NodeData,
    pub(crate) parent_mode: ParentMode,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            connect_timeout: CONNECT_TIMEOUT,
            acl: AclSource::default(),
            data: NodeData::of_this_process(),
            parent_mode: ParentMode::default(),
        }
    }
}

type AclByPath = dyn Fn(&str) -> Option<Vec<Acl>> + Send + Sync;

/// The ACL of each node, like Curator's `ACLProvider`.
#[derive(Clone)]
pub(crate) struct AclSource {
    default: Arc<[Acl]>,
    by_path: Option<Arc<AclByPath>>,
}

impl Default for AclSource {
    /// Open to everyone, as in Curator.
    fn default() -> Self {
        Self {
            default: Acls::anyone_all().to_vec().into(),
            by_path: None,
        }
    }
}

impl fmt::Debug for AclSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_path = self.by_path.is_some();
        f.debug_struct("AclSource")
            .field("default", &self.default)
            .field("by_path", &by_path)
            .finish()
    }
}

impl AclSource {
    pub(crate) fn set_default(&mut self, acl: &[Acl]) -> Result<(), ConfigError> {
        if acl.is_empty() {
            return Err(ConfigError::EmptyAcl);
        }
        self.default = acl.into();
        Ok(())
    }

    pub(crate) fn set_by_path(&mut self, acl: Arc<AclByPath>) {
        self.by_path = Some(acl);
    }

    /// The ACL of the node at a full path; for a lock node, the path without its sequence number.
    pub(crate) fn of(&self, path: &str) -> Arc<[Acl]> {
        match self.by_path.as_ref().and_then(|by_path| by_path(path)) {
            Some(acl) => acl.into(),
            None => Arc::clone(&self.default),
        }
    }
}

/// Options of one lock path. They must be the same for all handles of the path in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockOptions {
    pub(crate) data: Option<NodeData>,
    pub(crate) purpose: Option<String>,
    pub(crate) local_handoffs: u32,
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
    pub fn identity(mut self, bytes: impl Into<Vec<u8>>) -> Result<Self, ConfigError> {
        self.data = Some(NodeData::custom(bytes.into())?);
        Ok(self)
    }

    /// A text for people that says what the lock is for, such as `nightly export`. It is part of
    /// the record in the lock's nodes, so it is not written if [`identity`](Self::identity)
    /// replaces that record.
    ///
    /// # Errors
    /// [`ConfigError::PurposeTooLarge`] beyond 256 bytes.
    pub fn purpose(mut self, text: impl Into<String>) -> Result<Self, ConfigError> {
        self.purpose = Some(record::purpose(text.into())?);
        Ok(self)
    }

    /// Lets the contenders of this session share one node. A release hands the lock to the next of
    /// them without a request to the ensemble, up to `max` times in a row.
    ///
    /// Default 0: each contender has a node of its own, and all processes share one queue, first
    /// come, first served. With more, a session whose tasks contend for one lock costs the ensemble
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
}
