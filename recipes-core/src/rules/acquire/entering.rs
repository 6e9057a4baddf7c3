//! How members get nodes: creates, and the search for those of unknown outcome.

use super::{AcquireMachine, Action, Entry, Failure, Found, Node, PARENTS_MADE_MAX, Stage};
use crate::names::node_name::{self, LockKind};
use crate::rules::admission::Place;

impl AcquireMachine {
    pub(super) fn entered(&mut self, entries: Vec<Entry>) -> Vec<Action> {
        self.parents_made = 0;
        let (mut actions, mut unlisted) = (Vec::new(), Vec::new());
        let mut listings = Vec::with_capacity(entries.len());
        for (member, Entry { node, children }) in self.entering().into_iter().zip(entries) {
            match self.place(member, node) {
                Ok(true) => listings.push((member, children)),
                Ok(false) => {}
                Err(failure) => return vec![Action::Fail(failure)],
            }
        }
        let mut of_leases = None;
        for (member, mut children) in listings {
            let is_lease = self.kind(member) == Some(LockKind::Permit);
            if is_lease && children.is_some() {
                // It came with the first lease, and shows all of them.
                of_leases = children.take();
            }
            let children = if is_lease { &of_leases } else { &children };
            // A listing of the previous connection proves nothing any more.
            match children.as_ref().filter(|_| self.is_fresh(member)) {
                Some(children) => match self.apply_listing(member, children) {
                    Ok(then) => actions.extend(then),
                    Err(failure) => return vec![Action::Fail(failure)],
                },
                None => unlisted.push(member),
            }
        }
        actions.extend(self.list(unlisted));
        actions.extend(self.settle());
        actions
    }

    /// Notes a member's node; true if a listing must decide whether it is admitted.
    pub(super) fn place(&mut self, member: usize, node: Node) -> Result<bool, Failure> {
        // Servers before 3.6 count on below zero. Later ones return the last number again and
        // again. Either way, a later node may sort ahead of ours.
        let is_beyond = |it: &i32| *it < 0 || *it == i32::MAX;
        if let Some(sequence) = node_name::count(&node.name).filter(is_beyond) {
            return Err(Failure::SequenceExhausted { member, sequence });
        }
        let Some(member) = self.members.get_mut(member) else {
            return Ok(false);
        };
        member.own_watched = false;
        let queues = member.place == Place::Tail;
        member.stage = if queues {
            let gone = Vec::new();
            Stage::Listing { node, gone }
        } else {
            Stage::Admitted(node)
        };
        Ok(queues)
    }

    pub(super) fn no_parent(&mut self) -> Vec<Action> {
        self.parents_made += 1;
        let members = self.entering();
        match members.first().copied() {
            Some(member) if self.parents_made > PARENTS_MADE_MAX => {
                vec![Action::Fail(Failure::ParentsVanish { member })]
            }
            Some(_) => vec![Action::MakeParents(members)],
            // A late answer: nothing is being created any more.
            None => Vec::new(),
        }
    }

    pub(super) fn beside_others(&self, node: String, found: LockKind) -> Vec<Action> {
        let lease = self
            .members
            .iter()
            .position(|it| it.kind == LockKind::Permit);
        let failure = lease.map(|member| Failure::BesideOthers {
            member,
            node,
            found,
        });
        failure.map(Action::Fail).into_iter().collect()
    }

    pub(super) fn search(&mut self) -> Vec<Action> {
        let members = self.entering();
        self.ask_of(&members);
        members
            .iter()
            .for_each(|member| self.set(*member, Stage::Searching));
        vec![Action::Search(members)]
    }

    /// A found node is ours only if this session owns it. A node of an earlier session may still be
    /// listed, and would disappear while we hold it.
    pub(super) fn searched(&mut self, found: Vec<Vec<Found>>) -> Vec<Action> {
        let (mut actions, mut unlisted) = (Vec::new(), Vec::new());
        let searching = self.indices(|stage| matches!(stage, Stage::Searching));
        for (member, mut found) in searching.into_iter().zip(found) {
            self.set(member, Stage::Entering);
            // The earliest one has the best place.
            found.sort_by_key(|it| it.czxid);
            let ours = found.iter().position(|it| it.owner == self.session);
            let ours = ours.map(|index| found.remove(index));
            let others = found.into_iter().map(|it| (member, it.name));
            let others: Vec<_> = others.collect();
            if !others.is_empty() {
                actions.push(Action::Withdraw(others));
            }
            let Some(Found { name, czxid, .. }) = ours else {
                continue;
            };
            let czxid = Some(czxid);
            actions.push(Action::Adopt(member, name.clone()));
            match self.place(member, Node { name, czxid }) {
                Ok(true) => unlisted.push(member),
                Ok(false) => {}
                Err(failure) => return vec![Action::Fail(failure)],
            }
        }
        actions.extend(self.list(unlisted));
        match self.entering() {
            missing if missing.is_empty() => actions.extend(self.settle()),
            _ => actions.extend(self.enter()),
        }
        actions
    }
}
