//! The nodes that an attempt may have made, as its session knows them.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use uuid::Uuid;

use crate::session::cleanup::{Cleanup, Doomed};
use crate::session::create_in_flight::{Answer, CreateInFlight};
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
    all: Mutex<All>,
}

struct All {
    /// The directory of each member, and what was made in it.
    members: Vec<(Arc<str>, Made)>,
    /// The create that has no answer yet, and the members that it is for.
    create: Option<(Vec<usize>, CreateInFlight)>,
}

impl Leftovers {
    /// Nothing yet, in these directories.
    pub(crate) fn new(directories: impl IntoIterator<Item = Arc<str>>) -> Self {
        let members = directories.into_iter().map(|it| (it, Made::Nothing));
        let (members, create) = (members.collect(), None);
        Self {
            all: Mutex::new(All { members, create }),
        }
    }

    pub(crate) fn set(&self, member: usize, made: Made) {
        if let Some((_, known)) = lock(&self.all).members.get_mut(member) {
            *known = made;
        }
    }

    pub(crate) fn get(&self, member: usize) -> Made {
        let all = lock(&self.all);
        let known = all.members.get(member);
        known.map_or(Made::Nothing, |(_, made)| made.clone())
    }

    /// Begins a create for these members, which is in flight or is sent when it is polled.
    pub(crate) fn begin(&self, members: Vec<usize>, create: CreateInFlight) {
        let mut all = lock(&self.all);
        for (member, node) in members.iter().zip(&create.nodes) {
            if let Some((_, known)) = all.members.get_mut(*member) {
                *known = Made::With(node.uuid);
            }
        }
        all.create = Some((members, create));
    }

    /// The answer to the create. It never comes once everything is given up.
    pub(crate) fn poll_create(&self, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut all = lock(&self.all);
        let Some((_, create)) = &mut all.create else {
            return Poll::Pending;
        };
        let answer = ready!(create.poll(cx));
        let over = all.create.take();
        // Not under the mutex, because it may be the last to use the store's session.
        drop(all);
        drop(over);
        Poll::Ready(answer)
    }

    /// Deletes everything, once.
    pub(crate) fn delete_all(&self, cleanup: &Cleanup, epoch: &Epoch) {
        let (mut members, create) = {
            let mut all = lock(&self.all);
            (std::mem::take(&mut all.members), all.create.take())
        };
        if let Some((of_create, create)) = create.filter(|(_, it)| it.tells_all()) {
            for member in of_create {
                if let Some((_, made)) = members.get_mut(member) {
                    *made = Made::Nothing;
                }
            }
            cleanup.abandon(create, epoch);
        }
        let mut unknown = Vec::new();
        for (directory, made) in members {
            match made {
                Made::Nothing => {}
                // Sent now, so that later requests of this session find the node gone.
                Made::Node(name) => {
                    let path = format!("{directory}/{name}");
                    cleanup.deletion(&path, epoch).send(epoch);
                }
                Made::With(uuid) => unknown.push((directory.to_string(), uuid)),
            }
        }
        if !unknown.is_empty() {
            drop(cleanup.delete(Doomed::MadeWith(unknown), epoch));
        }
    }
}
