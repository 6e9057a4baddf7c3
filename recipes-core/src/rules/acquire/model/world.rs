//! Contenders and the ensemble together: what can happen next.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::connection::Link;
use super::contender::Contender;
use super::ensemble::{Change, Ensemble, Lock, Stranger};
use super::faults::Fault;
use super::requests::{Request, What};
use super::*;

/// How far a replica may lag, in transactions.
pub(super) const LAG_MAX: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) ensemble: Ensemble,
    pub(super) contenders: Vec<Contender>,
    pub(super) faults_left: u8,
    /// How many nodes an operator may delete, in addition to other faults.
    pub(super) strikes_left: u8,
    /// How many nodes of other clients may come.
    pub(super) strangers_left: u8,
    /// How many times an empty directory may be reaped, in addition to other faults.
    pub(super) reaps_left: u8,
    /// Nodes that an operator has deleted. Their holders are not notified at once.
    pub(super) struck: Vec<u8>,
    /// Whether things may happen between a grant and the driver's last look at it.
    pub(super) has_late_looks: bool,
    /// What was wrong with the last step.
    pub(super) broken: Option<&'static str>,
}

/// One step; the first number is the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Its first request takes effect, at a replica that has applied this many more transactions.
    Serve(usize, usize),
    /// The watch at this position is set again.
    Rewatch(usize, usize),
    /// Its replica applies this many transactions, the last of which fires a watch.
    Apply(usize, usize),
    /// The item at this position is taken.
    Take(usize, usize),
    /// The driver takes its last look before a grant; everything in flight has arrived, or not.
    Doubt(usize, bool),
    /// An operator deletes a node, in addition to other faults.
    Strike(u8),
    /// Another client makes a node.
    Come(Stranger),
    /// Another client deletes its node.
    Leave(u8),
    /// The server reaps an empty directory, in addition to other faults.
    Reap(usize),
    /// It releases.
    Release(usize),
    /// The clean-up deletes a node.
    CleanUp(usize, u8),
    /// It learns that its session has ended.
    Learn(usize),
    /// The ensemble ends a session that has been silent for too long.
    Expire(usize),
    /// Its heartbeat is answered.
    Beat(usize),
    /// It connects again, to a replica that lags this far.
    Reconnect(usize, usize),
    /// Its last commit is so old that a new leader may end the session.
    Outlive(usize),
    /// The deposed leader notices, and its clients lose their connection.
    Notice(usize),
    /// The session that it gave up expires.
    ExpireOld(usize),
    /// A create from a session that it gave up takes effect.
    ServeOld(usize),
    Fault(Fault),
}

impl World {
    pub(super) fn new(locks: &Locks) -> Self {
        let mut ensemble = Ensemble::default();
        ensemble.dirs.resize_with(locks.dirs, Default::default);
        (ensemble.wraps, ensemble.tells_first) = (locks.wraps, locks.tells_first);
        for dir in &mut ensemble.dirs {
            (dir.exists, dir.next) = (!locks.is_bare, locks.first);
        }
        let contenders = locks.programs.iter().map(|it| Contender::new(it));
        Self {
            ensemble,
            contenders: contenders.collect(),
            faults_left: locks.faults,
            strikes_left: locks.strikes,
            strangers_left: locks.strangers.0,
            reaps_left: locks.reaps,
            struck: Vec::new(),
            has_late_looks: matches!(
                locks.trouble,
                Trouble::Sessions | Trouble::Connections | Trouble::Leaders | Trouble::Forgets
            ),
            broken: None,
        }
    }

    /// Everything that can happen without a fault.
    pub(super) fn steps(&self, steps: &mut Vec<Step>) {
        let at_once = |it: &Contender| {
            it.inbox.len() == 1
                && it.slots.len() == 1
                && it.watches.is_empty()
                && it.pipe.is_empty()
                && it.takeable() == [0]
        };
        // Nothing can overtake a single answer, and taking it changes nothing at the ensemble.
        if let Some(contender) = self.contenders.iter().position(at_once) {
            steps.push(Step::Take(contender, 0));
            return;
        }
        let strangers = self.ensemble.locks.iter().filter(|it| it.is_strange());
        steps.extend(strangers.map(|it| Step::Leave(it.id)));
        for (index, it) in self.contenders.iter().enumerate() {
            self.requests(index, it, steps);
            steps.extend(it.takeable().iter().map(|at| Step::Take(index, *at)));
            if it.granting.is_some() {
                steps.push(Step::Doubt(index, false));
                if it.own_news().is_some() {
                    steps.push(Step::Doubt(index, true));
                }
            }
            if it.is_expired {
                steps.push(Step::Learn(index));
                continue;
            }
            steps.extend(it.may_expire.then_some(Step::Expire(index)));
            match it.link {
                Link::Up => {
                    steps.extend(it.doomed.iter().map(|id| Step::CleanUp(index, *id)));
                    steps.extend(it.late.is_over().then_some(Step::Beat(index)));
                }
                Link::Down => {
                    steps.extend((0..=it.lag).map(|lag| Step::Reconnect(index, lag)));
                    continue;
                }
                Link::Stale => {
                    steps.push(Step::Notice(index));
                    steps.extend((!it.may_expire).then_some(Step::Outlive(index)));
                }
            }
            if it.machine.is_none() && !it.is_done() {
                steps.push(Step::Release(index));
            }
            if let Some(creation) = &it.old {
                steps.push(Step::ExpireOld(index));
                steps.extend(creation.is_some().then_some(Step::ServeOld(index)));
            }
        }
    }

    /// What the ensemble may answer or report.
    fn requests(&self, index: usize, it: &Contender, steps: &mut Vec<Step>) {
        let is_rewatch = |request: &Request| matches!(request.what, What::Rewatch(_));
        let is_served = match it.link {
            Link::Up => !it.is_expired,
            Link::Down => false,
            Link::Stale => true,
        };
        let first = it.pipe.first().filter(|_| is_served);
        if first.is_some_and(is_rewatch) {
            let watches = it.pipe.iter().take_while(|it| is_rewatch(it));
            steps.extend((0..watches.count()).map(|at| Step::Rewatch(index, at)));
        } else if let Some(request) = first {
            let is_read = match &request.what {
                What::Enter(_, known) => known.is_some(),
                What::Probe | What::Find(_) | What::List(_) | What::Read(_) | What::Watch(_) => {
                    true
                }
                _ => false,
            };
            let ahead = if is_read { it.lag } else { 0 };
            match it.link {
                Link::Stale if is_read => steps.push(Step::Serve(index, 0)),
                Link::Stale => {}
                _ => steps.extend((0..=ahead).map(|ahead| Step::Serve(index, ahead))),
            }
        }
        if it.link == Link::Up {
            steps.extend(self.fires(it).map(|ahead| Step::Apply(index, ahead)));
        }
    }

    /// How many transactions a replica applies until one fires a watch.
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
                self.serve(index, 0);
            }
            Step::Rewatch(index, at) => self.serve(index, at),
            Step::Apply(index, ahead) => self.apply(index, ahead),
            Step::Take(index, at) => self.take(index, at),
            Step::Doubt(index, has_arrived) => {
                if has_arrived {
                    let inbox = &mut self.contenders[index].inbox;
                    inbox.iter_mut().for_each(|it| it.arrived = true);
                }
                self.doubt(index);
            }
            Step::Strike(_) | Step::Come(_) | Step::Leave(_) | Step::Reap(_) => {
                self.take_step_of_others(step);
            }
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
            Step::Expire(index) => self.expire(index),
            Step::Beat(index) => {
                self.contenders[index].renew();
                self.contenders[index].may_expire = false;
            }
            Step::Reconnect(index, lag) => {
                let it = &mut self.contenders[index];
                (it.link, it.lag) = (Link::Up, lag);
                let end = it.reconnected();
                self.concluded(index, end);
            }
            Step::Outlive(index) => {
                let it = &mut self.contenders[index];
                it.late.by_quorum = true;
                it.may_expire = true;
                it.lapse();
            }
            Step::Notice(index) => {
                let received = self.contenders[index].inbox.len();
                self.disconnect(index, received, false);
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

    fn take_step_of_others(&mut self, step: Step) {
        match step {
            Step::Strike(id) => {
                self.strikes_left -= 1;
                self.struck.push(id);
                self.delete(&[id]);
            }
            Step::Come(stranger) => {
                self.strangers_left -= 1;
                if let Some(node) = self.ensemble.make_strange(stranger) {
                    self.commit(vec![Change::Made(node)]);
                }
            }
            Step::Leave(id) => self.delete(&[id]),
            Step::Reap(dir) => {
                self.reaps_left -= 1;
                self.ensemble.reap(dir);
            }
            _ => {}
        }
    }

    /// Contenders differ only by what they do, not by their number: one order stands for all.
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

    pub(super) fn commit(&mut self, changes: Vec<Change>) {
        self.ensemble.commit(changes);
        for index in 0..self.contenders.len() {
            let it = &mut self.contenders[index];
            it.lag = match it.link {
                Link::Stale => it.lag + 1,
                _ if it.is_expired => 0,
                // Another replica, of which nothing is known yet.
                Link::Down => LAG_MAX,
                Link::Up => it.lag + 1,
            };
            if self.contenders[index].link == Link::Up {
                self.apply(index, self.contenders[index].lag.saturating_sub(LAG_MAX));
            }
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

    fn expire(&mut self, index: usize) {
        let epoch = self.contenders[index].epoch;
        self.end_sessions(index, |it| it == epoch);
        let it = &mut self.contenders[index];
        it.is_expired = true;
        if it.link != Link::Stale {
            it.pipe.clear();
            it.watches.clear();
            it.lag = 0;
        }
    }
}
