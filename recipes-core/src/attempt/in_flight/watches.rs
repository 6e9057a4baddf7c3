//! What an attempt watches while it waits.

use std::collections::BTreeSet;

use futures::{FutureExt, TryFutureExt};
use tracing::{Instrument, debug, debug_span};

use super::{Answered, InFlight, Slot};
use crate::attempt::requests;
use crate::log::LOCK;
use crate::rules::acquire::Event;

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
        let nodes = &**self.nodes;
        let watched = async move {
            let watched = requests::own_watch(nodes, &target.lock, &name).await?;
            Ok(match watched {
                Some(own) => Answered::OwnWatch(member, own),
                None => Answered::Event(Event::OwnGone(member)),
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
        for name in names {
            if !known.contains(&name) {
                let slot = Slot::Blocker(member, name.clone());
                let wait = debug_span!(
                    target: LOCK,
                    "wait", lock = %target.lock.path, node, predecessor = %name
                );
                // Our own node is watched already, so its news come before those of this one.
                let gone = requests::blocker(&**self.nodes, &target.lock, member, name);
                self.slots
                    .push((slot, gone.instrument(wait).map_ok(Answered::Event).boxed()));
            }
        }
    }
}
