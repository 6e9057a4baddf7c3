//! The acquire state machine: what a contender does next.
//!
//! [`Acquire::step`] takes an event and returns the actions to take; the driver carries them out.
//! It has no clock, no I/O and no randomness, so the same code ships, is explored by a model
//! checker and runs in simulations.
//!
//! One attempt acquires a *set* of members, in the order in which it waits for them. A single lock
//! is a set of one. Each member is in one [`Stage`]:
//!
//! | stage | our node | what is awaited | leaves to |
//! |---|---|---|---|
//! | `Out` | none | an earlier member | `Entering` |
//! | `Entering` | may exist | the create's reply | `Listing`, `Searching`, `Admitted`, `Out` |
//! | `Searching` | may exist | the search for it | `Listing`, `Entering`, `Admitted` |
//! | `Listing` | exists | a listing sent after the last change | `Waiting`, `Admitted`, `Out` |
//! | `Waiting` | exists | the deletion of a blocker | `Listing`, `Admitted`, `Out` |
//! | `Admitted` | exists | the rest of the set | `Listing`, `Reading`, `Out` |
//! | `Reading` | exists | a read of it, for its number | `Admitted`, `Out` |
//!
//! A member returns to `Out` when its node was deleted, when the node was withdrawn because an
//! earlier member must wait, or when its session ended. A reader next to its own writer is admitted
//! without a listing.
//!
//! A grant rests on what is known of all members at one time. A member whose own node is watched
//! may wait for the others, because the watch would report its deletion. What is known of the rest
//! was requested in one flush, or is requested again.
//!
//! No member waits while a later one has a node. So no attempt queues beyond a lock that it does
//! not hold, and contenders that take locks in one order cannot deadlock.

use crate::names::node_name::{self, LockKind};
use crate::rules::admission::{self, Place, Verdict};

mod messages;

pub(crate) use messages::{
    Action, Entry, Event, Failure, Found, GrantedNode, Node, Outcome, Patience,
};

/// How many times the parents of the lock nodes are made for one create before the attempt fails.
/// They vanish when the server reaps an empty container between the two requests, at most once a
/// second or so.
const PARENTS_MADE_MAX: u8 = 5;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Out,
    Entering,
    Searching,
    Listing {
        node: Node,
        /// Blockers whose deletion was reported while the listing was in flight.
        gone: Vec<String>,
    },
    Waiting {
        node: Node,
        blocker: String,
        before: Option<String>,
        deletion_grants: bool,
    },
    Admitted(Node),
    Reading(Node),
}

impl Stage {
    fn node(&self) -> Option<&Node> {
        match self {
            Self::Out | Self::Entering | Self::Searching => None,
            Self::Listing { node, .. }
            | Self::Waiting { node, .. }
            | Self::Admitted(node)
            | Self::Reading(node) => Some(node),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    kind: LockKind,
    place: Place,
    stage: Stage,
    /// What is known of our node, or is in flight, was requested with the last requests that were
    /// sent, on the present connection.
    is_fresh: bool,
    /// Whether a deletion of our node would have been reported by now.
    own_watched: bool,
}

/// One attempt to acquire a set of locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquire {
    members: Vec<Member>,
    patience: Patience,
    session: i64,
    parents_made: u8,
}

impl Acquire {
    /// An attempt for these members, in the order in which they are waited for.
    pub(crate) fn new(
        members: impl IntoIterator<Item = (LockKind, Place)>,
        patience: Patience,
    ) -> Self {
        let members = members.into_iter().map(|(kind, place)| Member {
            kind,
            place,
            stage: Stage::Out,
            is_fresh: false,
            own_watched: false,
        });
        Self {
            members: members.collect(),
            patience,
            session: 0,
            parents_made: 0,
        }
    }

    /// Takes an event and returns the actions to take.
    ///
    /// An event that is not awaited any more changes nothing.
    pub(crate) fn step(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::SessionStarted(session) => self.start(session),
            Event::Probed(listings) => self.probed(&listings),
            Event::Entered(entries) => self.entered(entries),
            Event::NoParent => self.no_parent(),
            Event::ParentsMade => self.enter(),
            Event::WriterGone(member) => vec![Action::Fail(Failure::WriterGone { member })],
            Event::EnterUnknown => self.search(),
            Event::Searched(found) => self.searched(found),
            Event::Listed(member, children) => self.listed(member, &children),
            Event::Stated(member, found) => self.stated(member, found),
            Event::BlockerGone(member, name) => self.blocker_gone(member, name),
            Event::BlockerChanged => self.settle(),
            Event::OwnWatched(member) => self.own_watched(member, true),
            Event::OwnGone(member) => self.own_gone(member),
            Event::OwnChanged(member) => self.own_watched(member, false),
            Event::Reconnected => self.reconnected(),
            Event::Lapsed => self.lapsed(),
            Event::Committed => self.settle(),
        }
    }

    fn start(&mut self, session: i64) -> Vec<Action> {
        self.session = session;
        self.parents_made = 0;
        self.members
            .iter_mut()
            .for_each(|member| member.stage = Stage::Out);
        let is_elsewhere = |member: &Member| matches!(member.place, Place::Beside { session: writer } if writer != session);
        if let Some(member) = self.members.iter().position(is_elsewhere) {
            return vec![Action::Fail(Failure::WriterGone { member })];
        }
        let any_queues = self.members.iter().any(|it| it.place == Place::Tail);
        match self.patience {
            Patience::Try if any_queues => vec![Action::Probe],
            Patience::Try | Patience::Wait => self.enter_from(0),
        }
    }

    fn probed(&mut self, listings: &[Vec<String>]) -> Vec<Action> {
        let is_free = |(member, children): (&Member, &Vec<String>)| {
            member.place != Place::Tail || admission::would_admit(member.kind, children)
        };
        if self.members.iter().zip(listings).all(is_free) {
            self.enter_from(0)
        } else {
            vec![Action::Busy]
        }
    }

    fn enter_from(&mut self, first: usize) -> Vec<Action> {
        self.members
            .iter_mut()
            .skip(first)
            .for_each(|member| member.stage = Stage::Entering);
        self.enter()
    }

    fn enter(&mut self) -> Vec<Action> {
        let entering = self.entering();
        self.ask_of(&entering);
        vec![Action::Enter(entering)]
    }

    /// Notes that the requests sent now, which are the last ones, are about these members.
    fn ask_of(&mut self, members: &[usize]) {
        for (index, member) in self.members.iter_mut().enumerate() {
            member.is_fresh = members.contains(&index);
        }
    }

    fn list(&mut self, members: Vec<usize>) -> Vec<Action> {
        if !members.is_empty() {
            self.ask_of(&members);
        }
        members.into_iter().map(Action::List).collect()
    }

    fn entering(&self) -> Vec<usize> {
        self.indices(|stage| matches!(stage, Stage::Entering))
    }

    fn indices(&self, wanted: impl Fn(&Stage) -> bool) -> Vec<usize> {
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, member)| wanted(&member.stage))
            .map(|(index, _)| index)
            .collect()
    }

    fn entered(&mut self, entries: Vec<Entry>) -> Vec<Action> {
        self.parents_made = 0;
        let (mut actions, mut unlisted) = (Vec::new(), Vec::new());
        for (member, Entry { node, children }) in self.entering().into_iter().zip(entries) {
            match self.place(member, node) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(failure) => return vec![Action::Fail(failure)],
            }
            // A listing of the previous connection proves nothing any more.
            match children.filter(|_| self.is_fresh(member)) {
                Some(children) => actions.extend(self.apply_listing(member, &children)),
                None => unlisted.push(member),
            }
        }
        actions.extend(self.list(unlisted));
        actions.extend(self.settle());
        actions
    }

    /// Notes a member's node; true if a listing must decide whether it is admitted.
    fn place(&mut self, member: usize, node: Node) -> Result<bool, Failure> {
        // Servers before 3.6 count on below zero. Later ones return the last number again and
        // again. Either way, a later node may sort ahead of ours.
        let is_beyond = |it: &i32| *it < 0 || *it == i32::MAX;
        if let Some(sequence) = node_name::sequence(&node.name).filter(is_beyond) {
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

    fn no_parent(&mut self) -> Vec<Action> {
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

    fn search(&mut self) -> Vec<Action> {
        let members = self.entering();
        self.ask_of(&members);
        members
            .iter()
            .for_each(|member| self.set(*member, Stage::Searching));
        vec![Action::Search(members)]
    }

    /// A found node is ours only if this session owns it. A node of an earlier session may still be
    /// listed, and would disappear while we hold it.
    fn searched(&mut self, found: Vec<Vec<Found>>) -> Vec<Action> {
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

    fn listed(&mut self, member: usize, children: &[String]) -> Vec<Action> {
        if !matches!(self.stage(member), Some(Stage::Listing { .. })) {
            return Vec::new();
        }
        let mut actions = self.apply_listing(member, children);
        actions.extend(self.settle());
        actions
    }

    /// Applies the admission rule to a listing of one member's directory.
    fn apply_listing(&mut self, member: usize, children: &[String]) -> Vec<Action> {
        let Some(Member {
            kind,
            place,
            stage: Stage::Listing { node, gone },
            ..
        }) = self.members.get(member)
        else {
            return Vec::new();
        };
        let (node, gone) = (node.clone(), gone.clone());
        let verdict = match place {
            Place::Beside { .. } if children.contains(&node.name) => Verdict::Granted,
            _ => admission::admit(*kind, children, &node.name),
        };
        let is_sure = self.is_sure(member);
        match verdict {
            Verdict::Granted => self.set(member, Stage::Admitted(node)),
            Verdict::Absent => return self.rejoin(member),
            Verdict::WaitFor(it) if gone.iter().any(|gone| gone == it.name) => {
                // The listing is older than the deletion that was reported.
                if it.deletion_grants && is_sure {
                    self.set(member, Stage::Admitted(node));
                } else {
                    self.set(member, Stage::Listing { node, gone });
                    return self.list(vec![member]);
                }
            }
            Verdict::WaitFor(it) => {
                let stage = Stage::Waiting {
                    node,
                    blocker: it.name.to_owned(),
                    before: it.before.map(str::to_owned),
                    deletion_grants: it.deletion_grants,
                };
                self.set(member, stage);
            }
        }
        Vec::new()
    }

    fn blocker_gone(&mut self, member: usize, name: String) -> Vec<Action> {
        // A name with a uuid never comes back, so its deletion is final and holds for an older
        // listing too. A node with any other name may have been re-created, and the listing by
        // which we wait for it may have shown the new one.
        let gone = || match node_name::is_protected(&name) {
            true => vec![name.clone()],
            false => Vec::new(),
        };
        let is_sure = self.is_sure(member);
        let Some(stage) = self.members.get_mut(member).map(|member| &mut member.stage) else {
            return Vec::new();
        };
        match stage {
            Stage::Waiting {
                node,
                blocker,
                deletion_grants: true,
                ..
            } if *blocker == name && is_sure && node_name::is_protected(&name) => {
                *stage = Stage::Admitted(node.clone());
                self.settle()
            }
            Stage::Waiting {
                node,
                blocker,
                before,
                ..
            } if *blocker == name || before.as_ref() == Some(&name) => {
                let node = node.clone();
                *stage = Stage::Listing { node, gone: gone() };
                let mut unlisted = self.unlist(member);
                unlisted.push(member);
                self.list(unlisted)
            }
            Stage::Listing { gone: known, .. } if node_name::is_protected(&name) => {
                known.push(name);
                Vec::new()
            }
            Stage::Listing { .. } => self.list(vec![member]),
            _ => Vec::new(),
        }
    }

    /// Whether the deletion of our nodes up to this member would have been reported before that of
    /// a node that it waits for. If not, a deletion is no grant.
    fn is_sure(&self, member: usize) -> bool {
        self.members
            .iter()
            .take(member + 1)
            .all(|it| it.own_watched)
    }

    /// Puts the members before `end` whose node may be gone unnoticed into `Listing`; returns them.
    fn unlist(&mut self, end: usize) -> Vec<usize> {
        let mut unlisted = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate().take(end) {
            if let (false, Stage::Admitted(node)) = (member.own_watched, &member.stage) {
                let (node, gone) = (node.clone(), Vec::new());
                member.stage = Stage::Listing { node, gone };
                unlisted.push(index);
            }
        }
        unlisted
    }

    fn own_watched(&mut self, member: usize, is_watched: bool) -> Vec<Action> {
        let Some(known) = self.members.get_mut(member) else {
            return Vec::new();
        };
        known.own_watched = is_watched;
        if known.stage.node().is_none() {
            return Vec::new();
        }
        if !is_watched {
            known.is_fresh = false;
            return vec![Action::WatchOwn(member)];
        }
        let is_admitted = |it: &Member| matches!(it.stage, Stage::Admitted(_));
        if self.members.iter().all(is_admitted) {
            // The data of our node changed when everything was granted, which took the grant back.
            return self.settle();
        }
        Vec::new()
    }

    /// What was listed or watched on the previous connection may have changed unnoticed. Own nodes
    /// are requested again, first and before any grant.
    fn reconnected(&mut self) -> Vec<Action> {
        self.ask_of(&[]);
        let mut unlisted = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            member.own_watched = false;
            match &mut member.stage {
                Stage::Listing { gone, .. } => {
                    // A server that lags may still list them, and reports when they are deleted.
                    gone.clear();
                    unlisted.push(index);
                }
                Stage::Reading(node) => member.stage = Stage::Admitted(node.clone()),
                _ => {}
            }
        }
        let mut actions = self.list(unlisted);
        // A probe may be answered on any connection.
        if self.members.iter().any(|it| it.stage != Stage::Out) {
            actions.extend(self.settle());
        }
        actions
    }

    /// The grant came too late to rest on the answers so far: the session may be over.
    fn lapsed(&mut self) -> Vec<Action> {
        self.ask_of(&[]);
        vec![Action::Commit]
    }

    fn stated(&mut self, member: usize, found: Option<Found>) -> Vec<Action> {
        let Some(found) = found.filter(|found| found.owner == self.session) else {
            return self.own_gone(member);
        };
        let Some(Stage::Reading(node)) = self.stage(member) else {
            return Vec::new();
        };
        let (name, czxid) = (node.name.clone(), Some(found.czxid));
        self.set(member, Stage::Admitted(Node { name, czxid }));
        self.settle()
    }

    fn own_gone(&mut self, member: usize) -> Vec<Action> {
        if self.stage(member).and_then(Stage::node).is_none() {
            return Vec::new();
        }
        let mut actions = self.rejoin(member);
        actions.extend(self.settle());
        actions
    }

    /// A member lost its node and its place. Later members must not be held meanwhile.
    fn rejoin(&mut self, member: usize) -> Vec<Action> {
        self.set(member, Stage::Out);
        self.withdraw_from(member + 1)
    }

    fn withdraw_from(&mut self, first: usize) -> Vec<Action> {
        let mut nodes = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate().skip(first) {
            if let Some(node) = member.stage.node() {
                nodes.push((index, node.name.clone()));
                member.stage = Stage::Out;
            }
        }
        if nodes.is_empty() {
            Vec::new()
        } else {
            vec![Action::Withdraw(nodes)]
        }
    }

    /// Once every answer is in: grant, wait for the first member that must wait, or enter the rest.
    fn settle(&mut self) -> Vec<Action> {
        let unanswered = |stage: &Stage| {
            matches!(
                stage,
                Stage::Entering | Stage::Searching | Stage::Listing { .. } | Stage::Reading(_)
            )
        };
        if self.members.iter().any(|member| unanswered(&member.stage)) {
            return Vec::new();
        }
        let mut held = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            match &member.stage {
                Stage::Admitted(node) => held.push(node.clone()),
                Stage::Waiting { .. } if self.patience == Patience::Try => {
                    let mut actions = self.withdraw_from(0);
                    actions.push(Action::Busy);
                    return actions;
                }
                Stage::Waiting {
                    blocker, before, ..
                } => {
                    let watched = before.iter().chain([blocker]).cloned().collect();
                    let mut actions = self.withdraw_from(index + 1);
                    // Our own nodes first: if both are deleted, we learn about ours before the one
                    // ahead.
                    actions.extend((0..=index).map(Action::WatchOwn));
                    actions.push(Action::Watch(index, watched));
                    return actions;
                }
                _ => {
                    let mut actions = self.withdraw_from(index + 1);
                    actions.extend(self.enter_from(index));
                    return actions;
                }
            }
        }
        if self
            .members
            .iter()
            .any(|it| !it.own_watched && !it.is_fresh)
        {
            // Such a member has waited for others since it was admitted.
            let unlisted = self.unlist(self.members.len());
            return self.list(unlisted);
        }
        let numbered = held.into_iter().map(|Node { name, czxid }| {
            let czxid = czxid?;
            Some(GrantedNode { name, czxid })
        });
        match numbered.collect() {
            Some(granted) => vec![Action::Grant(granted)],
            None => self.read(),
        }
    }

    /// Reads the nodes whose numbers were not returned, and all that are not watched, because an
    /// answer about one proves nothing about the others.
    fn read(&mut self) -> Vec<Action> {
        let mut unread = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Stage::Admitted(node) = &member.stage {
                if node.czxid.is_none() || !member.own_watched {
                    member.stage = Stage::Reading(node.clone());
                    unread.push(index);
                }
            }
        }
        self.ask_of(&unread);
        unread.into_iter().map(Action::Stat).collect()
    }

    fn is_fresh(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|it| it.is_fresh)
    }

    fn stage(&self, member: usize) -> Option<&Stage> {
        self.members.get(member).map(|member| &member.stage)
    }

    fn set(&mut self, member: usize, stage: Stage) {
        if let Some(member) = self.members.get_mut(member) {
            member.stage = stage;
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
