//! One contender of the model: what the driver does with the shipped state machine.
//!
//! Slots, their order, what `forget` drops, what a new connection puts aside and when the own watch
//! counts are those of `flight::InFlight`.

use super::connection::{Late, Link};
use super::ensemble::Lock;
use super::names::{Mark, id_of};
use super::requests::{Item, Request, Slot, What};
use super::*;

/// What a contender does with its locks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Acquire a set, with the directory and the kind of each lock.
    Acquire(&'static [(u8, LockKind)], Patience),
    /// Acquire the reader next to the writer that is held, as the first half of a downgrade.
    Beside,
    /// Release what was granted first.
    ReleaseFirst,
}

/// As `leftovers::Made`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    Nothing,
    With,
    Node(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Contender {
    pub(super) program: &'static [Op],
    pub(super) at: usize,
    pub(super) machine: Option<AcquireMachine>,
    pub(super) targets: Vec<(u8, LockKind)>,
    pub(super) is_beside: bool,
    /// The session. Only this contender makes nodes in it.
    pub(super) epoch: u8,
    /// The ensemble has ended the session, and the contender does not know it.
    pub(super) is_expired: bool,
    pub(super) late: Late,
    /// A deadline has passed: the ensemble may end the session until it commits a newer request.
    pub(super) may_expire: bool,
    pub(super) link: Link,
    /// It is to go on with a store that has forgotten something.
    pub(super) forgot: bool,
    /// A session that was given up and has not expired, with the members of a create that is still
    /// in flight, if any.
    pub(super) old: Option<Option<Vec<usize>>>,
    /// Transactions that its replica has not applied.
    pub(super) lag: usize,
    pub(super) pipe: Vec<Request>,
    pub(super) inbox: Vec<Item>,
    pub(super) watches: Vec<(Slot, u8)>,
    pub(super) slots: Vec<Slot>,
    pub(super) own_watches: Vec<bool>,
    pub(super) entering: Vec<usize>,
    pub(super) made: Vec<Made>,
    /// The nodes that creates with the last uuid really made, which a search finds.
    pub(super) entered: Vec<Vec<Lock>>,
    /// Own nodes that a listing has shown in front, or that were in front when an event was
    /// generated while they were watched. Counts from the last create, and on this connection.
    pub(super) proved: Vec<u8>,
    /// What the state machine grants, and the own nodes that were in front when the latest event
    /// taken was generated. The driver has yet to take its last look.
    pub(super) granting: Option<(Vec<GrantedNode>, Vec<u8>)>,
    /// One entry for each grant.
    pub(super) held: Vec<Vec<Lock>>,
    /// Nodes that the clean-up is to delete.
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
            forgot: false,
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

    /// The writer's node that the reader of a downgrade goes next to.
    pub(super) fn writer(&self) -> Option<&Lock> {
        self.held.first()?.first()
    }

    /// Starts the next acquire. A release is a step of its own.
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
        let members = targets.iter().map(|(_, kind)| (*kind, place));
        let machine = AcquireMachine::new(members, patience);
        self.machine = Some(machine.with_permits(PERMITS));
        self.targets = targets;
        let started = self.step(Event::SessionStarted(i64::from(self.epoch)));
        assert_eq!(started, None, "ends before anything was asked");
    }

    /// Releases what it has held longest, or nothing if that is lost.
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

    /// Passes an event to the state machine and carries out the actions, except the end, which is
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
                    // All creates use one uuid until a node is known.
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
            Action::Gone(member) => self.made[member] = Made::Nothing,
            Action::Withdraw(nodes) => {
                for (member, name) in nodes {
                    self.made[member] = Made::Nothing;
                    self.doomed.push(id_of(&name));
                    self.forget(member);
                }
            }
            // The number of permits stays as it is.
            Action::HeedPermits(_) => {}
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

    pub(super) fn drop_slots(&mut self, which: impl Fn(&Slot) -> bool) {
        self.slots.retain(|slot| !which(slot));
        self.pipe
            .retain(|it| !it.slot.is_some_and(|slot| which(&slot)));
        self.inbox.retain(|it| !which(&it.slot));
        // Until the request that sets an own watch is answered, the watch belongs to it.
        let is_dropped = |slot: &Slot| match slot {
            Slot::Own(member) if !self.own_watches[*member] => which(&Slot::OwnWatch(*member)),
            slot => which(slot),
        };
        self.watches.retain(|(slot, _)| !is_dropped(slot));
    }

    /// Ends the attempt, and leaves its nodes to the clean-up. Returns the members of a create in
    /// flight, whose reply has no receiver any more.
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

    /// Forgets everything of the attempt except deletes in flight.
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
}
