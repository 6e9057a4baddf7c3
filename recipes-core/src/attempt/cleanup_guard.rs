//! Deletes what an attempt has made, unless it ends with leases.

use std::sync::Arc;

use uuid::Uuid;

use crate::attempt::ask::Ask;
use crate::lock::target::Target;
use crate::session::cleanup::{Cleanup, Doomed};
use crate::session::epoch::Epoch;
use crate::session::leftovers::{Leftovers, Made};

/// Hands our nodes to the clean-up when dropped. All ways in which an attempt can end without
/// leases come through here.
pub(crate) struct CleanupGuard<'a> {
    cleanup: &'a Cleanup,
    epoch: &'a Epoch,
    targets: &'a [Target],
    pub(crate) leftovers: Arc<Leftovers>,
}

impl<'a> CleanupGuard<'a> {
    pub(crate) fn new(
        cleanup: &'a Cleanup,
        epoch: &'a Epoch,
        targets: &'a [Target],
        leftovers: Arc<Leftovers>,
    ) -> Self {
        Self {
            cleanup,
            epoch,
            targets,
            leftovers,
        }
    }

    pub(crate) fn set(&self, member: usize, made: Made) {
        self.leftovers.set(member, made);
    }

    /// The uuid for the next create of a member.
    pub(crate) fn uuid(&self, member: usize, fresh: impl FnOnce() -> Uuid) -> Uuid {
        match self.leftovers.get(member) {
            Made::With(uuid) => uuid,
            Made::Nothing | Made::Node(_) => {
                let uuid = fresh();
                self.set(member, Made::With(uuid));
                uuid
            }
        }
    }

    /// The create for a member that is in flight or may have been carried out. A create can only be
    /// built from what is read back here, so its node cannot be missing from what is deleted.
    pub(crate) fn ask(&self, member: usize) -> Option<Ask<'a>> {
        let Made::With(uuid) = self.leftovers.get(member) else {
            return None;
        };
        let target = self.targets.get(member)?;
        Some(Ask {
            member,
            target,
            uuid,
        })
    }

    /// A member's lock and the name of its node.
    pub(crate) fn node(&self, member: usize) -> Option<(&'a Target, String)> {
        match self.leftovers.get(member) {
            Made::Node(name) => Some((self.targets.get(member)?, name)),
            Made::Nothing | Made::With(_) => None,
        }
    }

    /// Gives up these nodes. The caller deletes them.
    pub(crate) fn withdraw(&self, nodes: &[(usize, String)]) -> Doomed {
        let mut paths = Vec::with_capacity(nodes.len());
        for (member, name) in nodes {
            self.set(*member, Made::Nothing);
            let target = self.targets.get(*member);
            paths.extend(target.map(|target| target.lock.node_path(name)));
        }
        Doomed::Nodes(paths)
    }
}

impl Drop for CleanupGuard<'_> {
    fn drop(&mut self) {
        self.leftovers.delete_all(self.cleanup, self.epoch);
    }
}
