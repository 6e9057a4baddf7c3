//! The acquire state machine: what a contender does next.
//!
//! [`AcquireMachine::step`] takes an event and returns the actions to take; the driver carries them out.
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
//! earlier member must wait, or when its session ended. All do when a semaphore has fewer permits
//! than are wanted, until it has enough. A reader next to its own writer is admitted
//! without a listing.
//!
//! A grant rests on what is known of all members at one time. A member whose own node is watched
//! may wait for the others, because the watch would report its deletion. What is known of the rest
//! was requested in one flush, or is requested again.
//!
//! No member waits while a later one has a node. So no attempt queues beyond a lock that it does
//! not hold, and contenders that take locks in one order cannot deadlock. The exception is the
//! leases of a semaphore: they come last, behind the semaphore's mutex, so nobody else can be
//! waiting for any of them.

use crate::names::node_name::LockKind;
use crate::rules::admission::{self, Place};
use crate::rules::delay::Ahead;

mod entering;
mod messages;
mod permits;
mod waiting;

pub(crate) use messages::{
    Action, Entry, Event, Failure, Found, GrantedNode, Node, Outcome, Patience,
};
use waiting::Deletions;

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
        /// Nearest first.
        ahead: Vec<String>,
        deletions: Deletions,
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
pub(crate) struct AcquireMachine {
    members: Vec<Member>,
    patience: Patience,
    /// How many leases of a semaphore may be held. Of anything else, one node may.
    permits: usize,
    session: i64,
    parents_made: u8,
    /// The contender because of which the attempt of a try ended.
    busy: Option<Ahead>,
}

impl AcquireMachine {
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
            permits: 1,
            session: 0,
            parents_made: 0,
            busy: None,
        }
    }

    /// Sets how many leases of the semaphore may be held, for an attempt that has some.
    pub(crate) fn with_permits(self, permits: usize) -> Self {
        Self { permits, ..self }
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
            Event::BesideOthers(node, found) => self.beside_others(node, found),
            Event::WriterGone(member) => vec![Action::Fail(Failure::WriterGone { member })],
            Event::EnterUnknown => self.search(),
            Event::Searched(found) => self.searched(found),
            Event::Listed(member, children) => self.listed(member, &children),
            Event::Stated(member, found) => self.stated(member, found),
            Event::BlockerGone(member, name) => self.blocker_gone(member, &name, false),
            Event::FirstGone(member, name) => self.blocker_gone(member, &name, true),
            Event::BlockerChanged => self.settle(),
            Event::OwnWatched(member) => self.own_watched(member, true),
            Event::OwnGone(member) => self.own_gone(member),
            Event::OwnChanged(member) => self.own_watched(member, false),
            Event::Reconnected { forgot } => self.reconnected(forgot),
            Event::Lapsed => self.lapsed(),
            Event::Committed => self.settle(),
            Event::Permits(permits) => self.permits_changed(permits),
        }
    }

    fn start(&mut self, session: i64) -> Vec<Action> {
        self.session = session;
        self.busy = None;
        self.parents_made = 0;
        self.members
            .iter_mut()
            .for_each(|member| member.stage = Stage::Out);
        let is_elsewhere = |member: &Member| matches!(member.place, Place::Beside { session: writer } if writer != session);
        if let Some(member) = self.members.iter().position(is_elsewhere) {
            return vec![Action::Fail(Failure::WriterGone { member })];
        }
        let any_queues = self.members.iter().any(|it| it.place == Place::Tail);
        let mut actions = self.heed_permits();
        match self.patience {
            _ if self.wants_too_many() => actions.extend(self.stand_aside()),
            Patience::Try if any_queues => actions.push(Action::Probe),
            Patience::Try | Patience::Wait => actions.extend(self.enter_from(0)),
        }
        actions
    }

    fn probed(&mut self, listings: &[Vec<String>]) -> Vec<Action> {
        let members = || self.members.iter().zip(listings).enumerate();
        let refusals = members().map(|(member, (_, children))| self.mixed(member, children, None));
        if let Some(Err(failure)) = refusals.into_iter().find(Result::is_err) {
            return vec![Action::Fail(failure)];
        }
        let mut queues = members().filter(|(_, (it, _))| it.place == Place::Tail);
        self.busy = queues.find_map(|(member, (it, children))| {
            let group = self.group(member);
            // The listing of the leases came with the first of them.
            if member != group.start {
                return None;
            }
            let is_lease = it.kind == LockKind::Permit;
            let has_room = is_lease && children.len() + group.len() <= self.permits;
            let ahead = admission::ahead_of_newcomers(it.kind, children);
            let node = ahead.filter(|_| !has_room)?.to_owned();
            Some(Ahead { member, node })
        });
        match self.busy {
            None => self.enter_from(0),
            Some(_) => vec![Action::Busy],
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
        // One listing shows all leases, and takes the place of an earlier one.
        let mut listings: Vec<_> = members.iter().map(|it| self.group(*it).start).collect();
        listings.dedup();
        listings.into_iter().map(Action::List).collect()
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

    /// What was listed or watched on the previous connection may have changed unnoticed. Own nodes
    /// are requested again, first and before any grant.
    fn reconnected(&mut self, forgot: bool) -> Vec<Action> {
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
                // It lists when its turn seems to come: thousands that wait would list all at once.
                Stage::Waiting { deletions, .. } if forgot => *deletions = Deletions::Ask,
                _ => {}
            }
        }
        if forgot {
            unlisted.extend(self.unlist(self.members.len()));
            unlisted.sort_unstable();
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
        let mut actions = vec![Action::Gone(member)];
        actions.extend(self.withdraw_from(member + 1));
        actions
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
        if self.wants_too_many() {
            return self.stand_aside();
        }
        let mut held = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            match &member.stage {
                Stage::Admitted(node) => held.push(node.clone()),
                Stage::Waiting { ahead, .. } if self.patience == Patience::Try => {
                    self.busy = self.nearest(index, ahead);
                    let mut actions = self.withdraw_from(0);
                    actions.push(Action::Busy);
                    return actions;
                }
                Stage::Waiting { ahead, .. } => {
                    let group = self.group(index);
                    let own = self.own_names(index);
                    let awaited = ahead.iter().rev();
                    let awaited = awaited.filter(|name| !own.contains(name.as_str()));
                    let watched = awaited.cloned().collect();
                    let mut actions = self.withdraw_from(group.end);
                    // Our own nodes first: if both are deleted, we learn about ours before the one
                    // ahead.
                    let with_node = |it: &usize| self.stage(*it).and_then(Stage::node).is_some();
                    actions.extend((0..group.end).filter(with_node).map(Action::WatchOwn));
                    // Whichever of a group waits, what it watches is watched once.
                    actions.push(Action::Watch(group.start, watched));
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

    fn kind(&self, member: usize) -> Option<LockKind> {
        self.members.get(member).map(|member| member.kind)
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
