//! The nodes that an attempt may have made, as its session knows them.

use std::sync::Arc;

use uuid::Uuid;

use crate::session::cleanup::{Cleanup, Doomed};
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
pub(crate) struct Leftovers {
    /// The directory of each member, and what was made in it.
    members: Mutex<Vec<(Arc<str>, Made)>>,
}

impl Leftovers {
    /// Nothing yet, in these directories.
    pub(crate) fn new(directories: impl IntoIterator<Item = Arc<str>>) -> Self {
        let members = directories.into_iter().map(|it| (it, Made::Nothing));
        Self {
            members: Mutex::new(members.collect()),
        }
    }

    pub(crate) fn set(&self, member: usize, made: Made) {
        if let Some((_, known)) = lock(&self.members).get_mut(member) {
            *known = made;
        }
    }

    pub(crate) fn get(&self, member: usize) -> Made {
        let members = lock(&self.members);
        members
            .get(member)
            .map_or(Made::Nothing, |(_, made)| made.clone())
    }

    /// Deletes everything, once.
    pub(crate) fn delete_all(&self, cleanup: &Cleanup, epoch: &Epoch) {
        let members = std::mem::take(&mut *lock(&self.members));
        for (directory, made) in members {
            match made {
                Made::Nothing => {}
                // Sent now, so that later requests of this session find the node gone.
                Made::Node(name) => {
                    let path = format!("{directory}/{name}");
                    cleanup.deletion(&path, epoch).send(epoch);
                }
                Made::With(uuid) => {
                    let directory = directory.to_string();
                    let doomed = Doomed::MadeWith { directory, uuid };
                    drop(cleanup.delete(doomed, epoch));
                }
            }
        }
    }
}
