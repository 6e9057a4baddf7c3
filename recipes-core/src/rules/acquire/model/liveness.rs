//! Contenders that wait in vain.

use super::contender::{Contender, Made};
use super::ensemble::{Lock, is_front};
use super::names::id_of;
use super::world::{Step, World};
use super::*;

impl World {
    /// Whether a contender waits in vain, now that nothing more happens by itself: nothing is in
    /// flight, nothing is to be deleted and no deadline is left to pass. Holders and other clients
    /// may decide late, so only a contender that waits for just that decision may depend on it.
    pub(super) fn has_stuck(&self) -> bool {
        let mut steps = Vec::new();
        self.steps(&mut steps);
        let is_decided = |step: &Step| matches!(step, Step::Release(_) | Step::Leave(_));
        if !steps.iter().all(is_decided) {
            return false;
        }
        let is_over = self.contenders.iter().all(Contender::is_done);
        let is_left = steps.is_empty() && !(is_over && self.ensemble.locks.is_empty());
        is_left || (0..self.contenders.len()).any(|index| self.waits_in_vain(index))
    }

    /// Whether a contender waits although nothing is ahead of it, or for a node that is gone, that
    /// is its own or that no contender is going to delete.
    fn waits_in_vain(&self, index: usize) -> bool {
        let Some(machine) = &self.contenders[index].machine else {
            return false;
        };
        let mut waits = machine.members.iter().filter_map(|it| match &it.stage {
            Stage::Waiting { node, ahead, .. } => Some((it.kind, node, ahead)),
            _ => None,
        });
        // Neither a request in flight nor a wait: nothing wakes it.
        let Some((kind, node, ahead)) = waits.next() else {
            return true;
        };
        let is_own = |lock: &Lock| !lock.is_strange() && usize::from(lock.client) == index;
        let awaits = |name: &String| match self.ensemble.lock(id_of(name)) {
            // Its own leases count, and nobody waits for their end.
            Some(it) if is_own(it) => kind == LockKind::Permit,
            Some(it) => it.is_strange() || self.is_kept(it),
            None => false,
        };
        let is_good = match kind {
            LockKind::Permit => ahead.iter().all(awaits),
            _ => ahead.first().is_some_and(awaits),
        };
        !is_good || is_front(&self.ensemble.locks, id_of(&node.name))
    }

    /// Whether the contender that made this node knows of it.
    fn is_kept(&self, lock: &Lock) -> bool {
        let it = &self.contenders[usize::from(lock.client)];
        let mut held = it.held.iter().flatten();
        held.any(|held| held.id == lock.id) || it.made.contains(&Made::Node(lock.id))
    }
}
