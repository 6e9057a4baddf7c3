//! The connection of our session: requests and messages, each first come, first served.
//!
//! Its client does not set the watches of the previous connection again.

use std::collections::VecDeque;

use super::contender::{Entering, Hearing, Reply, Stage, Watch};
use super::ensemble::{Made, Whose};
use super::world::{OURS, World};

/// A request of our session; the number is that of the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Create(usize),
    List(usize),
    Watch(usize),
    Delete(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Message {
    Created(usize, Reply<Made>),
    /// Whether the contender's node is alone.
    Listed(usize, bool),
    /// The directory that is watched, by its `czxid`.
    Watched(usize, Reply<i64>),
    Deleted(usize),
    /// The watch on this directory fires.
    Fired(i64),
}

/// What our session has in flight, first come, first served.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Connection {
    pub(super) is_down: bool,
    pub(super) requests: VecDeque<Request>,
    pub(super) messages: VecDeque<Message>,
}

impl World {
    pub(super) fn carry_out(&mut self) {
        let Some(request) = self.connection.requests.pop_front() else {
            return;
        };
        let directory = self.directory.as_mut();
        let message = match (request, directory) {
            (Request::Create(contender), Some(directory)) => {
                let is_reader = self.left.our_readers[contender];
                let number = directory.create(Whose::Ours(contender), is_reader);
                self.zxid += 1;
                let czxid = self.zxid;
                Message::Created(contender, Reply::Done(Made { number, czxid }))
            }
            (Request::Create(contender), None) => Message::Created(contender, Reply::Failed),
            (Request::List(contender), directory) => {
                let whose = Whose::Ours(contender);
                let is_alone = directory.is_some_and(
                    |it| matches!(it.children.as_slice(), [only] if only.whose == whose),
                );
                Message::Listed(contender, is_alone)
            }
            (Request::Watch(contender), Some(directory)) => {
                directory.is_watched = true;
                Message::Watched(contender, Reply::Done(directory.czxid))
            }
            (Request::Watch(contender), None) => Message::Watched(contender, Reply::Failed),
            (Request::Delete(contender), directory) => {
                if let Some(it) = directory {
                    it.children.retain(|it| it.whose != Whose::Ours(contender));
                }
                Message::Deleted(contender)
            }
        };
        self.connection.messages.push_back(message);
    }

    pub(super) fn deliver(&mut self) {
        let Some(message) = self.connection.messages.pop_front() else {
            return;
        };
        let contender = match message {
            Message::Fired(czxid) => return self.hear(czxid),
            Message::Created(contender, _)
            | Message::Listed(contender, _)
            | Message::Watched(contender, _)
            | Message::Deleted(contender) => contender,
        };
        match (message, &mut self.ours[contender]) {
            (Message::Created(_, reply), Stage::Entering(it)) => it.created = reply,
            (Message::Listed(_, is_alone), Stage::Entering(it)) => {
                it.listed = Some(Reply::Done(is_alone));
            }
            (Message::Watched(_, reply), Stage::Entering(it)) => it.is_watched(reply),
            (Message::Deleted(_), Stage::Releasing { is_deleted, .. }) => *is_deleted = true,
            _ => {}
        }
    }

    fn hear(&mut self, czxid: i64) {
        let watches = self.watches().filter(|it| it.czxid == czxid);
        for watch in watches.filter(|it| it.hearing == Hearing::Listens) {
            watch.hearing = Hearing::HasHeard;
        }
    }

    /// The watches that are set.
    fn watches(&mut self) -> impl Iterator<Item = &mut Watch> {
        let of_contenders = self.ours.iter_mut().filter_map(|it| match it {
            Stage::Entering(Entering {
                watched: Some(Reply::Done(watch)),
                ..
            }) => Some(watch),
            _ => None,
        });
        of_contenders.chain(&mut self.watch)
    }

    fn end_watches(&mut self) {
        self.changes += 1;
        for watch in self.watches().filter(|it| it.hearing == Hearing::Listens) {
            watch.hearing = Hearing::IsDeaf;
        }
        if let Some(directory) = &mut self.directory {
            directory.is_watched = false;
        }
    }

    pub(super) fn disconnect(&mut self, lost: usize) {
        self.left.breaks -= 1;
        self.end_watches();
        let Connection {
            is_down,
            requests,
            messages,
        } = &mut self.connection;
        *is_down = true;
        messages.clear();
        drop(requests.drain(..lost));
        for (contender, stage) in self.ours.iter_mut().enumerate() {
            let is_lost = |it: Request| !requests.contains(&it);
            match stage {
                Stage::Entering(it) => {
                    it.created.fail_if(is_lost(Request::Create(contender)));
                    if let Some(it) = &mut it.listed {
                        it.fail_if(is_lost(Request::List(contender)));
                    }
                    if let Some(it) = &mut it.watched {
                        it.fail_if(is_lost(Request::Watch(contender)));
                    }
                }
                // The delete is sent again, whatever has become of it.
                Stage::Releasing {
                    is_deleted: false, ..
                } if is_lost(Request::Delete(contender)) => {
                    requests.push_back(Request::Delete(contender));
                }
                _ => {}
            }
        }
    }

    pub(super) fn reconnect(&mut self) {
        self.changes += 1;
        self.connection.is_down = false;
    }

    pub(super) fn expire(&mut self) {
        self.left.expiries -= 1;
        self.end_watches();
        self.connection = Connection::default();
        for contender in 0..OURS {
            let is_left = matches!(
                self.ours[contender],
                Stage::Releasing {
                    is_deleted: true,
                    ..
                }
            );
            if !is_left {
                self.give_up(contender);
            }
        }
    }
}
