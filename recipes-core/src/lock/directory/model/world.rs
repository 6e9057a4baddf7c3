//! Contenders of one session, other clients, and what can happen next.

use super::connection::{Connection, Message};
use super::contender::{Hearing, Stage, Watch};
use super::ensemble::{Directory, Made, Whose};
use super::*;
use crate::rules::vacancy::RUN_MIN;

pub(super) const OURS: usize = 2;

/// The transaction that created the first directory.
const MADE: i64 = 10;

/// How many times each may happen in a run: creates of ours and of others, directories deleted,
/// connections lost, sessions given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    pub(super) ours: u8,
    pub(super) theirs: u8,
    pub(super) remakes: u8,
    pub(super) breaks: u8,
    pub(super) expiries: u8,
    /// Which of our contenders read, and whether other clients do.
    pub(super) our_readers: [bool; OURS],
    pub(super) they_read: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) directory: Option<Directory>,
    /// The last transaction.
    pub(super) zxid: i64,
    pub(super) connection: Connection,
    /// How many times the connection has changed.
    pub(super) changes: u8,
    pub(super) known: Known,
    /// The watch that the shipped code keeps.
    pub(super) watch: Option<Watch>,
    pub(super) ours: [Stage; OURS],
    /// What may still happen.
    pub(super) left: Bounds,
    /// What was wrong with the last grant by a number.
    pub(super) broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Enter(usize),
    /// It takes its answers.
    Take(usize),
    /// The queue admits it.
    Admit(usize),
    Release(usize),
    /// It drops its guard; the clean-up deletes the node.
    Drop(usize),
    CarryOut,
    Deliver,
    TheyEnter,
    /// A node of another client, or one that was given up, is deleted.
    Leave(usize),
    Reap,
    /// The directory is re-created. Nodes have come and gone since, up to this number; the last may
    /// have stayed.
    Remake(i32, bool),
    /// This many of the requests in flight are lost.
    Break(usize),
    Reconnect,
    /// Our session is given up, and a new one starts.
    Expire,
}

impl World {
    /// The session has had so many nodes in the directory, each alone, that it wants a watch there.
    pub(super) fn new(left: Bounds) -> Self {
        let run = i32::from(RUN_MIN);
        let mut world = Self {
            zxid: MADE + i64::from(RUN_MIN),
            directory: Some(Directory::new(MADE, run)),
            connection: Connection::default(),
            changes: 0,
            known: Known::default(),
            watch: None,
            ours: [Stage::Away, Stage::Away],
            left,
            broken: None,
        };
        for (number, czxid) in (0..run).zip(MADE + 1..) {
            world.ask(|vacancy| vacancy.left(Made { number, czxid }.sole()));
        }
        world
    }

    /// The session has just set the watch.
    pub(super) fn watched(left: Bounds) -> Self {
        let mut world = Self::new(left);
        if let Some(directory) = &mut world.directory {
            directory.is_watched = true;
        }
        world.watch(Some(Watch::new(MADE, 0)));
        world
    }

    /// As [`watched`](Self::watched), and a node of the previous directory is still to be reported.
    pub(super) fn late(left: Bounds) -> Self {
        let mut world = Self::watched(left);
        let made = Made {
            number: i32::from(RUN_MIN),
            czxid: MADE - 1,
        };
        world.ours[0] = Stage::Releasing {
            sole: Some(made.sole()),
            is_deleted: true,
        };
        world
    }

    pub(super) fn is_holding(&self, contender: usize) -> bool {
        matches!(self.ours[contender], Stage::Holding { .. })
    }

    pub(super) fn is_doubly_held(&self) -> bool {
        let holding: Vec<_> = (0..OURS).filter(|it| self.is_holding(*it)).collect();
        let reads = |it: &usize| self.left.our_readers[*it];
        let among_ours = holding.len() > 1 && !holding.iter().all(reads);
        let is_held_against = |it: &usize| {
            let directory = self.directory.as_ref();
            directory.is_some_and(|directory| directory.is_held_against(reads(it)))
        };
        among_ours || holding.iter().any(is_held_against)
    }

    pub(super) fn steps(&self, steps: &mut Vec<Step>) {
        if self.is_over() {
            return;
        }
        (0..OURS).for_each(|it| self.steps_of(it, steps));
        let Connection {
            is_down,
            requests,
            messages,
        } = &self.connection;
        if !is_down && !requests.is_empty() {
            steps.push(Step::CarryOut);
        }
        if !messages.is_empty() {
            steps.push(Step::Deliver);
        }
        match &self.directory {
            Some(directory) => {
                let children = directory.children.iter().enumerate();
                let others = children.filter(|(_, it)| !matches!(it.whose, Whose::Ours(_)));
                steps.extend(others.map(|(index, _)| Step::Leave(index)));
                if self.left.theirs > 0 {
                    steps.push(Step::TheyEnter);
                }
                if directory.children.is_empty() && self.left.remakes > 0 {
                    steps.push(Step::Reap);
                }
            }
            None => {
                let run = i32::from(RUN_MIN);
                let around = run - 1..run + 3;
                steps.push(Step::Remake(0, false));
                steps.extend(around.clone().map(|it| Step::Remake(it, false)));
                steps.extend(around.map(|it| Step::Remake(it, true)));
            }
        }
        if *is_down {
            steps.push(Step::Reconnect);
        } else if self.left.breaks > 0 {
            steps.extend((0..=requests.len()).map(Step::Break));
        }
        if self.left.expiries > 0 {
            steps.push(Step::Expire);
        }
    }

    /// Whether an earlier contender might do the same instead.
    fn is_like_another(&self, contender: usize) -> bool {
        let readers = &self.left.our_readers;
        let is_alike =
            |it: usize| self.ours[it] == self.ours[contender] && readers[it] == readers[contender];
        (0..contender).any(is_alike)
    }

    fn steps_of(&self, contender: usize, steps: &mut Vec<Step>) {
        match &self.ours[contender] {
            Stage::Away if self.left.ours > 0 && !self.is_like_another(contender) => {
                steps.push(Step::Enter(contender));
            }
            Stage::Entering(it) if it.is_answered() => steps.push(Step::Take(contender)),
            Stage::Waiting { .. } => {
                let directory = self.directory.as_ref();
                if directory.is_some_and(|it| it.admits_ours(contender)) {
                    steps.push(Step::Admit(contender));
                }
            }
            Stage::Holding { .. } => {
                steps.extend([Step::Release(contender), Step::Drop(contender)]);
            }
            Stage::Releasing {
                is_deleted: true, ..
            } => steps.push(Step::Take(contender)),
            Stage::Away | Stage::Entering(_) | Stage::Releasing { .. } => {}
        }
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Enter(contender) => self.enter(contender),
            Step::Take(contender) => self.take_answer(contender),
            Step::Admit(contender) => self.admit(contender),
            Step::Release(contender) => self.release(contender),
            Step::Drop(contender) => self.give_up(contender),
            Step::CarryOut => self.carry_out(),
            Step::Deliver => self.deliver(),
            Step::TheyEnter => {
                self.left.theirs -= 1;
                let they_read = self.left.they_read;
                if let Some(directory) = &mut self.directory {
                    directory.create(Whose::Theirs, they_read);
                }
            }
            Step::Leave(index) => {
                if let Some(directory) = &mut self.directory {
                    directory.children.remove(index);
                }
            }
            Step::Reap => self.reap(),
            Step::Remake(count, has_stayed) => {
                self.zxid += 1;
                let mut directory = Directory::new(self.zxid, count);
                if has_stayed {
                    directory.count -= 1;
                    directory.create(Whose::Theirs, self.left.they_read);
                }
                self.directory = Some(directory);
            }
            Step::Break(lost) => self.disconnect(lost),
            Step::Reconnect => self.reconnect(),
            Step::Expire => self.expire(),
        }
    }

    fn reap(&mut self) {
        self.left.remakes -= 1;
        if let Some(directory) = self.directory.take().filter(|it| it.is_watched) {
            let fired = Message::Fired(directory.czxid);
            self.connection.messages.push_back(fired);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let is_away = |it: &Stage| *it == Stage::Away;
        self.ours.iter().all(is_away) && self.left.ours == 0
    }

    /// The next number seems to follow the last node, but another node is ahead of it.
    fn is_taken_in(&self) -> Option<(&Watch, &Directory)> {
        let (watch, directory) = (self.watch.as_ref()?, self.directory.as_ref()?);
        let follows = self.known.last()?.is_followed_by(directory.count);
        (follows && !directory.children.is_empty()).then_some((watch, directory))
    }

    /// The same in a re-created directory, and our session has not been notified of that.
    pub(super) fn is_behind(&self) -> bool {
        let is_older = |(watch, directory): (&Watch, &Directory)| watch.czxid < directory.czxid;
        self.is_taken_in().is_some_and(is_older)
    }

    /// The same in a re-created directory, and our session will never be notified of that.
    pub(super) fn is_deaf(&self) -> bool {
        let is_deaf = |(watch, _): (&Watch, &Directory)| watch.hearing == Hearing::IsDeaf;
        self.is_behind() && self.is_taken_in().is_some_and(is_deaf)
    }

    /// The watch is right, but the last node was in the previous directory.
    pub(super) fn remembers_another(&self) -> bool {
        let is_same = |(watch, directory): (&Watch, &Directory)| watch.czxid == directory.czxid;
        let is_past = |(watch, _): (&Watch, &Directory)| {
            self.known.last().is_some_and(|it| it.czxid < watch.czxid)
        };
        self.is_taken_in()
            .is_some_and(|it| is_same(it) && is_past(it))
    }

    /// A node has been deleted, and its contender reports it after a later one.
    pub(super) fn is_told_late(&self) -> bool {
        let last = self.known.last();
        self.ours.iter().any(|it| match it {
            Stage::Releasing {
                sole: Some(sole),
                is_deleted: true,
            } => sole.czxid > MADE && last.is_some_and(|it| it.czxid > sole.czxid),
            _ => false,
        })
    }
}
