//! How a contender is connected, and which deadlines of its session have passed.

use super::contender::{Contender, Made};
use super::requests::{Entering, Item, Request, Slot, What};
use super::*;

/// Which server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Link {
    /// A server of the quorum.
    Up,
    /// None.
    Down,
    /// A leader that was deposed and has not noticed: it commits nothing, and shows what it knew.
    Stale,
}

/// Which deadlines of the session have passed, as its client knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Late {
    /// The deadline after the last answer of a leader.
    pub(super) by_leader: bool,
    /// The deadline after the last commit.
    pub(super) by_quorum: bool,
}

impl Late {
    pub(super) fn is_over(self) -> bool {
        self.by_leader || self.by_quorum
    }
}

impl Contender {
    /// The next session serves from now on; all that was held is lost.
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

    /// A quorum has answered in time.
    pub(super) fn renew(&mut self) {
        self.late = Late::default();
        self.pipe.iter_mut().for_each(|it| it.is_old = false);
        self.inbox.iter_mut().for_each(|it| it.is_old = false);
    }

    /// A deadline has passed: all that was held is lost.
    pub(super) fn lapse(&mut self) {
        self.pipe.iter_mut().for_each(|it| it.is_old = true);
        self.inbox.iter_mut().for_each(|it| it.is_old = true);
        let held = self.held.drain(..).flatten();
        self.doomed.extend(held.map(|lock| lock.id));
    }

    /// The connection is lost, and with it everything that has not arrived. Requests that can be
    /// repeated are sent again.
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

    /// The driver learns that the connection is a new one, before anything arrives on it: as
    /// `InFlight::outdate` and `InFlight::note`.
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
        let forgot = std::mem::take(&mut self.forgot);
        self.machine.as_ref()?;
        self.step(Event::Reconnected { forgot })
    }
}
