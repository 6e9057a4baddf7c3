//! What an attempt watches while it waits, and how it waits without watches.
//!
//! All watches of an attempt have room in the budget of waiters, or none has. Without room our own
//! nodes and those ahead are looked at by the lookout. Its looks come in any order, so our own node
//! does not count as watched then: the end of the node ahead is no grant, and a listing decides.

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

use futures::{FutureExt, TryFutureExt};
use tracing::{Instrument, debug, debug_span};

use super::{Done, InFlight, Slot};
use crate::attempt::requests;
use crate::log::LOCK;
use crate::rules::acquire::Event;
use crate::session::watch_budget::WatchPermit;

/// The longest name that has room: longer than ours, which have a uuid, a marker and a number.
const NAME_BYTES_MAX: usize = 64;

impl InFlight<'_> {
    pub(super) fn watch_own(&mut self, member: usize) {
        let slot = Slot::OwnWatch(member);
        let own = self.own_nodes.get(member);
        let is_watched = own.is_some_and(|own| own.watch.is_some());
        if is_watched || self.slots.iter().any(|(other, _)| *other == slot) {
            return;
        }
        let Some((target, name)) = self.cleanup_guard.node(member) else {
            return;
        };
        if !self.has_room() {
            let epoch = self.epoch;
            return self.start(slot, async move {
                requests::unwatched(&epoch.lookout, &target.lock, &name).await?;
                Ok(Event::OwnGone(member))
            });
        }
        let nodes = &**self.nodes;
        let watched = async move {
            let watched = requests::own_watch(nodes, &target.lock, &name).await?;
            Ok(match watched {
                Some(own) => Done::OwnWatch(member, own),
                None => Done::Event(Event::OwnGone(member)),
            })
        };
        self.occupy(slot, watched.boxed());
    }

    pub(super) fn watch(&mut self, member: usize, names: Vec<String>) {
        let wanted: BTreeSet<_> = names.iter().collect();
        self.slots.retain(|(slot, _)| match slot {
            Slot::Blocker(it, name) => *it != member || wanted.contains(name),
            _ => true,
        });
        let mut known = BTreeSet::new();
        for (slot, _) in &self.slots {
            if let Slot::Blocker(it, name) = slot {
                known.extend((*it == member).then(|| name.clone()));
            }
        }
        let Some(target) = self.targets.get(member) else {
            return;
        };
        let node = self.cleanup_guard.node(member).map(|(_, name)| name);
        debug!(target: LOCK, lock = %target.lock.path, ?node, predecessors = ?names, "waiting");
        for (index, name) in names.into_iter().enumerate() {
            if !known.contains(&name) {
                let slot = Slot::Blocker(member, name.clone());
                let wait = debug_span!(
                    target: LOCK,
                    "wait", lock = %target.lock.path, node, predecessor = %name
                );
                let has_room = self.room.is_some();
                // More are ahead than there are permits, if the number was lowered or another
                // process has a higher one.
                let is_watched = has_room && index < self.ahead_max && name.len() <= NAME_BYTES_MAX;
                let (nodes, epoch) = (&**self.nodes, self.epoch);
                let gone = async move {
                    if !is_watched {
                        requests::unwatched(&epoch.lookout, &target.lock, &name).await?;
                    }
                    if !has_room {
                        return Ok(Event::BlockerGone(member, name));
                    }
                    // Our own node is watched. Only a watch that finds this one gone says so in
                    // their order.
                    requests::blocker(nodes, &target.lock, member, name).await
                };
                self.slots
                    .push((slot, gone.instrument(wait).map_ok(Done::Event).boxed()));
            }
        }
        self.queue_for_room();
    }

    /// Whether there is room for the watches of this attempt.
    fn has_room(&mut self) -> bool {
        if self.room.is_none() && !self.is_queued() {
            self.room = self.epoch.lookout.room(self.paths()).map(Arc::new);
        }
        self.room.is_some()
    }

    /// Whether it has a place in the queue for room.
    fn is_queued(&self) -> bool {
        self.slots.iter().any(|(slot, _)| *slot == Slot::Room)
    }

    /// Queues for room, if there is none. It keeps its place until it gets some.
    fn queue_for_room(&mut self) {
        if self.room.is_some() || self.is_queued() {
            return;
        }
        let (epoch, paths) = (self.epoch, self.paths());
        let room = async move { Ok(Done::Room(epoch.lookout.next_room(paths).await)) };
        self.occupy(Slot::Room, room.boxed());
    }

    /// Notes by how many permits the state machine decides, and makes room to watch as many nodes
    /// ahead. Without more room, those that are watched stay watched, and the others are looked at.
    pub(super) fn decide_by(&mut self, permits: usize) {
        self.permits = Some(permits);
        let before = self.ahead_max;
        if permits <= before {
            return;
        }
        self.ahead_max = permits;
        if self.room.is_some() {
            match self.epoch.lookout.room(self.paths()) {
                Some(room) => self.room = Some(Arc::new(room)),
                None => self.ahead_max = before,
            }
        }
        let (targets, is_queued) = (self.targets, self.is_queued());
        let depends = |member: &usize| targets.get(*member).is_some_and(|it| it.permits.is_some());
        self.slots.retain(|(slot, _)| match slot {
            // The room that it is in the queue for is too little.
            Slot::Room => false,
            // What the leases wait for is listed again, and can be watched then.
            Slot::Blocker(member, _) => !depends(member),
            _ => true,
        });
        if is_queued {
            self.queue_for_room();
        }
    }

    /// Gives up the looks at its nodes, which can be watched from now on.
    pub(super) fn move_in(&mut self, room: WatchPermit) {
        self.room = Some(Arc::new(room));
        self.slots
            .retain(|(slot, _)| !matches!(slot, Slot::OwnWatch(_) | Slot::Blocker(..)));
    }

    /// The lengths of the longest paths that it may have to watch at a time.
    fn paths(&self) -> Vec<usize> {
        let own = self.targets.iter();
        let mut paths: Vec<_> = own
            .map(|target| target.lock.path.len() + 1 + NAME_BYTES_MAX)
            .collect();
        let longest = paths.iter().copied().max().unwrap_or_default();
        paths.extend(iter::repeat_n(longest, self.ahead_max));
        paths
    }
}
