//! Participants: the nodes in a lock directory, of holders and of waiters.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use futures::stream::{self, StreamExt};

use crate::driver::internals::LockInternals;
use crate::driver::permits::SemaphoreInternals;
use crate::error::Error;
use crate::lock::revocation;
use crate::lock::session::Session;
use crate::names::node_name::{self, LockKind};
use crate::names::order;
use crate::names::record::Identity;
use crate::store::nodes::{NodeStat, NodesError};

/// How many requests of one list or inspection are in flight at a time. This keeps one connection
/// busy. It is far below the thousand (`globalOutstandingLimit`) from which a server makes all its
/// clients wait.
pub(crate) const REQUESTS_AT_ONCE: usize = 64;

/// A node in a lock directory, at the time when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// Full path of the node.
    pub path: String,
    /// The sequence number in its name; `None` for a node that no lock recipe made.
    pub sequence: Option<i64>,
    /// The data that its creator wrote; [`identity`](Self::identity) parses records of this
    /// library. In an inspection, only the first 1,000 bytes if no lock recipe made the node.
    pub data: Vec<u8>,
    /// The session that owns it; 0 if it is not ephemeral, or if that [is not
    /// known](Self::is_described).
    pub session_id: i64,
    /// When it was created, by the store's clock, or on etcd, which keeps no times, by that of its process; the Unix
    /// epoch if that is not known.
    pub created_at: SystemTime,
    /// Whether the store reports the session and the time. Servers of ZooKeeper since 3.8.4 and
    /// 3.9.2 report of a node that this session may not read only its name.
    pub is_described: bool,
}

impl Participant {
    /// Returns host, process and application if the node has a record of this library.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::parse(&self.data)
    }

    /// Requests that the contender with this node gives the lock up; `false` if the node is gone.
    ///
    /// The request replaces the data of the node. It reaches holders that listen: with
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested) here, with a
    /// `RevocationListener` in Curator. Curator's word for this call is `Revoker.attemptRevoke`.
    ///
    /// # Errors
    /// [`QueryError`](crate::QueryError), with [`Unknown`](crate::QueryError::Unknown) if the store does not answer
    /// within the session's connect timeout.
    ///
    /// # Cancel safety
    /// The request may or may not have been made when the future is dropped.
    pub async fn revoke(&self, session: &Session) -> Result<bool, Error> {
        Ok(revocation::request(session, &self.path).await?)
    }

    /// Whether the holder was requested to give the lock up, as by Curator's `Revoker`. The request
    /// has replaced the data, so the creator of the node is unknown.
    #[must_use]
    pub fn revocation_requested(&self) -> bool {
        revocation::is_request(&self.data)
    }

    /// Whether the node has a name as lock recipes make them. If it is no contender's all the same,
    /// nobody deletes it, and whoever comes waits for it.
    #[doc(hidden)]
    #[must_use]
    pub fn is_named_as_contenders_are(&self) -> bool {
        node_name::kind(node_name::last_part(&self.path)).is_some()
    }

    /// A participant from a node that was read.
    pub(crate) fn new(path: String, data: Vec<u8>, stat: &NodeStat) -> Self {
        let created_at = match stat.ctime_ms {
            // The store keeps no times.
            0 => Identity::parse(&data).map_or(UNIX_EPOCH, |it| it.since),
            ms => from_unix_ms(ms),
        };
        Self {
            sequence: node_name::sequence(node_name::last_part(&path)),
            path,
            data,
            session_id: stat.ephemeral_owner,
            created_at,
            is_described: true,
        }
    }

    /// A participant of which only the name is known.
    pub(crate) fn of_name(path: String) -> Self {
        Self {
            sequence: node_name::sequence(node_name::last_part(&path)),
            path,
            data: Vec::new(),
            session_id: 0,
            created_at: UNIX_EPOCH,
            is_described: false,
        }
    }
}

impl LockInternals {
    /// Lists the nodes of this kind in the order of admission; empty if the directory does not
    /// exist. For a mutex, the list contains strangers too.
    ///
    /// # Errors
    /// As [`Session::read`](crate::Session::read).
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        let lock = &self.target.lock;
        let (directory, kind) = (&*lock.path, self.target.kind);
        let query = async |epoch: std::sync::Arc<crate::session::epoch::Epoch>| {
            let nodes = &epoch.nodes()?;
            let mut children = match nodes.list(directory).await {
                Err(NodesError::NoNode) => Vec::new(),
                children => children?,
            };
            if kind != LockKind::Mutex {
                children.retain(|name| name.contains(kind.marker()));
            }
            order::sort(kind, &mut children);
            let mut participants = Vec::with_capacity(children.len());
            let reads = stream::iter(children).map(|name| async move {
                let path = lock.node_path(&name);
                let read = nodes.read(&path).await?;
                Ok::<_, NodesError>(read.map(|(data, stat)| Participant::new(path, data, &stat)))
            });
            let mut reads = reads.buffered(REQUESTS_AT_ONCE);
            while let Some(participant) = reads.try_next().await? {
                // A node that was deleted between list and read is not a participant any more.
                participants.extend(participant);
            }
            Ok(participants)
        };
        Ok(lock.session.core().query(directory, query).await?)
    }
}

impl SemaphoreInternals {
    /// Lists the leases in the order in which they were made.
    ///
    /// # Errors
    /// As [`Session::read`](crate::Session::read).
    pub async fn leases(&self) -> Result<Vec<Participant>, Error> {
        self.lease.participants().await
    }

    /// Lists the contenders that have no permits yet, the next one first.
    ///
    /// # Errors
    /// As [`Session::read`](crate::Session::read).
    pub async fn waiters(&self) -> Result<Vec<Participant>, Error> {
        self.mutex.participants().await
    }
}

fn from_unix_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}
