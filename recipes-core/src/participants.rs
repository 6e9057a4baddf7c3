//! Who holds and who waits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use futures::stream::{self, StreamExt};

use crate::error::{QueryError, RevokeError};
use crate::lock_internals::LockInternals;
use crate::node_name::{self, LockKind};
use crate::nodes::{NodeStat, NodesError};
use crate::record::Identity;
use crate::revocation;
use crate::session::Session;
use crate::wait_queue;

/// Requests of one list or inspection that are under way at a time: enough to keep one connection
/// busy, few beside the thousand (`globalOutstandingLimit`) from which a server makes all its clients
/// wait.
pub(crate) const REQUESTS_AT_ONCE: usize = 64;

/// A node in a lock directory, as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// Full path of the node.
    pub path: String,
    /// The sequence in its name, `None` for a node that no lock recipe made.
    pub sequence: Option<i32>,
    /// The data that its maker wrote, opaque unless [`identity`](Self::identity) understands it. In an
    /// inspection the first 1,000 bytes of it, where no lock recipe made the node.
    pub data: Vec<u8>,
    /// The session that it goes with, 0 if it is not ephemeral.
    pub session_id: i64,
    /// When it was made, by the ensemble's clock.
    pub created_at: SystemTime,
}

impl Participant {
    /// Host, process and application, where the node carries a record of this library.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        Identity::parse(&self.data)
    }

    /// Asks whoever holds this node, or waits with it, to give the lock up; `false` if it is gone.
    ///
    /// The request replaces the data of the node. It reaches holders that listen:
    /// [`LockGuard::revocation_requested`](crate::LockGuard::revocation_requested) here, a
    /// `RevocationListener` in Curator, whose `Revoker.attemptRevoke` this is.
    ///
    /// # Errors
    /// [`RevokeError::SessionClosed`]; [`RevokeError::Failed`] where the ensemble refuses;
    /// [`RevokeError::Unknown`] where it does not answer within the session's connect timeout.
    ///
    /// # Cancel safety
    /// The request may or may not have been made when the future is dropped.
    pub async fn revoke(&self, session: &Session) -> Result<bool, RevokeError> {
        revocation::request(session, &self.path).await
    }

    /// Whether somebody has asked the holder to let go, as Curator's `Revoker` does: that replaces
    /// the data, so that nothing is known of who made the node.
    #[must_use]
    pub fn revocation_requested(&self) -> bool {
        revocation::is_request(&self.data)
    }

    /// A node as it was read.
    pub(crate) fn new(path: String, data: Vec<u8>, stat: &NodeStat) -> Self {
        Self {
            sequence: node_name::sequence(node_name::last_part(&path)),
            path,
            data,
            session_id: stat.ephemeral_owner,
            created_at: from_unix_ms(stat.ctime_ms),
        }
    }
}

impl LockInternals {
    /// The nodes of this kind in the lock directory, in the order in which they are admitted, and
    /// strangers among those of a mutex; empty where the directory does not exist.
    ///
    /// # Errors
    /// As [`Session::read`](crate::Session::read).
    pub async fn participants(&self) -> Result<Vec<Participant>, QueryError> {
        let lock = &self.target.lock;
        let (directory, kind) = (&*lock.path, self.target.kind);
        let query = async |epoch: std::sync::Arc<crate::epoch::Epoch>| {
            let nodes = &epoch.nodes()?;
            let mut children = match nodes.list(directory).await {
                Err(NodesError::NoNode) => Vec::new(),
                children => children?,
            };
            if kind != LockKind::Mutex {
                children.retain(|name| name.contains(kind.marker()));
            }
            wait_queue::sort(kind, &mut children);
            let mut participants = Vec::with_capacity(children.len());
            let reads = stream::iter(children).map(|name| async move {
                let path = lock.node_path(&name);
                let read = nodes.read(&path).await?;
                Ok::<_, NodesError>(read.map(|(data, stat)| Participant::new(path, data, &stat)))
            });
            let mut reads = reads.buffered(REQUESTS_AT_ONCE);
            while let Some(participant) = reads.try_next().await? {
                // One that has left between the two requests is no participant any more.
                participants.extend(participant);
            }
            Ok(participants)
        };
        lock.session.query(directory, query).await
    }
}

fn from_unix_ms(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}
