//! The leases of a semaphore: as many as there are permits may hold.

use std::ops::Range;

use super::{AcquireMachine, Action, Member, Patience, Stage};
use crate::names::node_name::LockKind;

impl AcquireMachine {
    /// The members that wait for the same nodes as this one: the leases of the semaphore, or it
    /// alone.
    pub(super) fn group(&self, member: usize) -> Range<usize> {
        let is_lease = |it: &Member| it.kind == LockKind::Permit;
        match self.members.get(member).is_some_and(is_lease) {
            true => self.members.iter().position(is_lease).unwrap_or(member)..self.members.len(),
            false => member..member + 1,
        }
    }

    /// How many nodes may hold of those that a member goes to.
    pub(super) fn room(&self, member: usize) -> usize {
        match self.members.get(member) {
            Some(it) if it.kind == LockKind::Permit => self.permits,
            _ => 1,
        }
    }

    /// Wants to be told of another number of permits, if it depends on that.
    pub(super) fn heed_permits(&self) -> Vec<Action> {
        let leases = self.members.iter().any(|it| it.kind == LockKind::Permit);
        leases
            .then_some(Action::HeedPermits(self.permits))
            .into_iter()
            .collect()
    }

    /// Whether it wants more permits than there are, so that no release lets it in.
    pub(super) fn wants_too_many(&self) -> bool {
        let leases = self.members.iter().filter(|it| it.kind == LockKind::Permit);
        leases.count() > self.permits
    }

    /// Whether it has left the queue until there are as many permits as it wants.
    pub(super) fn stands_aside(&self) -> bool {
        let is_out = |it: &Member| it.stage == Stage::Out;
        self.patience == Patience::Wait && self.members.iter().all(is_out)
    }

    /// Leaves the queue: whoever is behind would wait in vain, too.
    pub(super) fn stand_aside(&mut self) -> Vec<Action> {
        let mut actions = self.withdraw_from(0);
        actions.extend((self.patience == Patience::Try).then_some(Action::Busy));
        actions
    }

    /// What was decided by the earlier number is decided again.
    pub(super) fn permits_changed(&mut self, permits: usize) -> Vec<Action> {
        self.permits = permits;
        let mut actions = self.heed_permits();
        if self.wants_too_many() || self.stands_aside() {
            actions.extend(self.settle());
            return actions;
        }
        let mut unlisted = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            // A listing that is in flight is decided by the new number anyway.
            let (
                LockKind::Permit,
                Stage::Waiting { node, .. } | Stage::Admitted(node) | Stage::Reading(node),
            ) = (member.kind, &member.stage)
            else {
                continue;
            };
            let (node, gone) = (node.clone(), Vec::new());
            member.stage = Stage::Listing { node, gone };
            unlisted.push(index);
        }
        actions.extend(self.list(unlisted));
        actions
    }
}
