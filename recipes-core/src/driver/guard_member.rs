//! One of the locks that a guard holds.

use crate::lock::lease::Lease;
use crate::lock::lease_state::GuardState;
use crate::names::key::unescape_key;
use crate::names::token::FencingToken;

/// One lock that a guard holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardMember {
    /// Path of the lock directory.
    pub path: String,
    /// Full path of the lock node.
    pub node_path: String,
    /// Token of this grant.
    pub fencing_token: FencingToken,
    /// State of this lock.
    pub state: GuardState,
}

impl GuardMember {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            path: lease.path().to_owned(),
            node_path: lease.node_path().to_owned(),
            fencing_token: lease.fencing_token(),
            state: lease.state(),
        }
    }

    /// Returns the key of which a `LockFactory` has made the lock: the last part of the path,
    /// [unescaped](crate::unescape_key). `None` if no key has such a path.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        let (_, part) = self.path.rsplit_once('/')?;
        unescape_key(part)
    }
}
