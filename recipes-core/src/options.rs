//! Options of sessions and locks, with the reasons for their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::Acls;

use crate::error::ConfigError;
use crate::nodes::{Acl, NodeMode};
use crate::record::{self, NodeData};

/// Long enough that a garbage collection or a leader election in the ensemble loses no lock (a
/// lease is given up after half of it), short enough that a crashed holder frees its lock soon.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(12);

/// The most that can be asked for: the protocol counts milliseconds in 31 bits, and the client sends
/// what is left of more than that.
pub const SESSION_TIMEOUT_MAX: Duration = Duration::from_millis(0x7fff_ffff);

/// As Curator: an ensemble that elects a leader answers within it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// How the missing parents of a lock are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ParentMode {
    /// The server removes them when they have been empty for about a minute, so that locks with
    /// many names leave nothing behind; persistent where the server knows no containers. As
    /// Curator does.
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

/// The ACL of each node, as Curator's `ACLProvider`.
#[derive(Clone)]
pub(crate) struct AclSource {
    default: Arc<[Acl]>,
    by_path: Option<Arc<AclByPath>>,
}

impl Default for AclSource {
    /// Open to everybody, as in Curator.
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

    /// The ACL of the node at a full path; of a lock node without its sequence.
    pub(crate) fn of(&self, path: &str) -> Arc<[Acl]> {
        match self.by_path.as_ref().and_then(|by_path| by_path(path)) {
            Some(acl) => acl.into(),
            None => Arc::clone(&self.default),
        }
    }
}

/// Options of one lock path, equal for all handles of it in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockOptions {
    pub(crate) data: Option<NodeData>,
    pub(crate) purpose: Option<String>,
    pub(crate) local_handoffs: u32,
}

impl LockOptions {
    /// The defaults: everything as the session says.
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

    /// Says to people what the lock is taken for, as in `nightly export`: a part of the record that
    /// the lock's nodes carry, and not written where [`identity`](Self::identity) replaces it.
    ///
    /// # Errors
    /// [`ConfigError::PurposeTooLarge`] beyond 256 bytes.
    pub fn purpose(mut self, text: impl Into<String>) -> Result<Self, ConfigError> {
        self.purpose = Some(record::purpose(text.into())?);
        Ok(self)
    }

    /// Lets the contenders of this session share one node, and a release hand the lock to the next
    /// of them up to `max` times in a row, without a request to the ensemble.
    ///
    /// Default 0: each contender has a node of its own, and all processes share one queue, first come
    /// first served. With more, a session whose tasks contend for one lock costs the ensemble one
    /// create and one delete for up to `max + 1` critical sections, at the price of fairness between
    /// processes: whoever waits in another one waits for at most `max + 1` critical sections on the
    /// node ahead of it. Within the session it stays first come first served, unless the lock is
    /// lost on its way to the next one, who then waits anew.
    ///
    /// For mutexes and write locks; readers hold together anyway. A set of several locks contends
    /// with nodes of its own, beside these. The node is deleted, and not handed on, where something
    /// under the lock may outlast the guard: a read lock that its owner holds beside a write lock,
    /// or has downgraded to, and a [`transaction`](crate::LockGuard::transaction) without an answer.
    ///
    /// Only the contender whose turn it is shows among the participants. An acquire that is not
    /// polled when its turn comes holds up the others of its session until it is polled or dropped,
    /// as in [`tokio::sync::Mutex`]; time-outs and the end of the session still reach them. See
    /// [`FencingToken`](crate::FencingToken) for what tokens are then.
    #[must_use]
    pub fn local_handoffs(mut self, max: u32) -> Self {
        self.local_handoffs = max;
        self
    }
}
