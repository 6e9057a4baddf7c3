//! The nodes that an attempt may have made, and their deletion if it ends without leases.

use std::sync::Arc;

use uuid::Uuid;

use crate::attempt::requests::{Ask, Target};
use crate::lock::lock_path::LockPath;
use crate::session::cleanup::{Cleanup, Target as Doomed};
use crate::session::epoch::Epoch;
use crate::sync::{Mutex, lock};

/// What we may have created for one member.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    Nothing,
    /// The node of a create with this uuid, if that was carried out. All creates for the member
    /// carry the same uuid until a node of it is known, so none can be forgotten.
    With(Uuid),
    Node(String),
}

/// The nodes of an attempt that may exist in one epoch. The epoch shares this, because an attempt
/// that is neither polled nor dropped cannot delete its nodes when the session is closed.
pub(crate) struct Stakes {
    members: Mutex<Vec<(Arc<LockPath>, Made)>>,
}

impl Stakes {
    pub(crate) fn new(targets: &[Target]) -> Self {
        let members = targets
            .iter()
            .map(|it| (Arc::clone(&it.lock), Made::Nothing));
        Self {
            members: Mutex::new(members.collect()),
        }
    }

    fn set(&self, member: usize, made: Made) {
        if let Some((_, known)) = lock(&self.members).get_mut(member) {
            *known = made;
        }
    }

    fn get(&self, member: usize) -> Made {
        let members = lock(&self.members);
        members
            .get(member)
            .map_or(Made::Nothing, |(_, made)| made.clone())
    }

    /// Deletes everything, once.
    pub(crate) fn delete_all(&self, cleanup: &Cleanup, epoch: &Epoch) {
        let members = std::mem::take(&mut *lock(&self.members));
        for (lock, made) in members {
            match made {
                Made::Nothing => {}
                // Sent now, so that later requests of this session find the node gone.
                Made::Node(name) => {
                    let path = lock.node_path(&name);
                    cleanup.deletion(&path, epoch).send(epoch);
                }
                Made::With(uuid) => {
                    let directory = lock.path.to_string();
                    let doomed = Doomed::MadeWith { directory, uuid };
                    drop(cleanup.delete(doomed, epoch));
                }
            }
        }
    }
}

/// Hands our nodes to the clean-up when dropped. All ways in which an attempt can end without
/// leases come through here.
pub(crate) struct Armed<'a> {
    cleanup: &'a Cleanup,
    epoch: &'a Epoch,
    targets: &'a [Target],
    stakes: Arc<Stakes>,
}

impl<'a> Armed<'a> {
    pub(crate) fn new(
        cleanup: &'a Cleanup,
        epoch: &'a Epoch,
        targets: &'a [Target],
        stakes: Arc<Stakes>,
    ) -> Self {
        Self {
            cleanup,
            epoch,
            targets,
            stakes,
        }
    }

    pub(crate) fn set(&self, member: usize, made: Made) {
        self.stakes.set(member, made);
    }

    /// The uuid for the next create of a member.
    pub(crate) fn uuid(&self, member: usize, fresh: impl FnOnce() -> Uuid) -> Uuid {
        match self.stakes.get(member) {
            Made::With(uuid) => uuid,
            Made::Nothing | Made::Node(_) => {
                let uuid = fresh();
                self.set(member, Made::With(uuid));
                uuid
            }
        }
    }

    /// The create for a member that is in flight or may have been carried out.
    pub(crate) fn ask(&self, member: usize) -> Option<Ask<'a>> {
        let Made::With(uuid) = self.stakes.get(member) else {
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
        match self.stakes.get(member) {
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

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.stakes.delete_all(self.cleanup, self.epoch);
    }
}
