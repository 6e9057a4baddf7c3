//! Judges from outside the lock's code which contender holds what, and whether it may.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_recipes::{FencingToken, GuardMember, GuardState, LockGuard};
use tokio::time::Instant;

/// A contender that was granted something. It is here twice if it reads next to its own writer.
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

pub(crate) struct Judge {
    /// The time within which a holder notices that its node was removed.
    heard_within: Duration,
    holders: Vec<Holder>,
    highest: BTreeMap<String, Highest>,
    /// Nodes whose removal all contenders have noticed, and when they were removed.
    removed: Vec<(String, Instant)>,
    /// Nodes whose removal some contenders may not have noticed.
    settling: Vec<String>,
    /// Contenders that were granted what they wanted.
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
        // Readers do not conflict. A reader next to its own writer has the writer's token.
        let lower_than = match is_reader(node) {
            true => highest.of_writers,
            false => highest.of_all,
        };
        highest.of_all = highest.of_all.max(Some(token));
        if !is_reader(node) {
            highest.of_writers = highest.of_writers.max(Some(token));
        }
        // Grants from before the removal could be noticed are not judged.
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

    /// Whether the guard may be valid although its node is gone: only for the documented time.
    fn is_excused(&self, node: &String) -> bool {
        let removed = self.removed.iter().find(|(path, _)| path == node);
        let is_recent = removed.is_some_and(|(_, at)| at.elapsed() <= self.heard_within);
        is_recent || self.settling.contains(node)
    }

    pub(crate) fn take(&mut self, name: usize) -> LockGuard {
        let index = self.holders.iter().position(|it| it.name == name);
        self.holders.remove(index.unwrap()).guard
    }

    /// The nodes that `lockctl break` deletes.
    pub(crate) fn held_at(&self, path: &str) -> Vec<String> {
        let held = self.members_at(path).map(|(_, member)| member.node_path);
        held.collect()
    }

    pub(crate) fn removing(&mut self, nodes: &[String]) {
        self.settling = nodes.to_vec();
    }

    /// Notes that these nodes are gone since then, and that all contenders have noticed.
    pub(crate) fn settled(&mut self, since: Instant) {
        let settled = self.settling.drain(..).map(|node| (node, since));
        self.removed.extend(settled);
    }
}
