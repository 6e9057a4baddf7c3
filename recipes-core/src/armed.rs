//! What an attempt has made so far, and who deletes it if the attempt comes to nothing.

use uuid::Uuid;

use crate::cleanup;
use crate::epoch::Epoch;
use crate::requests::{Ask, Target};
use crate::session::Session;

/// What may exist of ours for one member.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    Nothing,
    /// A node that a create with this uuid made, if it was carried out.
    With(Uuid),
    Node(String),
}

/// Hands our nodes to the clean-up when dropped: the one place for every way in which an attempt
/// can end without leases.
pub(crate) struct Armed<'a> {
    session: &'a Session,
    epoch: &'a Epoch,
    targets: &'a [Target],
    nodes: Vec<Made>,
}

impl<'a> Armed<'a> {
    pub(crate) fn new(session: &'a Session, epoch: &'a Epoch, targets: &'a [Target]) -> Self {
        Self {
            session,
            epoch,
            targets,
            nodes: vec![Made::Nothing; targets.len()],
        }
    }

    pub(crate) fn set(&mut self, member: usize, made: Made) {
        if let Some(node) = self.nodes.get_mut(member) {
            *node = made;
        }
    }

    /// The create that is under way for a member, or may have been carried out.
    pub(crate) fn ask(&self, member: usize) -> Option<Ask<'a>> {
        match (self.targets.get(member), self.nodes.get(member)) {
            (Some(target), Some(Made::With(uuid))) => {
                let uuid = *uuid;
                Some(Ask {
                    member,
                    target,
                    uuid,
                })
            }
            _ => None,
        }
    }

    pub(crate) fn node(&self, member: usize) -> Option<(&'a Target, &str)> {
        match (self.targets.get(member), self.nodes.get(member)) {
            (Some(target), Some(Made::Node(name))) => Some((target, name)),
            _ => None,
        }
    }

    /// Gives these nodes away, to be deleted by somebody else.
    pub(crate) fn withdraw(&mut self, nodes: &[(usize, String)]) -> cleanup::Target {
        let mut paths = Vec::with_capacity(nodes.len());
        for (member, name) in nodes {
            self.set(*member, Made::Nothing);
            paths.extend(
                self.targets
                    .get(*member)
                    .map(|target| target.lock.node_path(name)),
            );
        }
        cleanup::Target::Nodes(paths)
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        let cleanup = &self.session.shared.cleanup;
        for (made, Target { lock, .. }) in self.nodes.drain(..).zip(self.targets) {
            match made {
                Made::Nothing => {}
                // Sent now, so that what this session asks for next finds the node gone.
                Made::Node(name) => {
                    cleanup.deletion(&lock.node_path(&name)).send(self.epoch);
                }
                Made::With(uuid) => {
                    let directory = lock.path.to_string();
                    drop(cleanup.delete(cleanup::Target::MadeWith { directory, uuid }));
                }
            }
        }
    }
}
