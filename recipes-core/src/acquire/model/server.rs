//! What the requests of a contender do at the ensemble, and what it is told.

use super::contender::{Item, Request, Slot, What};
use super::ensemble::{Change, Lock, is_front};
use super::world::World;
use super::*;

impl World {
    /// The replica of a contender applies transactions, and tells what is watched.
    pub(super) fn apply(&mut self, index: usize, ahead: usize) {
        for _ in 0..ahead {
            let it = &mut self.contenders[index];
            let position = self.ensemble.log.len() - it.lag;
            it.lag -= 1;
            for change in self.ensemble.log[position].clone() {
                let (id, is_gone) = match change {
                    Change::Made(_) => continue,
                    Change::Gone(lock) => (lock.id, true),
                    Change::Data(id) => (id, false),
                };
                let watches = &mut self.contenders[index].watches;
                let fired: Vec<_> = watches.iter().filter(|it| it.1 == id).cloned().collect();
                watches.retain(|it| it.1 != id);
                for (slot, _) in fired {
                    self.tell(index, slot, watched(slot, is_gone));
                }
            }
        }
    }

    fn tell(&mut self, index: usize, slot: Slot, event: Event) {
        let front = self.prove(index);
        self.contenders[index].inbox.push(Item {
            slot,
            event,
            arrived: false,
            front,
        });
    }

    /// The own nodes that are in front as the replica shows it.
    fn prove(&mut self, index: usize) -> Vec<u8> {
        let it = &mut self.contenders[index];
        let seen = self.ensemble.seen(it.lag);
        let own = it.entered.iter().flatten().map(|lock| lock.id);
        let front: Vec<_> = own.filter(|id| is_front(&seen, *id)).collect();
        it.proved.extend(&front);
        it.proved.sort_unstable();
        it.proved.dedup();
        front
    }

    pub(super) fn serve(&mut self, index: usize) {
        let Request { slot, what } = self.contenders[index].pipe.remove(0);
        let event = match what {
            What::Enter(members, None) => return self.create(index, slot, members),
            What::Enter(members, Some((entries, unlisted))) => {
                return self.list_entry(index, members, entries, unlisted, true);
            }
            What::Delete(ids) => {
                self.delete(&ids);
                return self.apply_all(index);
            }
            What::Probe => {
                let targets = 0..self.contenders[index].targets.len();
                Event::Probed(targets.map(|member| self.list(index, member)).collect())
            }
            What::Parents(members) => {
                for member in members {
                    let dir = usize::from(self.contenders[index].targets[member].0);
                    self.ensemble.dirs[dir].exists = true;
                }
                Event::ParentsMade
            }
            What::Search(members) => {
                // It begins with a commit.
                self.apply_all(index);
                let it = &self.contenders[index];
                let made = |member: &usize| it.entered[*member].iter().map(|lock| lock.id);
                let find = |member| {
                    made(member)
                        .filter_map(|id| self.found(index, id))
                        .collect()
                };
                Event::Searched(members.iter().map(find).collect())
            }
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

    fn found(&self, index: usize, id: u8) -> Option<Found> {
        let it = &self.contenders[index];
        let seen = self.ensemble.seen(it.lag);
        seen.iter().find(|lock| lock.id == id).map(|lock| Found {
            name: lock.name(),
            owner: i64::from(lock.epoch),
            czxid: i64::from(lock.czxid),
        })
    }

    fn list(&self, index: usize, member: usize) -> Vec<String> {
        let it = &self.contenders[index];
        let dir = it.targets[member].0;
        let seen = self.ensemble.seen(it.lag);
        let seen = seen.iter().filter(|lock| lock.dir == dir);
        seen.map(Lock::name).collect()
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
            let mut lock = self.ensemble.make(dir, kind, client, epoch);
            lock.czxid = locks.first().map_or(lock.czxid, |first: &Lock| first.czxid);
            if let Some(writer) = &writer {
                self.ensemble.dirs[usize::from(dir)].next -= 1;
                lock.sequence = writer.sequence;
            }
            locks.push(lock);
        }
        self.commit(locks.iter().cloned().map(Change::Made).collect());
        Ok(locks)
    }

    fn create(&mut self, index: usize, slot: Option<Slot>, members: Vec<usize>) {
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
        if slot.is_none() {
            it.doomed.extend(locks.iter().map(|lock| lock.id));
            return;
        }
        for (member, lock) in members.iter().zip(&locks) {
            it.entered[*member] = Some(lock.clone());
        }
        // A transaction may not tell its number.
        let is_alone = members.len() == 1 && !it.is_beside;
        let entry = |lock: &Lock| Entry {
            node: Node {
                name: lock.name(),
                czxid: is_alone.then_some(i64::from(lock.czxid)),
            },
            children: None,
        };
        let entries = locks.iter().map(entry).collect();
        if it.is_beside {
            self.tell(index, Slot::Members, Event::Entered(entries));
        } else {
            let unlisted = (0..members.len()).collect();
            let what = What::Enter(members, Some((entries, unlisted)));
            it.pipe.insert(0, Request { slot, what });
        }
    }

    /// Lists the directory of one node that was made.
    fn list_entry(
        &mut self,
        index: usize,
        members: Vec<usize>,
        mut entries: Vec<Entry>,
        mut unlisted: Vec<usize>,
        is_answered: bool,
    ) {
        let next = unlisted.remove(0);
        if is_answered {
            entries[next].children = Some(self.list(index, members[next]));
            self.prove(index);
        }
        if unlisted.is_empty() {
            self.tell(index, Slot::Members, Event::Entered(entries));
        } else {
            let slot = Some(Slot::Members);
            let what = What::Enter(members, Some((entries, unlisted)));
            self.contenders[index]
                .pipe
                .insert(0, Request { slot, what });
        }
    }

    pub(super) fn lose_reply(&mut self, index: usize, takes_effect: bool) {
        match self.contenders[index].pipe.remove(0).what {
            What::Enter(members, Some((entries, unlisted))) => {
                self.list_entry(index, members, entries, unlisted, false);
            }
            What::Enter(members, None) => {
                if takes_effect {
                    let epoch = self.contenders[index].epoch;
                    if let Ok(locks) = self.make(index, epoch, &members) {
                        for (member, lock) in members.iter().zip(&locks) {
                            self.contenders[index].entered[*member] = Some(lock.clone());
                        }
                    }
                }
                self.tell(index, Slot::Members, Event::EnterUnknown);
            }
            _ => {}
        }
    }

    pub(super) fn serve_old(&mut self, index: usize) {
        let Some(Some(members)) = self.contenders[index].old.replace(None) else {
            return;
        };
        let epoch = self.contenders[index].epoch - 1;
        // Refused or not, nobody is told.
        drop(self.make(index, epoch, &members));
    }
}

/// What a watch tells.
fn watched(slot: Slot, is_gone: bool) -> Event {
    match slot {
        Slot::Own(member) if is_gone => Event::OwnGone(member),
        Slot::Own(member) => Event::OwnChanged(member),
        Slot::Blocker(member, mark) if is_gone => Event::BlockerGone(member, mark.name()),
        _ => Event::BlockerChanged,
    }
}
