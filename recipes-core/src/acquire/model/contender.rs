//! One contender of the model: what the driver does with the shipped state machine.
//!
//! Slots, their order, what `forget` drops, what a new connection puts aside and when the own watch
//! counts are those of `flight::Flight`.

use super::ensemble::{Lock, Mark, id_of};
use super::*;

/// What a contender does with its locks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Acquire a set: directory and kind of each.
    Acquire(&'static [(u8, LockKind)], Patience),
    /// Acquire the reader beside the writer that is held, as the first half of a downgrade.
    Beside,
    /// Release what was granted first.
    ReleaseFirst,
}

/// What is under way or is watched; at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    Members,
    List(usize),
    Stat(usize),
    OwnWatch(usize),
    /// The own watch, once it is set and the driver knows.
    Own(usize),
    Blocker(usize, Mark),
}

impl Slot {
    fn is_of(self, member: usize) -> bool {
        match self {
            Self::Members => false,
            Self::List(it) | Self::Stat(it) | Self::OwnWatch(it) | Self::Own(it) => it == member,
            Self::Blocker(it, _) => it == member,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Probe,
    Parents(Vec<usize>),
    /// A create, and once it is carried out what is known.
    Enter(Vec<usize>, Option<Entering>),
    Search(Vec<usize>),
    Commit,
    List(usize),
    Read(u8),
    Watch(u8),
    /// The client sets a watch again over another connection, in any order.
    Rewatch(u8),
    Delete(Vec<u8>),
}

/// A create that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Entering {
    pub(super) entries: Vec<Entry>,
    /// Members still to be listed.
    pub(super) unlisted: Vec<usize>,
    /// Nodes that were in front when they were listed.
    pub(super) shown: Vec<u8>,
}

/// A request that was sent; without a slot nobody waits for the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) slot: Option<Slot>,
    pub(super) what: What,
    /// Sent before the deadline passed: its answer does not move that on.
    pub(super) is_old: bool,
}

impl Request {
    pub(super) fn new(slot: Option<Slot>, what: What) -> Self {
        Self {
            slot,
            what,
            is_old: false,
        }
    }
}

/// A reply or a watch event on its way to the contender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) slot: Slot,
    pub(super) event: Event,
    pub(super) arrived: bool,
    pub(super) is_old: bool,
    /// Own nodes that were in front when this was generated.
    pub(super) front: Vec<u8>,
    /// Own nodes that this shows, and that were in front when they were looked at.
    pub(super) shown: Vec<u8>,
}

impl Item {
    /// Whether the request had to be committed for this.
    pub(super) fn is_committed(&self) -> bool {
        matches!(
            self.event,
            Event::Entered(_)
                | Event::NoParent
                | Event::WriterGone(_)
                | Event::ParentsMade
                | Event::Searched(_)
                | Event::Committed
        )
    }
}

/// `armed::Made`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    Nothing,
    With,
    Node(u8),
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Link {
    /// A server of the quorum.
    Up,
    /// Nobody.
    Down,
    /// A leader that was deposed and has not noticed: it commits nothing, and shows what it knew.
    Stale,
}

/// Which deadlines of the session have passed, as its client knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Late {
    /// The one after the last answer of a leader.
    pub(super) by_leader: bool,
    /// The one after the last commit.
    pub(super) by_quorum: bool,
}

impl Late {
    pub(super) fn is_over(self) -> bool {
        self.by_leader || self.by_quorum
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Contender {
    pub(super) program: &'static [Op],
    pub(super) at: usize,
    pub(super) machine: Option<Acquire>,
    pub(super) targets: Vec<(u8, LockKind)>,
    pub(super) is_beside: bool,
    /// The session, of which only this contender makes nodes.
    pub(super) epoch: u8,
    /// The ensemble has ended the session, and the contender does not know.
    pub(super) is_expired: bool,
    pub(super) late: Late,
    /// So long has a leader not heard of the session that it may end it.
    pub(super) may_expire: bool,
    pub(super) link: Link,
    /// A session that was given up and has not expired; with a create that is on its way.
    pub(super) old: Option<Option<Vec<usize>>>,
    /// Transactions that the replica has not applied.
    pub(super) lag: usize,
    pub(super) pipe: Vec<Request>,
    pub(super) inbox: Vec<Item>,
    pub(super) watches: Vec<(Slot, u8)>,
    pub(super) slots: Vec<Slot>,
    pub(super) own_watches: Vec<bool>,
    pub(super) entering: Vec<usize>,
    pub(super) made: Vec<Made>,
    /// What the creates with the last uuid really made: what it finds.
    pub(super) entered: Vec<Vec<Lock>>,
    /// Own nodes that a listing has shown in front, or that were when something was heard while they
    /// were watched; since the last create and over this connection.
    pub(super) proved: Vec<u8>,
    /// What the state machine grants, and own nodes that were in front when the latest of all that
    /// was taken was generated; the driver has yet to look whether anything speaks against it.
    pub(super) granting: Option<(Vec<Node>, Vec<u8>)>,
    /// Grant by grant.
    pub(super) held: Vec<Vec<Lock>>,
    /// What the clean-up is to delete.
    pub(super) doomed: Vec<u8>,
}

impl Contender {
    pub(super) fn new(program: &'static [Op]) -> Self {
        let mut contender = Self {
            program,
            at: 0,
            machine: None,
            targets: Vec::new(),
            is_beside: false,
            epoch: 1,
            is_expired: false,
            late: Late::default(),
            may_expire: false,
            link: Link::Up,
            old: None,
            lag: 0,
            pipe: Vec::new(),
            inbox: Vec::new(),
            watches: Vec::new(),
            slots: Vec::new(),
            own_watches: Vec::new(),
            entering: Vec::new(),
            made: Vec::new(),
            entered: Vec::new(),
            proved: Vec::new(),
            granting: None,
            held: Vec::new(),
            doomed: Vec::new(),
        };
        contender.begin();
        contender
    }

    pub(super) fn number(&mut self, number: u8) {
        let held = self.held.iter_mut().flatten();
        held.chain(self.entered.iter_mut().flatten())
            .for_each(|lock| lock.client = number);
        self.doomed.sort_unstable();
    }

    pub(super) fn is_done(&self) -> bool {
        self.machine.is_none() && self.at >= self.program.len()
    }

    /// The node that a downgrade goes beside.
    pub(super) fn writer(&self) -> Option<&Lock> {
        self.held.first()?.first()
    }

    /// Starts the acquire that comes next; a release waits for its turn.
    pub(super) fn begin(&mut self) {
        let (targets, place, patience) = match self.program.get(self.at) {
            Some(Op::Acquire(targets, patience)) => (targets.to_vec(), Place::Tail, *patience),
            Some(Op::Beside) => {
                let Some(writer) = self.writer() else {
                    self.at = self.program.len();
                    return;
                };
                let session = i64::from(self.epoch);
                let targets = vec![(writer.dir, LockKind::Read)];
                (targets, Place::Beside { session }, Patience::Wait)
            }
            Some(Op::ReleaseFirst) | None => return,
        };
        self.is_beside = place != Place::Tail;
        self.made = vec![Made::Nothing; targets.len()];
        self.entered = vec![Vec::new(); targets.len()];
        self.own_watches = vec![false; targets.len()];
        self.machine = Some(Acquire::new(
            targets.iter().map(|(_, kind)| (*kind, place)),
            patience,
        ));
        self.targets = targets;
        let started = self.step(Event::SessionStarted(i64::from(self.epoch)));
        assert_eq!(started, None, "ends before anything was asked");
    }

    /// Releases what it holds longest; nothing, where that is lost.
    pub(super) fn release(&mut self) {
        let released: Vec<_> = if self.held.is_empty() {
            Vec::new()
        } else {
            self.held.remove(0).iter().map(|it| it.id).collect()
        };
        if !released.is_empty() {
            self.pipe.push(Request::new(None, What::Delete(released)));
        }
        self.at += 1;
        self.begin();
    }

    /// Puts an event to the state machine and carries out what it says, except the end, which is
    /// returned.
    pub(super) fn step(&mut self, event: Event) -> Option<Action> {
        let actions = self.machine.as_mut().unwrap().step(event);
        for action in actions {
            match action {
                Action::Grant(_) | Action::Busy | Action::Fail(_) => return Some(action),
                action => self.carry_out(action),
            }
        }
        None
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Probe => self.start(Slot::Members, What::Probe),
            Action::Enter(members) => {
                for member in &members {
                    // One uuid for all creates until a node is known.
                    if self.made[*member] != Made::With {
                        self.entered[*member].clear();
                    }
                    self.made[*member] = Made::With;
                    self.forget(*member);
                }
                self.entering.clone_from(&members);
                self.start(Slot::Members, What::Enter(members, None));
            }
            Action::MakeParents(members) => self.start(Slot::Members, What::Parents(members)),
            Action::Search(members) => self.start(Slot::Members, What::Search(members)),
            Action::Adopt(member, name) => self.made[member] = Made::Node(id_of(&name)),
            Action::Commit => self.start(Slot::Members, What::Commit),
            Action::List(member) => self.start(Slot::List(member), What::List(member)),
            Action::Stat(member) => {
                if let Made::Node(id) = self.made[member] {
                    self.start(Slot::Stat(member), What::Read(id));
                }
            }
            Action::WatchOwn(member) => {
                let slot = Slot::OwnWatch(member);
                if let Made::Node(id) = self.made[member] {
                    if !self.own_watches[member] && !self.slots.contains(&slot) {
                        self.start(slot, What::Watch(id));
                    }
                }
            }
            Action::Watch(member, names) => self.watch(member, &names),
            Action::Withdraw(nodes) => {
                for (member, name) in nodes {
                    self.made[member] = Made::Nothing;
                    self.doomed.push(id_of(&name));
                    self.forget(member);
                }
            }
            Action::Grant(_) | Action::Busy | Action::Fail(_) => {}
        }
    }

    fn watch(&mut self, member: usize, names: &[String]) {
        let marks: Vec<_> = names.iter().map(|name| Mark::of(name)).collect();
        self.drop_slots(|slot| match slot {
            Slot::Blocker(it, mark) => *it == member && !marks.contains(mark),
            _ => false,
        });
        for mark in marks {
            let slot = Slot::Blocker(member, mark);
            if !self.slots.contains(&slot) {
                self.start(slot, What::Watch(mark.id));
            }
        }
    }

    fn start(&mut self, slot: Slot, what: What) {
        let mut under_way = self.pipe.iter().filter(|it| it.slot == Some(Slot::Members));
        let replaces = under_way.any(|it| it.what != What::Commit) && slot == Slot::Members;
        assert!(!replaces, "a request for several members is replaced");
        self.drop_slots(|it| *it == slot);
        self.slots.push(slot);
        self.pipe.push(Request::new(Some(slot), what));
    }

    fn forget(&mut self, member: usize) {
        self.drop_slots(|slot| slot.is_of(member));
        self.own_watches[member] = false;
    }

    fn drop_slots(&mut self, which: impl Fn(&Slot) -> bool) {
        self.slots.retain(|slot| !which(slot));
        self.pipe
            .retain(|it| !it.slot.is_some_and(|slot| which(&slot)));
        self.inbox.retain(|it| !which(&it.slot));
        // The own watch belongs to the request that sets it until that is answered.
        let is_dropped = |slot: &Slot| match slot {
            Slot::Own(member) if !self.own_watches[*member] => which(&Slot::OwnWatch(*member)),
            slot => which(slot),
        };
        self.watches.retain(|(slot, _)| !is_dropped(slot));
    }

    /// Ends the attempt; what it has made is handed to the clean-up, and a create that is under
    /// way finds nobody to tell.
    pub(super) fn end(&mut self) -> Option<Vec<usize>> {
        let held = self.held.drain(..).flatten();
        self.doomed.extend(held.map(|lock| lock.id));
        for (made, entered) in self.made.iter().zip(&self.entered) {
            let ids = match made {
                Made::Nothing => Vec::new(),
                Made::With => entered.iter().map(|lock| lock.id).collect(),
                Made::Node(id) => vec![*id],
            };
            self.doomed.extend(ids);
        }
        self.doomed.sort_unstable();
        self.doomed.dedup();
        let mut creation = None;
        for request in self.pipe.drain(..) {
            match request.what {
                What::Enter(members, None) => creation = Some(members),
                What::Delete(ids) => self.doomed.extend(ids),
                _ => {}
            }
        }
        self.clear();
        creation
    }

    /// Forgets the flight.
    pub(super) fn clear(&mut self) {
        self.pipe.retain(|it| matches!(it.what, What::Delete(_)));
        self.inbox.clear();
        self.watches.clear();
        self.slots.clear();
        self.proved.clear();
        self.granting = None;
        self.own_watches.fill(false);
        self.made.fill(Made::Nothing);
        self.entered.fill(Vec::new());
    }

    /// The next session serves from now on; what was held is lost.
    pub(super) fn next_epoch(&mut self) -> Option<Action> {
        self.epoch += 1;
        self.lag = 0;
        self.is_expired = false;
        self.late = Late::default();
        self.may_expire = false;
        self.link = Link::Up;
        self.machine.as_ref()?;
        self.step(Event::SessionStarted(i64::from(self.epoch)))
    }

    /// The items that the driver may take next: it looks at its own nodes first, then at one slot after
    /// the other, and things may arrive in between. When a slot is ready it looks at its own nodes
    /// again.
    pub(super) fn takeable(&self) -> Vec<usize> {
        if self.link == Link::Down || self.granting.is_some() {
            return Vec::new();
        }
        let there = self.there();
        let ranks: Vec<_> = self.inbox.iter().map(|it| self.rank(&it.slot)).collect();
        let is_first = |(index, rank): (usize, &Option<(bool, usize)>)| {
            let (is_slot, _) = (*rank)?;
            let arrived = ranks.iter().take(there).flatten();
            let mut seen_before = arrived.filter(|it| it.0 == is_slot);
            let is_first = seen_before.all(|it| Some(*it) >= *rank);
            let arrived = ranks.iter().take(there.max(index + 1)).flatten();
            let mut own = arrived.filter(|(is_slot, _)| !is_slot);
            (is_first && !(is_slot && own.next().is_some())).then_some(index)
        };
        ranks.iter().enumerate().filter_map(is_first).collect()
    }

    /// How many items have arrived for sure.
    pub(super) fn there(&self) -> usize {
        self.inbox.iter().filter(|it| it.arrived).count()
    }

    /// Own nodes come before all slots; `None` where nobody waits for it any more.
    fn rank(&self, slot: &Slot) -> Option<(bool, usize)> {
        match slot {
            Slot::Own(member) => self.own_watches[*member].then_some((false, *member)),
            slot => {
                let index = self.slots.iter().position(|it| it == slot);
                index.map(|index| (true, index))
            }
        }
    }

    /// News of own nodes that are on their way, the first member's first.
    pub(super) fn own_news(&self) -> Option<usize> {
        let ranked = self.inbox.iter().enumerate();
        ranked
            .filter_map(|(index, it)| Some((self.rank(&it.slot)?, index)))
            .filter(|((is_slot, _), _)| !is_slot)
            .min()
            .map(|(_, index)| index)
    }

    /// Takes that item; returns what it tells the state machine, and the own nodes that were in front.
    pub(super) fn take(&mut self, index: usize) -> (Event, Vec<u8>) {
        let there = self.there().max(index + 1);
        let arrived = self.inbox.iter_mut().take(there);
        arrived.for_each(|it| it.arrived = true);
        let item = self.inbox.remove(index);
        if item.is_committed() && !item.is_old {
            self.renew();
        }
        let Item {
            slot,
            event,
            front,
            shown,
            ..
        } = item;
        // What was generated earlier and is read later is read with this known.
        for earlier in self.inbox.iter_mut().take(index) {
            earlier.front.clone_from(&front);
        }
        match slot {
            Slot::Own(member) => self.own_watches[member] = false,
            slot => self.slots.retain(|it| *it != slot),
        }
        match &event {
            Event::OwnWatched(member) => self.own_watches[*member] = true,
            Event::Searched(_) => self.proved.clear(),
            Event::Entered(entries) => {
                self.proved.clear();
                for (member, entry) in self.entering.iter().zip(entries) {
                    self.made[*member] = Made::Node(id_of(&entry.node.name));
                }
            }
            _ => {}
        }
        let mine = self.made.iter().zip(&self.own_watches);
        let watched = mine.filter_map(|(made, is_watched)| match made {
            Made::Node(id) if *is_watched && front.contains(id) => Some(*id),
            _ => None,
        });
        self.proved.extend(watched);
        self.proved.extend(shown);
        self.proved.sort_unstable();
        self.proved.dedup();
        (event, front)
    }

    /// A quorum has answered in time.
    pub(super) fn renew(&mut self) {
        self.late = Late::default();
        self.pipe.iter_mut().for_each(|it| it.is_old = false);
        self.inbox.iter_mut().for_each(|it| it.is_old = false);
    }

    /// A deadline has passed: what is held is lost.
    pub(super) fn lapse(&mut self) {
        self.pipe.iter_mut().for_each(|it| it.is_old = true);
        self.inbox.iter_mut().for_each(|it| it.is_old = true);
        let held = self.held.drain(..).flatten();
        self.doomed.extend(held.map(|lock| lock.id));
    }

    /// The connection is lost, and with it all that has not arrived: what can be repeated is.
    pub(super) fn disconnect(&mut self, received: usize) {
        self.link = Link::Down;
        let lost = self.inbox.split_off(received);
        self.inbox.iter_mut().for_each(|it| it.arrived = true);
        let mut unknown = Vec::new();
        let mut pipe = Vec::new();
        for (slot, id) in self.watches.drain(..) {
            pipe.push(Request::new(Some(slot), What::Rewatch(id)));
        }
        for Item { slot, event, .. } in lost {
            let made = |member: usize| match self.made[member] {
                Made::Node(id) => id,
                Made::Nothing | Made::With => 0,
            };
            let what = match (slot, &event) {
                (Slot::List(member), _) => What::List(member),
                (Slot::Stat(member), _) => What::Read(made(member)),
                (Slot::OwnWatch(member), _) => What::Watch(made(member)),
                (Slot::Own(member), _) => What::Rewatch(made(member)),
                (Slot::Blocker(_, mark), _) => What::Rewatch(mark.id),
                (_, Event::Probed(_)) => What::Probe,
                (_, Event::ParentsMade) => What::Parents(self.entering.clone()),
                (_, Event::Searched(_)) => What::Search(self.entering.clone()),
                (_, Event::Committed) => What::Commit,
                (Slot::Members, _) => {
                    unknown.push(Event::EnterUnknown);
                    continue;
                }
            };
            pipe.push(Request::new(Some(slot), what));
        }
        for request in self.pipe.drain(..) {
            match request.what {
                What::Enter(_, None) => unknown.push(Event::EnterUnknown),
                What::Enter(_, Some(Entering { entries, .. })) => {
                    unknown.push(Event::Entered(entries));
                }
                _ => pipe.push(request),
            }
        }
        self.pipe = pipe;
        for event in unknown {
            self.inbox.push(Item {
                slot: Slot::Members,
                event,
                arrived: true,
                is_old: false,
                front: Vec::new(),
                shown: Vec::new(),
            });
        }
    }

    /// The driver hears that the connection is another one, before anything of it: as
    /// `Flight::outdate`.
    pub(super) fn reconnected(&mut self) -> Option<Action> {
        self.drop_slots(|slot| *slot != Slot::Members);
        self.own_watches.fill(false);
        self.proved.clear();
        self.granting = None;
        for item in &mut self.inbox {
            if let Event::Entered(_) = &item.event {
                item.shown.clear();
            }
        }
        self.machine.as_ref()?;
        self.step(Event::Reconnected)
    }
}
