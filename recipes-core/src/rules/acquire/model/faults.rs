//! The faults that the model explores.

use super::connection::Link;
use super::contender::{Contender, Made};
use super::ensemble::{Change, conflict};
use super::requests::{Request, What};
use super::world::{Step, World};
use super::*;

/// Which faults a run may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Nothing,
    /// Lost and repeated requests, and attempts that are dropped.
    Requests,
    /// Requests that are refused, for the moment or for good, and creates whose reply is lost.
    Refusals,
    /// Sessions that end.
    Sessions,
    /// Other clients that delete and change nodes, and directories that are reaped.
    Others,
    /// Connections that are lost and come back.
    Connections,
    /// Leaders that are deposed and do not notice.
    Leaders,
    /// An operator's deletion that the store forgets, before the node's maker learns of it.
    Forgets,
}

/// A fault; a run has a bounded number of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// The reply of a create is lost, and it took effect or not; or a listing's answer is lost.
    LoseReply(usize, bool),
    /// A read is sent again, after what was sent since.
    Resend(usize),
    /// A request is refused for the moment.
    Throttle(usize),
    /// A request is refused for good.
    Refuse(usize),
    /// No answer comes for so long that the session may be over.
    Silence(usize),
    /// The connection is lost after this many items, and a create takes effect or not.
    Disconnect(usize, usize, bool),
    /// The leader that answers it is deposed and has not noticed, or it connects to such a leader.
    Depose(usize),
    /// The client gives up its session before the ensemble ends it.
    GiveUp(usize),
    /// The attempt is dropped.
    Cancel(usize),
    /// An operator deletes a node.
    Delete(u8),
    /// An operator deletes a node, and the store may forget that.
    DeleteUnsaved(u8),
    /// The store is started again without that deletion. All connections are lost.
    Forget,
    /// Another client changes the data of a node.
    Change(u8),
    /// The server reaps an empty directory.
    Reap(usize),
}

impl Locks {
    /// What others may do in addition to all faults.
    pub(super) fn meddle(&self, world: &World, steps: &mut Vec<Step>) {
        if world.strikes_left > 0 {
            for lock in &world.ensemble.locks {
                steps.push(Step::Strike(lock.id));
            }
        }
        if world.strangers_left > 0 && world.ensemble.dirs.iter().all(|dir| dir.exists) {
            let strangers = self.strangers.1.iter().copied();
            steps.extend(strangers.map(Step::Come));
        }
        if world.reaps_left > 0 {
            steps.extend(world.ensemble.reapable().map(Step::Reap));
        }
    }

    pub(super) fn faults(&self, world: &World, steps: &mut Vec<Step>) {
        if world.faults_left == 0 {
            return;
        }
        let contenders = world.contenders.iter().enumerate();
        let mut add = |fault| steps.push(Step::Fault(fault));
        match self.trouble {
            Trouble::Nothing => {}
            Trouble::Requests => contenders.for_each(|(index, it)| {
                let request = it.pipe.first().filter(|it| it.slot.is_some());
                match request.map(|it| &it.what) {
                    Some(What::Enter(_, known)) => {
                        add(Fault::LoseReply(index, true));
                        if known.is_none() {
                            add(Fault::LoseReply(index, false));
                        }
                    }
                    Some(_) if it.pipe.len() > 1 => add(Fault::Resend(index)),
                    _ => {}
                }
                if it.machine.is_some() {
                    add(Fault::Cancel(index));
                }
            }),
            Trouble::Refusals => contenders.for_each(|(index, it)| {
                refusals(index, it).into_iter().for_each(&mut add);
            }),
            Trouble::Sessions => contenders.for_each(|(index, it)| {
                if !it.is_done() && !it.is_expired {
                    if !it.late.is_over() {
                        add(Fault::Silence(index));
                    }
                    if it.old.is_none() && it.machine.is_some() {
                        add(Fault::GiveUp(index));
                    }
                }
            }),
            Trouble::Others => {
                for lock in &world.ensemble.locks {
                    add(Fault::Delete(lock.id));
                    add(Fault::Change(lock.id));
                }
                let reapable = world.ensemble.reapable();
                reapable.for_each(|dir| add(Fault::Reap(dir)));
            }
            Trouble::Forgets => {
                let locks = world.ensemble.locks.iter();
                locks.for_each(|lock| add(Fault::DeleteUnsaved(lock.id)));
                if world.may_forget() {
                    add(Fault::Forget);
                }
            }
            Trouble::Connections => contenders.for_each(|(index, it)| {
                disconnections(index, it).into_iter().for_each(&mut add);
            }),
            Trouble::Leaders => contenders.for_each(|(index, it)| {
                if !it.is_done() && !it.is_expired && it.link != Link::Stale {
                    add(Fault::Depose(index));
                }
                disconnections(index, it).into_iter().for_each(&mut add);
            }),
        }
    }
}

/// The ways in which the first request of a contender can be refused, or a create lost.
fn refusals(index: usize, it: &Contender) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Some(Request { what, slot, .. }) = it.pipe.first() else {
        return faults;
    };
    match what {
        // The node is made, and its listing is refused.
        What::Enter(_, Some(_)) => return vec![Fault::LoseReply(index, true)],
        What::Enter(..) if slot.is_some() => {
            faults.extend([true, false].map(|is_made| Fault::LoseReply(index, is_made)));
        }
        _ => {}
    }
    // A request alone is only answered later, as any may be. A search goes on after its commit.
    if it.pipe.len() > 1 || matches!(what, What::Search(_)) {
        faults.push(Fault::Throttle(index));
    }
    if slot.is_some() {
        faults.push(Fault::Refuse(index));
    }
    faults
}

/// The ways in which a contender can lose its connection.
fn disconnections(index: usize, it: &Contender) -> Vec<Fault> {
    let mut faults = Vec::new();
    if it.machine.is_none() || it.is_expired || it.link != Link::Up {
        return faults;
    }
    let is_create = |it: &What| matches!(it, What::Enter(..));
    let is_entering = it.pipe.iter().any(|it| is_create(&it.what));
    for received in it.there()..=it.inbox.len() {
        faults.push(Fault::Disconnect(index, received, false));
        if is_entering {
            faults.push(Fault::Disconnect(index, received, true));
        }
    }
    faults
}

impl World {
    /// Whether the maker of the node believes in it, which would delete it otherwise, and nobody else was
    /// granted what it takes.
    fn may_forget(&self) -> bool {
        let Some(lock) = &self.ensemble.unsaved else {
            return false;
        };
        let maker = &self.contenders[usize::from(lock.client)];
        let held = |it: &Contender| it.held.iter().flatten().any(|it| it.id == lock.id);
        let waits = maker.machine.is_some() && maker.made.contains(&Made::Node(lock.id));
        let is_there = maker.epoch == lock.epoch && !maker.is_expired;
        let mut all_held = self
            .contenders
            .iter()
            .flat_map(|it| it.held.iter().flatten());
        // Tokens of a queue of which an operator has taken somebody out, and into which he is back, do not rise.
        let is_last = self.ensemble.dirs[usize::from(lock.dir)].tokens.1 < lock.czxid;
        let is_believed = is_there && (waits || held(maker));
        is_believed && is_last && !all_held.any(|it| conflict(it, lock))
    }

    fn forget(&mut self) {
        let Some(lock) = self.ensemble.unsaved.take() else {
            return;
        };
        self.struck.retain(|it| *it != lock.id);
        self.ensemble.locks.push(lock);
        self.ensemble.log.clear();
        for index in 0..self.contenders.len() {
            let it = &self.contenders[index];
            if it.link == Link::Up && !it.is_expired {
                self.disconnect(index, it.there(), false);
                self.contenders[index].forgot = true;
            }
            self.contenders[index].lag = 0;
        }
    }

    pub(super) fn go_wrong(&mut self, fault: Fault) {
        match fault {
            Fault::LoseReply(index, takes_effect) => self.lose_reply(index, takes_effect),
            Fault::Resend(index) => self.contenders[index].pipe.rotate_left(1),
            Fault::Silence(index) => {
                let it = &mut self.contenders[index];
                it.late.by_leader = true;
                it.may_expire = true;
                it.lapse();
            }
            Fault::Disconnect(index, received, takes_effect) => {
                self.disconnect(index, received, takes_effect);
            }
            Fault::Depose(index) => {
                let it = &mut self.contenders[index];
                if std::mem::replace(&mut it.link, Link::Stale) == Link::Down {
                    let end = it.reconnected();
                    self.concluded(index, end);
                }
            }
            Fault::GiveUp(index) => {
                let it = &mut self.contenders[index];
                let creation = it.end();
                // If the clean-up deleted what is left, that would be no more than an early expiry.
                it.doomed.clear();
                it.old = Some(creation);
                let end = it.next_epoch();
                self.ended(index, end);
            }
            Fault::Cancel(index) => {
                let it = &mut self.contenders[index];
                if let Some(members) = it.end() {
                    it.pipe.push(Request::new(None, What::Enter(members, None)));
                }
                it.machine = None;
                it.at = it.program.len();
            }
            Fault::Delete(id) => {
                self.struck.push(id);
                self.delete(&[id]);
            }
            Fault::DeleteUnsaved(id) => {
                let lock = self.ensemble.lock(id).cloned();
                self.struck.push(id);
                self.delete(&[id]);
                self.ensemble.unsaved = lock;
            }
            Fault::Forget => self.forget(),
            Fault::Change(id) => self.commit(vec![Change::Data(id)]),
            Fault::Reap(dir) => self.ensemble.reap(dir),
            Fault::Throttle(index) => self.throttle(index),
            Fault::Refuse(index) => self.refuse(index),
        }
    }
}
