//! What the requests of a contender do at the ensemble, and what it gets back.

use super::connection::Link;
use super::ensemble::{Change, Lock, is_front};
use super::requests::{Entering, Item, Request, Slot, What};
use super::world::{LAG_MAX, World};
use super::*;

impl World {
    /// The replica of a contender applies transactions, and fires watches.
    pub(super) fn apply(&mut self, index: usize, ahead: usize) {
        for _ in 0..ahead {
            let it = &mut self.contenders[index];
            let position = self.ensemble.log.len() - it.lag;
            it.lag -= 1;
            for change in self.ensemble.log[position].clone() {
                let lag = self.contenders[index].lag;
                let (id, is_gone, was_first) = match change {
                    Change::Made(_) => continue,
                    Change::Gone(lock) => (lock.id, true, self.ensemble.tells_of_first(&lock, lag)),
                    Change::Data(id) => (id, false, false),
                };
                let watches = &mut self.contenders[index].watches;
                let fired: Vec<_> = watches.iter().filter(|it| it.1 == id).cloned().collect();
                watches.retain(|it| it.1 != id);
                for (slot, _) in fired {
                    let event = match watched(slot, is_gone) {
                        Event::BlockerGone(member, name) if was_first => {
                            Event::FirstGone(member, name)
                        }
                        event => event,
                    };
                    self.tell(index, slot, event);
                }
            }
        }
    }

    fn tell(&mut self, index: usize, slot: Slot, event: Event) {
        let shown = match (&event, &slot) {
            (Event::Listed(member, _), _) => self.front_beside(index, *member),
            // A reader next to its writer is in front as soon as it exists.
            (Event::Entered(_) | Event::Searched(_), _) if self.contenders[index].is_beside => {
                self.front_of_locks(index)
            }
            _ => Vec::new(),
        };
        self.tell_shown(index, slot, event, shown);
    }

    fn tell_shown(&mut self, index: usize, slot: Slot, event: Event, shown: Vec<u8>) {
        let mut front = self.front_of_locks(index);
        if let Event::Listed(member, _) = event {
            // A contender waits for everything that is listed ahead.
            let it = &self.contenders[index];
            let listed = it.entered.iter().zip(&it.targets);
            let listed = listed.filter(|(_, target)| target.0 == it.targets[member].0);
            let listed: Vec<_> = listed.flat_map(|(entered, _)| entered).collect();
            let is_behind = |id: &u8| listed.iter().any(|it| it.id == *id) && !shown.contains(id);
            front.retain(|id| !is_behind(id));
        }
        self.contenders[index].inbox.push(Item {
            slot,
            event,
            arrived: false,
            is_old: false,
            front,
            shown,
        });
    }

    /// The own nodes that are in front among all lock nodes, as the replica shows it. Other nodes
    /// may come ahead at any time.
    fn front_of_locks(&self, index: usize) -> Vec<u8> {
        let it = &self.contenders[index];
        let mut seen = self.ensemble.seen(it.lag);
        seen.retain(|lock| lock.mark().is_lock());
        let own = it.entered.iter().flatten().map(|lock| lock.id);
        own.filter(|id| is_front(&seen, *id)).collect()
    }

    /// The own nodes of some members that are in front, as the replica shows it.
    fn front(&self, index: usize, which: impl Fn(usize) -> bool) -> Vec<u8> {
        let it = &self.contenders[index];
        let seen = self.ensemble.seen(it.lag);
        let own = it.entered.iter().enumerate();
        let own = own.filter(|(member, _)| which(*member));
        let own = own.flat_map(|(_, locks)| locks).map(|lock| lock.id);
        own.filter(|id| is_front(&seen, *id)).collect()
    }

    /// Carries out the request at this position. The answer counts from its sending.
    pub(super) fn serve(&mut self, index: usize, position: usize) {
        let told = self.contenders[index].inbox.len();
        let is_old = self.contenders[index].pipe[position].is_old;
        self.serve_request(index, position);
        let it = &mut self.contenders[index];
        let answers = it.inbox.iter_mut().skip(told);
        answers.for_each(|answer| answer.is_old = is_old);
        let was_asked = it.inbox.iter().skip(told).any(Item::is_committed);
        if was_asked && !is_old {
            it.may_expire = false;
        }
    }

    fn serve_request(&mut self, index: usize, position: usize) {
        let request = self.contenders[index].pipe.remove(position);
        let Request { slot, what, is_old } = request;
        let event = match what {
            What::Enter(members, None) => return self.create(index, slot, members, is_old),
            What::Enter(members, Some(entering)) => {
                return self.list_entry(index, members, entering, is_old, true);
            }
            What::Commit => {
                self.apply_all(index);
                Event::Committed
            }
            What::Rewatch(id) => return self.watch_again(index, slot, id),
            What::Delete(ids) => {
                self.delete(&ids);
                return self.apply_all(index);
            }
            What::Probe => {
                let targets = 0..self.contenders[index].targets.len();
                Event::Probed(targets.map(|member| self.list(index, member)).collect())
            }
            What::Parents(mut members) => {
                // One parent after the other.
                let it = &mut self.contenders[index];
                let dir = usize::from(it.targets[members.remove(0)].0);
                self.ensemble.dirs[dir].exists = true;
                if !members.is_empty() {
                    let what = What::Parents(members);
                    it.pipe.insert(0, Request { slot, what, is_old });
                    return;
                }
                Event::ParentsMade
            }
            What::Search(members) => {
                // A search begins with a commit.
                self.apply_all(index);
                self.find(index, &members)
            }
            What::Find(members) => self.find(index, &members),
            What::List(member) => Event::Listed(member, self.list(index, member)),
            What::Read(id) => {
                let Some(Slot::Stat(member)) = slot else {
                    return;
                };
                Event::Stated(member, self.found(index, id))
            }
            What::Watch(id) => return self.watch(index, slot, id),
        };
        if let Some(slot) = slot {
            self.tell(index, slot, event);
        }
    }

    /// Searches for the nodes that creates of these members have made.
    fn find(&self, index: usize, members: &[usize]) -> Event {
        let made = |member: &usize| self.contenders[index].entered[*member].iter();
        let find = |member| {
            let found = made(member).filter_map(|lock| self.found(index, lock.id));
            found.collect()
        };
        Event::Searched(members.iter().map(find).collect())
    }

    /// The server reports what has happened to a node since, or watches it.
    fn watch_again(&mut self, index: usize, slot: Option<Slot>, id: u8) {
        let Some(slot) = slot else { return };
        if self.found(index, id).is_some() {
            self.contenders[index].watches.push((slot, id));
        } else {
            self.tell(index, slot, watched(slot, true));
        }
    }

    fn found(&self, index: usize, id: u8) -> Option<Found> {
        let it = &self.contenders[index];
        let seen = self.ensemble.seen(it.lag);
        seen.iter().find(|lock| lock.id == id).map(|lock| Found {
            name: lock.mark().name(),
            owner: i64::from(lock.epoch),
            czxid: i64::from(lock.czxid),
        })
    }

    fn list(&self, index: usize, member: usize) -> Vec<String> {
        let it = &self.contenders[index];
        let dir = it.targets[member].0;
        let seen = self.ensemble.seen(it.lag);
        let seen = seen.iter().filter(|lock| lock.dir == dir);
        seen.map(|lock| lock.mark().name()).collect()
    }

    fn watch(&mut self, index: usize, slot: Option<Slot>, id: u8) {
        let Some(slot) = slot else { return };
        let watch = match slot {
            Slot::OwnWatch(member) => Slot::Own(member),
            slot => slot,
        };
        let exists = self.found(index, id).is_some();
        if exists {
            self.contenders[index].watches.push((watch, id));
        }
        match slot {
            Slot::OwnWatch(member) if exists => self.tell(index, slot, Event::OwnWatched(member)),
            _ if exists => {}
            Slot::OwnWatch(member) => self.tell(index, slot, Event::OwnGone(member)),
            slot => self.tell(index, slot, watched(slot, true)),
        }
    }

    /// Makes the nodes in one transaction; an event if nothing was made.
    fn make(&mut self, index: usize, epoch: u8, members: &[usize]) -> Result<Vec<Lock>, Event> {
        let it = &self.contenders[index];
        let writer = it.writer().filter(|_| it.is_beside).cloned();
        if it.is_beside
            && writer
                .as_ref()
                .is_none_or(|it| self.ensemble.lock(it.id).is_none())
        {
            return Err(Event::WriterGone(0));
        }
        let targets: Vec<_> = members.iter().map(|member| it.targets[*member]).collect();
        let exists = |target: &(u8, LockKind)| self.ensemble.dirs[usize::from(target.0)].exists;
        if !targets.iter().all(exists) {
            return Err(Event::NoParent);
        }
        let client = u8::try_from(index).unwrap();
        let mut locks = Vec::new();
        for (dir, kind) in targets {
            let sequence = match &writer {
                Some(writer) => writer.sequence,
                None => self.ensemble.count(dir),
            };
            let lock = self.ensemble.make(dir, kind, sequence);
            let czxid = locks.first().map_or(lock.czxid, |first: &Lock| first.czxid);
            locks.push(Lock {
                czxid,
                client,
                epoch,
                ..lock
            });
        }
        self.commit(locks.iter().cloned().map(Change::Made).collect());
        Ok(locks)
    }

    fn create(&mut self, index: usize, slot: Option<Slot>, members: Vec<usize>, is_old: bool) {
        let made = self.make(index, self.contenders[index].epoch, &members);
        self.apply_all(index);
        let it = &mut self.contenders[index];
        let locks = match made {
            Ok(locks) => locks,
            Err(event) => {
                if let Some(slot) = slot {
                    self.tell(index, slot, event);
                }
                return;
            }
        };
        // It is committed, whether the reply has a receiver or not.
        it.may_expire &= is_old;
        if slot.is_none() {
            it.doomed.extend(locks.iter().map(|lock| lock.id));
            return;
        }
        for (member, lock) in members.iter().zip(&locks) {
            it.entered[*member].push(lock.clone());
        }
        // The reply to a transaction may lack its number.
        let is_alone = members.len() == 1 && !it.is_beside;
        let entry = |lock: &Lock| Entry {
            node: Node {
                name: lock.mark().name(),
                czxid: is_alone.then_some(i64::from(lock.czxid)),
            },
            children: None,
        };
        let entries = locks.iter().map(entry).collect();
        if it.is_beside {
            self.tell(index, Slot::Members, Event::Entered(entries));
        } else {
            let entering = Entering {
                entries,
                unlisted: (0..members.len()).collect(),
                shown: Vec::new(),
            };
            let what = What::Enter(members, Some(entering));
            it.pipe.insert(0, Request { slot, what, is_old });
        }
    }

    /// The own nodes in front in the directory of a member.
    fn front_beside(&self, index: usize, member: usize) -> Vec<u8> {
        let targets = &self.contenders[index].targets;
        let directory = targets[member].0;
        self.front(index, |it| targets[it].0 == directory)
    }

    /// Lists the directory of one node that was made.
    fn list_entry(
        &mut self,
        index: usize,
        members: Vec<usize>,
        mut entering: Entering,
        is_old: bool,
        is_answered: bool,
    ) {
        let next = entering.unlisted.remove(0);
        if is_answered {
            let member = members[next];
            entering.entries[next].children = Some(self.list(index, member));
            entering.shown.extend(self.front_beside(index, member));
        }
        if entering.unlisted.is_empty() {
            let Entering { entries, shown, .. } = entering;
            self.tell_shown(index, Slot::Members, Event::Entered(entries), shown);
        } else {
            let slot = Some(Slot::Members);
            let what = What::Enter(members, Some(entering));
            let pipe = &mut self.contenders[index].pipe;
            pipe.insert(0, Request { slot, what, is_old });
        }
    }

    /// The server is overloaded and ignores a request, which is sent again after the later ones. Of
    /// a search it has carried out the commit.
    pub(super) fn throttle(&mut self, index: usize) {
        if let What::Search(members) = self.contenders[index].pipe[0].what.clone() {
            self.apply_all(index);
            self.contenders[index].pipe[0].what = What::Find(members);
        }
        self.contenders[index].pipe.rotate_left(1);
    }

    pub(super) fn lose_reply(&mut self, index: usize, takes_effect: bool) {
        let Request { what, is_old, .. } = self.contenders[index].pipe.remove(0);
        match what {
            What::Enter(members, Some(entering)) => {
                self.list_entry(index, members, entering, is_old, false);
            }
            What::Enter(members, None) => {
                if takes_effect {
                    self.make_unheard(index, &members);
                }
                self.tell(index, Slot::Members, Event::EnterUnknown);
            }
            _ => {}
        }
    }

    /// Carries out a create whose reply is lost.
    fn make_unheard(&mut self, index: usize, members: &[usize]) {
        let epoch = self.contenders[index].epoch;
        if let Ok(locks) = self.make(index, epoch, members) {
            for (member, lock) in members.iter().zip(&locks) {
                self.contenders[index].entered[*member].push(lock.clone());
            }
        }
    }

    /// A connection is lost after this many items that came over it.
    pub(super) fn disconnect(&mut self, index: usize, received: usize, takes_effect: bool) {
        let is_stale = self.contenders[index].link == Link::Stale;
        let mut creates = Vec::new();
        for request in &mut self.contenders[index].pipe {
            match &mut request.what {
                What::Enter(members, None) => creates.push(members.clone()),
                // The reply of this create has not arrived either.
                What::Enter(_, done @ Some(_)) if !takes_effect => {
                    *done = None;
                }
                _ => {}
            }
        }
        // A deposed leader carries nothing out.
        for members in creates.iter().filter(|_| takes_effect && !is_stale) {
            self.make_unheard(index, members);
        }
        let it = &mut self.contenders[index];
        it.disconnect(received);
        it.lag = it.lag.min(LAG_MAX);
    }

    pub(super) fn serve_old(&mut self, index: usize) {
        let Some(Some(members)) = self.contenders[index].old.replace(None) else {
            return;
        };
        let epoch = self.contenders[index].epoch - 1;
        // Refused or not, nothing receives the reply.
        drop(self.make(index, epoch, &members));
    }
}

/// The event that a watch reports.
fn watched(slot: Slot, is_gone: bool) -> Event {
    match slot {
        Slot::Own(member) if is_gone => Event::OwnGone(member),
        Slot::Own(member) => Event::OwnChanged(member),
        Slot::Blocker(member, mark) if is_gone => Event::BlockerGone(member, mark.name()),
        _ => Event::BlockerChanged,
    }
}
