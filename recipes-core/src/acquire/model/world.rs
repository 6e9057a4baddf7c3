//! Contenders and the ensemble together: what can happen next.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::contender::{Contender, Op, Request, What};
use super::ensemble::{Change, Ensemble, Lock, id_of, is_front};
use super::*;

/// How far a replica may lag, in transactions.
const LAG_MAX: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) ensemble: Ensemble,
    pub(super) contenders: Vec<Contender>,
    pub(super) faults_left: u8,
    /// What was wrong with the last step.
    pub(super) broken: Option<&'static str>,
}

/// One step; the first number is the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Its first request takes effect, at a replica that has applied so many transactions more.
    Serve(usize, usize),
    /// Its replica applies so many transactions, the last of which fires a watch.
    Apply(usize, usize),
    /// So many items have arrived, and one is taken.
    Take(usize, usize),
    /// It releases.
    Release(usize),
    /// The clean-up deletes a node.
    CleanUp(usize, u8),
    /// It learns that its session has ended.
    Learn(usize),
    /// The session that it gave up expires.
    ExpireOld(usize),
    /// A create from a session that it gave up takes effect.
    ServeOld(usize),
    Fault(Fault),
}

/// What goes wrong, a bounded number of times in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// The outcome of a create is lost, and whether it took effect; or a listing's answer.
    LoseReply(usize, bool),
    /// A read is sent again, behind what was sent since.
    Resend(usize),
    /// The ensemble expires the session.
    Expire(usize),
    /// The client gives its session up first.
    GiveUp(usize),
    /// The attempt is dropped.
    Cancel(usize),
    /// An operator deletes a node.
    Delete(u8),
    /// Somebody changes the data of a node.
    Change(u8),
    /// The server reaps an empty directory.
    Reap(usize),
}

impl World {
    pub(super) fn new(programs: &[&'static [Op]], dirs: usize, faults: u8) -> Self {
        let mut ensemble = Ensemble::default();
        ensemble.dirs.resize_with(dirs, Default::default);
        ensemble.dirs.iter_mut().for_each(|dir| dir.exists = true);
        Self {
            ensemble,
            contenders: programs.iter().map(|it| Contender::new(it)).collect(),
            faults_left: faults,
            broken: None,
        }
    }

    /// Everything that happens without anything going wrong.
    pub(super) fn steps(&self, steps: &mut Vec<Step>) {
        let at_once = |it: &Contender| {
            it.inbox.len() == 1
                && it.slots.len() == 1
                && it.watches.is_empty()
                && it.pipe.is_empty()
        };
        // Nothing can overtake a single answer, and taking it changes nothing at the ensemble.
        if let Some(contender) = self.contenders.iter().position(at_once) {
            steps.push(Step::Take(contender, 1));
            return;
        }
        for (index, it) in self.contenders.iter().enumerate() {
            if let Some(request) = it.pipe.first().filter(|_| !it.is_expired) {
                let is_read = match &request.what {
                    What::Enter(_, known) => known.is_some(),
                    What::Probe | What::List(_) | What::Read(_) | What::Watch(_) => true,
                    What::Parents(_) | What::Search(_) | What::Delete(_) => false,
                };
                let ahead = if is_read { it.lag } else { 0 };
                steps.extend((0..=ahead).map(|ahead| Step::Serve(index, ahead)));
            }
            steps.extend(self.fires(it).map(|ahead| Step::Apply(index, ahead)));
            let mut picked = None;
            let there = it.inbox.iter().filter(|it| it.arrived).count();
            for arrived in there.max(1)..=it.inbox.len() {
                let pick = it.pick(arrived);
                if pick.is_some() && pick != picked {
                    steps.push(Step::Take(index, arrived));
                    picked = pick;
                }
            }
            if it.is_expired {
                steps.push(Step::Learn(index));
                continue;
            }
            steps.extend(it.doomed.iter().map(|id| Step::CleanUp(index, *id)));
            if it.machine.is_none() && !it.is_done() {
                steps.push(Step::Release(index));
            }
            if let Some(creation) = &it.old {
                steps.push(Step::ExpireOld(index));
                steps.extend(creation.is_some().then_some(Step::ServeOld(index)));
            }
        }
    }

    /// How many transactions a replica applies until it fires a watch.
    fn fires(&self, it: &Contender) -> Option<usize> {
        let behind = self.ensemble.log.len() - it.lag;
        let fires = |change: &Change| match change {
            Change::Made(_) => false,
            Change::Gone(Lock { id, .. }) | Change::Data(id) => {
                it.watches.iter().any(|(_, watched)| watched == id)
            }
        };
        let pending = &self.ensemble.log[behind..];
        let first = pending.iter().position(|it| it.iter().any(fires));
        first.map(|first| first + 1)
    }

    pub(super) fn take_step(&mut self, step: Step) {
        match step {
            Step::Serve(index, ahead) => {
                self.apply(index, ahead);
                self.serve(index);
            }
            Step::Apply(index, ahead) => self.apply(index, ahead),
            Step::Take(index, arrived) => self.take(index, arrived),
            Step::Release(index) => self.contenders[index].release(),
            Step::CleanUp(index, id) => {
                self.contenders[index].doomed.retain(|it| *it != id);
                self.delete(&[id]);
                self.apply_all(index);
            }
            Step::Learn(index) => {
                let it = &mut self.contenders[index];
                it.end();
                let end = it.next_epoch();
                self.ended(index, end);
            }
            Step::ExpireOld(index) => {
                self.contenders[index].old = None;
                let epoch = self.contenders[index].epoch;
                self.end_sessions(index, |it| it < epoch);
            }
            Step::ServeOld(index) => self.serve_old(index),
            Step::Fault(fault) => {
                self.faults_left -= 1;
                self.go_wrong(fault);
            }
        }
        self.trim();
        self.put_in_order();
    }

    /// Contenders differ by what they do only, not by their number: one order stands for all.
    fn put_in_order(&mut self) {
        for it in &mut self.contenders {
            it.number(u8::MAX);
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        let mut contenders: Vec<_> = self.contenders.drain(..).enumerate().collect();
        contenders.sort_by_cached_key(|(_, it)| hash.hash_one(it));
        let mut numbers = vec![0; contenders.len()];
        for (number, (old, mut it)) in (0..).zip(contenders) {
            numbers[old] = number;
            it.number(number);
            self.contenders.push(it);
        }
        self.ensemble.renumber(&numbers);
    }

    fn go_wrong(&mut self, fault: Fault) {
        match fault {
            Fault::LoseReply(index, takes_effect) => self.lose_reply(index, takes_effect),
            Fault::Resend(index) => self.contenders[index].pipe.rotate_left(1),
            Fault::Expire(index) => {
                let epoch = self.contenders[index].epoch;
                self.end_sessions(index, |it| it == epoch);
                let it = &mut self.contenders[index];
                it.is_expired = true;
                it.pipe.clear();
                it.watches.clear();
                // Its validity has passed before.
                it.held.clear();
            }
            Fault::GiveUp(index) => {
                let it = &mut self.contenders[index];
                let creation = it.end();
                // That the clean-up deletes what is left is no more than an early expiry.
                it.doomed.clear();
                it.old = Some(creation);
                let end = it.next_epoch();
                self.ended(index, end);
            }
            Fault::Cancel(index) => {
                let it = &mut self.contenders[index];
                if let Some(members) = it.end() {
                    let (slot, what) = (None, What::Enter(members, None));
                    it.pipe.push(Request { slot, what });
                }
                it.machine = None;
                it.at = it.program.len();
            }
            Fault::Delete(id) => self.delete(&[id]),
            Fault::Change(id) => self.commit(vec![Change::Data(id)]),
            Fault::Reap(dir) => {
                let dir = &mut self.ensemble.dirs[dir];
                (dir.exists, dir.next) = (false, 0);
            }
        }
    }

    pub(super) fn commit(&mut self, changes: Vec<Change>) {
        self.ensemble.commit(changes);
        for index in 0..self.contenders.len() {
            let it = &mut self.contenders[index];
            it.lag = if it.is_expired { 0 } else { it.lag + 1 };
            self.apply(index, self.contenders[index].lag.saturating_sub(LAG_MAX));
        }
    }

    fn trim(&mut self) {
        let lag_max = self.contenders.iter().map(|it| it.lag).max().unwrap_or(0);
        let known = self.ensemble.log.len().saturating_sub(lag_max);
        self.ensemble.log.drain(..known);
        for it in &mut self.contenders {
            it.doomed.retain(|id| self.ensemble.lock(*id).is_some());
        }
    }

    pub(super) fn delete(&mut self, ids: &[u8]) {
        let locks = ids.iter().filter_map(|id| self.ensemble.lock(*id).cloned());
        let gone: Vec<_> = locks.map(Change::Gone).collect();
        if !gone.is_empty() {
            self.commit(gone);
        }
    }

    fn end_sessions(&mut self, client: usize, which: impl Fn(u8) -> bool) {
        let locks = self.ensemble.locks.iter();
        let theirs = locks.filter(|it| usize::from(it.client) == client && which(it.epoch));
        let ids: Vec<_> = theirs.map(|it| it.id).collect();
        self.delete(&ids);
    }

    pub(super) fn apply_all(&mut self, index: usize) {
        self.apply(index, self.contenders[index].lag);
    }

    fn take(&mut self, index: usize, arrived: usize) {
        let it = &mut self.contenders[index];
        it.inbox
            .iter_mut()
            .take(arrived)
            .for_each(|it| it.arrived = true);
        let there = it.inbox.iter().filter(|it| it.arrived).count();
        let Some(pick) = it.pick(there) else { return };
        let front = it.inbox[pick].front.clone();
        let event = it.take(pick);
        let end = it.step(event);
        match end {
            // The deadline does not lie ahead.
            Some(Action::Grant(_)) if it.is_expired => it.inbox.clear(),
            Some(Action::Grant(nodes)) => self.granted(index, &nodes, &front),
            end => self.ended(index, end),
        }
    }

    fn ended(&mut self, index: usize, end: Option<Action>) {
        let Some(end) = end else { return };
        let it = &mut self.contenders[index];
        if let Action::Fail(_) = end {
            let has_writer = it
                .writer()
                .is_some_and(|it| self.ensemble.lock(it.id).is_some());
            if !it.is_beside || has_writer {
                self.broken = Some("fails without need");
            }
        }
        it.end();
        it.machine = None;
        it.at = it.program.len();
    }

    /// Checks a grant at the moment in which it is made.
    fn granted(&mut self, index: usize, nodes: &[Node], front: &[u8]) {
        let it = &mut self.contenders[index];
        let mut held = Vec::new();
        for (member, node) in nodes.iter().enumerate() {
            let id = id_of(&node.name);
            if !it.proved.contains(&id) {
                self.broken = Some("granted without ever having been in front");
            }
            let is_certain = it.own_watches[member] || nodes.len() == 1;
            if is_certain && !front.contains(&id) {
                self.broken = Some("granted by what was generated when it was not in front");
            }
            let made = it.entered[member].clone().filter(|lock| lock.id == id);
            let Some(lock) = made else {
                self.broken = Some("granted with the node of another create");
                return;
            };
            // It may have been deleted since.
            let exists = self.ensemble.lock(id).is_some();
            if exists && !is_front(&self.ensemble.locks, id) {
                self.broken = Some("granted behind a node that conflicts");
            }
            if node.czxid != Some(i64::from(lock.czxid)) {
                self.broken = Some("granted with a token of another node");
            }
            let tokens = &mut self.ensemble.dirs[usize::from(lock.dir)].tokens;
            let is_reader = lock.kind == LockKind::Read;
            let earlier = if is_reader { tokens.0 } else { tokens.1 };
            if exists && lock.czxid <= earlier && !it.is_beside {
                self.broken = Some("token does not rise");
            }
            if !it.is_beside {
                // That one keeps its writer's token.
                tokens.1 = tokens.1.max(lock.czxid);
            }
            if !is_reader {
                tokens.0 = tokens.0.max(lock.czxid);
            }
            held.push(lock);
        }
        it.held.push(held);
        it.clear();
        it.machine = None;
        it.at += 1;
        it.begin();
    }
}
