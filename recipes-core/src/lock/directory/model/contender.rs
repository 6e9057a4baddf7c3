//! A contender of our session, as the code around the shipped rules drives it.

use futures::{future, stream};

use super::connection::Request;
use super::ensemble::{Made, Whose};
use super::world::{OURS, World};
use super::*;
use crate::store::nodes::NodeEvent;

/// A watch that has been set on a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    pub(super) czxid: i64,
    /// How many times the connection had changed when it was requested.
    since: u8,
    pub(super) hearing: Hearing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hearing {
    Listens,
    HasHeard,
    /// Its connection is over.
    IsDeaf,
}

/// What showed that nothing is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum By {
    Number,
    /// The listing that came with the create, which shows no other node.
    Listing,
    /// The rules of the queue, which are taken as right.
    Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply<T> {
    Awaited,
    Failed,
    Done(T),
}

/// What was requested in one flush, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entering {
    pub(super) created: Reply<Made>,
    /// Whether the node is alone.
    pub(super) listed: Option<Reply<bool>>,
    pub(super) watched: Option<Reply<Watch>>,
    /// How many times the connection had changed by then.
    since: u8,
}

/// What a contender of ours does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Away,
    Entering(Entering),
    /// With `has_guessed`, it did without a listing and was wrong.
    Waiting {
        made: Made,
        has_guessed: bool,
    },
    Holding {
        made: Made,
        by: By,
    },
    Releasing {
        /// The node, if it was alone.
        sole: Option<Sole>,
        is_deleted: bool,
    },
}

impl<T> Reply<T> {
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited)
    }

    pub(super) fn fail_if(&mut self, is_lost: bool) {
        if is_lost && self.is_awaited() {
            *self = Self::Failed;
        }
    }
}

impl Watch {
    pub(super) fn new(czxid: i64, since: u8) -> Self {
        Self {
            czxid,
            since,
            hearing: Hearing::Listens,
        }
    }
}

impl Entering {
    pub(super) fn is_answered(&self) -> bool {
        let is_listing = self.listed.is_some_and(|it| it.is_awaited());
        let is_watching = self.watched.is_some_and(|it| it.is_awaited());
        !(self.created.is_awaited() || is_listing || is_watching)
    }

    pub(super) fn is_watched(&mut self, reply: Reply<i64>) {
        self.watched = Some(match reply {
            Reply::Done(czxid) => Reply::Done(Watch::new(czxid, self.since)),
            Reply::Failed | Reply::Awaited => Reply::Failed,
        });
    }
}

impl Stage {
    pub(super) fn is_granted_by_number(&self) -> bool {
        matches!(self, Self::Holding { by: By::Number, .. })
    }

    pub(super) fn has_guessed_wrong(&self) -> bool {
        match self {
            Self::Waiting { has_guessed, .. } => *has_guessed,
            _ => false,
        }
    }
}

impl World {
    /// As the sending half of `Entering::entered`.
    pub(super) fn enter(&mut self, contender: usize) {
        self.left.ours -= 1;
        let lists = !self.ask(Vacancy::is_expected);
        let watches = self.ask(Vacancy::wants_watch);
        self.ours[contender] = Stage::Entering(Entering {
            created: Reply::Awaited,
            listed: lists.then_some(Reply::Awaited),
            watched: watches.then_some(Reply::Awaited),
            since: self.changes,
        });
        let requests = &mut self.connection.requests;
        requests.push_back(Request::Create(contender));
        requests.extend(lists.then_some(Request::List(contender)));
        requests.extend(watches.then_some(Request::Watch(contender)));
    }

    /// The end of `Entering::entered`, or of a release.
    pub(super) fn take_answer(&mut self, contender: usize) {
        match self.ours[contender] {
            Stage::Entering(entering) => {
                match entering.watched {
                    Some(Reply::Done(watch)) => self.watch(Some(watch)),
                    Some(_) => self.watch(None),
                    None => {}
                }
                match entering.created {
                    Reply::Done(made) => self.ours[contender] = self.entry(made, &entering),
                    _ => self.give_up(contender),
                }
            }
            Stage::Releasing { sole, .. } => {
                self.ours[contender] = Stage::Away;
                if let Some(sole) = sole {
                    self.ask(|vacancy| vacancy.left(sole));
                }
            }
            _ => {}
        }
    }

    /// As `requests::entries`.
    fn entry(&mut self, made: Made, entering: &Entering) -> Stage {
        let by = match entering.listed {
            Some(Reply::Done(is_alone)) => is_alone.then_some(By::Listing),
            _ => self.judge(made).then_some(By::Number),
        };
        match by {
            Some(by) => Stage::Holding { made, by },
            None => Stage::Waiting {
                made,
                has_guessed: entering.listed.is_none(),
            },
        }
    }

    fn judge(&mut self, made: Made) -> bool {
        let is_alone = self.ask(|vacancy| vacancy.claim_as_first(made.number));
        if is_alone {
            self.broken = self.objection(made);
        }
        is_alone
    }

    /// What contradicts, at the ensemble, that nothing is ahead of a node.
    fn objection(&self, made: Made) -> Option<&'static str> {
        let directory = self.directory.as_ref();
        let found = directory.and_then(|it| it.find(made));
        let Some((index, child)) = found else {
            return Some("gone");
        };
        match () {
            () if child.had_company => Some("beside others"),
            () if (0..OURS).any(|it| self.is_holding(it)) => Some("beside one of ours"),
            () if index > 0 => Some("not the first"),
            () => None,
        }
    }

    pub(super) fn admit(&mut self, contender: usize) {
        if let Stage::Waiting { made, .. } = self.ours[contender] {
            let by = By::Queue;
            self.ours[contender] = Stage::Holding { made, by };
        }
    }

    /// As `release::release_all`; what it reports in the end is `Lease::leave_directory`.
    pub(super) fn release(&mut self, contender: usize) {
        let Stage::Holding { made, by } = self.ours[contender] else {
            return;
        };
        let delete = Request::Delete(contender);
        self.connection.requests.push_back(delete);
        self.ours[contender] = Stage::Releasing {
            sole: Some(made.sole()).filter(|_| by != By::Queue),
            is_deleted: false,
        };
    }

    pub(super) fn give_up(&mut self, contender: usize) {
        self.ours[contender] = Stage::Away;
        let children = self.directory.iter_mut().flat_map(|it| &mut it.children);
        for child in children.filter(|it| it.whose == Whose::Ours(contender)) {
            child.whose = Whose::GivenUp;
        }
    }

    /// Puts a question to the shipped code, which first sees everything reported by now.
    pub(super) fn ask<T>(&mut self, question: impl FnOnce(&mut Vacancy) -> T) -> T {
        let mut vacancy = Vacancy {
            known: std::mem::take(&mut self.known),
            watched: self.watch.map(|it| self.told(it)),
        };
        let answer = question(&mut vacancy);
        self.known = vacancy.known;
        self.watch = self.watch.filter(|_| vacancy.watched.is_some());
        answer
    }

    /// Passes the watch to the shipped code, and notes whether that keeps it.
    pub(super) fn watch(&mut self, watch: Option<Watch>) {
        let watched = watch.map(|it| self.told(it));
        let is_kept = self.ask(|vacancy| {
            vacancy.note_watch(watched);
            vacancy.watched.is_some()
        });
        self.watch = watch.filter(|_| is_kept);
    }

    fn told(&self, watch: Watch) -> Watched {
        let event = match watch.hearing {
            Hearing::HasHeard => future::ready(NodeEvent::Deleted).boxed(),
            Hearing::Listens | Hearing::IsDeaf => future::pending().boxed(),
        };
        let connection = match watch.since == self.changes {
            true => stream::pending().boxed(),
            false => stream::iter([Connection::Disconnected]).boxed(),
        };
        let stat = NodeStat::new(watch.czxid, watch.czxid, 0, 0, 0);
        Watched::new((Vec::new(), stat, event), connection)
    }
}
