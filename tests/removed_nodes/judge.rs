//! Who holds what, and whether it may: looked at from outside of the lock's code.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use zookeeper_recipes::{FencingToken, GuardMember, GuardState, LockGuard};

/// A contender that was granted something; twice, where it reads beside its own writer.
struct Holder {
    name: usize,
    guard: LockGuard,
}

/// The highest tokens of one lock.
#[derive(Clone, Copy, Default)]
struct Highest {
    of_all: Option<FencingToken>,
    of_writers: Option<FencingToken>,
}

/// Looks at every grant.
pub(crate) struct Judge {
    /// Within this a holder hears that its node was removed.
    heard_within: Duration,
    holders: Vec<Holder>,
    highest: BTreeMap<String, Highest>,
    /// Nodes of which everybody has heard that they are gone, and since when they are.
    removed: Vec<(String, Instant)>,
    /// As long as somebody may not have heard.
    settling: Vec<String>,
    /// Contenders that were granted what they asked for.
    pub(crate) served: usize,
    pub(crate) faults: Vec<String>,
}

fn is_reader(node_path: &str) -> bool {
    node_path.contains("-__READ__")
}

impl Judge {
    pub(crate) fn new(heard_within: Duration) -> Self {
        Self {
            heard_within,
            holders: Vec::new(),
            highest: BTreeMap::new(),
            removed: Vec::new(),
            settling: Vec::new(),
            served: 0,
            faults: Vec::new(),
        }
    }

    pub(crate) fn granted(&mut self, name: usize, guard: LockGuard) {
        for member in guard.members() {
            self.look_at(name, &member);
        }
        self.holders.push(Holder { name, guard });
    }

    fn look_at(&mut self, name: usize, granted: &GuardMember) {
        let (node, token) = (&granted.node_path, granted.fencing_token);
        if self.removed.iter().any(|(removed, _)| removed == node) {
            self.faults
                .push(format!("{name} is granted {node}, which was removed"));
        }
        let highest = self.highest.entry(granted.path.clone()).or_default();
        // Readers do not conflict; one beside its own writer has its token.
        let lower_than = match is_reader(node) {
            true => highest.of_writers,
            false => highest.of_all,
        };
        highest.of_all = highest.of_all.max(Some(token));
        if !is_reader(node) {
            highest.of_writers = highest.of_writers.max(Some(token));
        }
        // What is granted before it can be known is none of our business.
        if self.settling.contains(node) {
            return;
        }
        let is_beside_its_own = self
            .members_at(&granted.path)
            .any(|(holder, own)| holder == name && own.fencing_token == token);
        if !is_beside_its_own && lower_than >= Some(token) {
            let fault = format!("{name} is granted {token} of {node} after {lower_than:?}");
            self.faults.push(fault);
        }
        let beside: Vec<_> = self
            .members_at(&granted.path)
            .filter(|(holder, _)| *holder != name)
            .filter(|(_, other)| !(is_reader(node) && is_reader(&other.node_path)))
            .filter(|(_, other)| !matches!(other.state, GuardState::Lost(_)))
            .filter(|(_, other)| !self.is_excused(&other.node_path))
            .map(|(holder, other)| format!("{name} is granted {node} beside {holder}: {other:?}"))
            .collect();
        self.faults.extend(beside);
    }

    fn members_at(&self, path: &str) -> impl Iterator<Item = (usize, GuardMember)> {
        let all = self.holders.iter().flat_map(|Holder { name, guard }| {
            let members = guard.members().into_iter();
            members.map(move |member| (*name, member))
        });
        all.filter(move |(_, member)| member.path == path)
    }

    /// Valid, though it is gone: for as long as the documents say.
    fn is_excused(&self, node: &String) -> bool {
        let removed = self.removed.iter().find(|(path, _)| path == node);
        let is_recent = removed.is_some_and(|(_, at)| at.elapsed() <= self.heard_within);
        is_recent || self.settling.contains(node)
    }

    /// The first guard of a contender.
    pub(crate) fn take(&mut self, name: usize) -> LockGuard {
        let index = self.holders.iter().position(|it| it.name == name);
        self.holders.remove(index.unwrap()).guard
    }

    /// The nodes that `zklock break` takes.
    pub(crate) fn held_at(&self, path: &str) -> Vec<String> {
        let held = self.members_at(path).map(|(_, member)| member.node_path);
        held.collect()
    }

    /// Somebody is about to remove these.
    pub(crate) fn removing(&mut self, nodes: &[String]) {
        self.settling = nodes.to_vec();
    }

    /// They are gone since then, and everybody has heard of it.
    pub(crate) fn settled(&mut self, since: Instant) {
        let settled = self.settling.drain(..).map(|node| (node, since));
        self.removed.extend(settled);
    }
}
