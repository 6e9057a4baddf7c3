//! Which keys are watched, and from when on all of their events are known.
//!
//! A watch begins with the revision at which the member has it, not with the one at which its key was read: a member
//! that is asked for the past tells it only every tenth of a second. So once the watch is there, the member is asked what the
//! key is like now, unless nothing has happened anywhere in between. Until that is answered, no event of the
//! directory is told: whoever waits must hear of the end of its own node first.

use std::collections::{HashMap, VecDeque};

use recipes_core::NodeEvent;

use crate::keys::NodeKey;

/// A key that is to be watched, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) key: String,
    pub(crate) path: String,
    /// Rises from watch to watch.
    pub(crate) number: u64,
    /// The revision that made it.
    pub(crate) made_at: i64,
    /// The revision as of which it was read. What happened until then is known.
    pub(crate) read_at: i64,
    /// Whether it goes with the session itself.
    pub(crate) is_own: bool,
}

/// The watches of one connection. Those of the server have numbers of their own.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    by_id: HashMap<i64, Entry>,
    by_key: HashMap<String, i64>,
    last_id: i64,
    held: VecDeque<Event>,
    out: Vec<Do>,
}

#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    stage: Stage,
    /// The last revision as of which it was read.
    known_to: i64,
    left: Left,
}

/// Whether the session itself has deleted a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Not that it knew.
    No,
    /// It is about to.
    Perhaps,
    /// By this revision, which has deleted nothing else but what the session named.
    At(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The server is asked for it.
    Asked,
    /// It has it. What happened before is not known.
    There,
    /// That is being asked for.
    Looked,
    /// All is known.
    Whole,
}

/// What has happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The watch of the server.
    pub(crate) id: i64,
    pub(crate) revision: i64,
    pub(crate) is_deletion: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    /// Ask the server to watch a key under this number.
    Watch(i64, String),
    /// Ask it to watch it no more.
    Cancel(i64),
    /// Say what has happened to the node of this path, to who has watched it up to this number.
    Tell(String, u64, NodeEvent),
}

/// What a key is like: the revisions that made and changed it last, if it is there.
pub(crate) type Found = Option<(i64, i64)>;

impl Watching {
    /// Numbers of the server's watches up to this one are somebody else's.
    pub(crate) fn after(last_id: i64) -> Self {
        Self {
            last_id,
            ..Self::default()
        }
    }

    /// What is to be done, in this order.
    pub(crate) fn take(&mut self) -> Vec<Do> {
        self.release();
        std::mem::take(&mut self.out)
    }

    /// Whether there may be something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.out.is_empty() || !self.held.is_empty()
    }

    pub(crate) fn watch(&mut self, wanted: Wanted) {
        let known = self.by_key.get(&wanted.key);
        let known = known.and_then(|id| self.by_id.get_mut(id));
        if let Some(entry) = known.filter(|it| it.wanted.made_at == wanted.made_at) {
            // Who watched it first may not know what has happened since.
            entry.wanted.number = entry.wanted.number.max(wanted.number);
            return;
        }
        // A key that is made again is another node. The end of the one before is still told by its own watch.
        self.last_id += 1;
        let id = self.last_id;
        self.out.push(Do::Watch(id, wanted.key.clone()));
        self.by_key.insert(wanted.key.clone(), id);
        let entry = Entry {
            known_to: wanted.read_at,
            stage: Stage::Asked,
            left: Left::No,
            wanted,
        };
        self.by_id.insert(id, entry);
    }

    /// The key may be another node's by now, which stays watched.
    pub(crate) fn unwatch(&mut self, node: &NodeKey) {
        let Some(id) = self.by_key.get(&node.key).copied() else {
            return;
        };
        let entry = self.by_id.get(&id);
        if entry.is_some_and(|it| node.is_made_at(it.wanted.made_at)) {
            self.end(id, None);
        }
    }

    /// The session is about to delete these keys.
    pub(crate) fn leaving(&mut self, keys: &[String]) {
        self.set_left(keys, Left::Perhaps);
    }

    /// It has, by this revision, or it has not, as far as is known.
    pub(crate) fn left(&mut self, keys: &[String], revision: Option<i64>) {
        self.set_left(keys, revision.map_or(Left::No, Left::At));
    }

    fn set_left(&mut self, keys: &[String], left: Left) {
        for key in keys {
            let id = self.by_key.get(key);
            if let Some(entry) = id.and_then(|id| self.by_id.get_mut(id)) {
                entry.left = left;
            }
        }
    }

    /// The server has a watch, and tells what happens after this revision.
    pub(crate) fn created(&mut self, id: i64, revision: i64) {
        let Some(entry) = self.by_id.get_mut(&id) else {
            return;
        };
        let is_whole = revision <= entry.wanted.read_at;
        entry.stage = if is_whole { Stage::Whole } else { Stage::There };
    }

    /// The keys of which it is to be asked what they are like.
    pub(crate) fn look(&mut self) -> Vec<(i64, String)> {
        let there = self.by_id.iter_mut();
        let there = there.filter(|(_, entry)| entry.stage == Stage::There);
        let mut looked: Vec<_> = there
            .map(|(id, entry)| {
                entry.stage = Stage::Looked;
                (*id, entry.wanted.key.clone())
            })
            .collect();
        looked.sort_unstable();
        looked
    }

    /// What they were like as of a revision.
    pub(crate) fn looked(&mut self, revision: i64, found: Vec<(i64, Found)>) {
        for (id, found) in found {
            let Some(entry) = self.by_id.get_mut(&id) else {
                continue;
            };
            let Wanted {
                made_at, read_at, ..
            } = entry.wanted;
            match found {
                Some((made, changed)) if made == made_at && changed <= read_at.max(made) => {
                    entry.stage = Stage::Whole;
                    entry.known_to = revision;
                }
                Some((made, _)) if made == made_at => self.end(id, Some(NodeEvent::Changed)),
                _ => self.end(id, Some(NodeEvent::Deleted)),
            }
        }
    }

    /// The server tells of events, in the order of their revisions. Those of one revision come in any order.
    pub(crate) fn happened(&mut self, events: impl IntoIterator<Item = Event>) {
        self.held.extend(events);
    }

    /// Tells what may be told.
    fn release(&mut self) {
        let mut kept = VecDeque::new();
        let by_id = &self.by_id;
        let is_own = |it: &Event| by_id.get(&it.id).is_some_and(|it| it.wanted.is_own);
        let held = self.held.make_contiguous();
        held.sort_by_key(|it| (it.revision, !is_own(it)));
        while let Some(event) = self.held.pop_front() {
            let Some(Entry { wanted, left, .. }) = self.by_id.get(&event.id) else {
                continue;
            };
            if event.revision <= wanted.read_at {
                continue;
            }
            let of = directory(&wanted.key).to_owned();
            let is_own = event.is_deletion && wanted.is_own;
            let is_explained = *left == Left::At(event.revision);
            let is_open = is_own && *left == Left::Perhaps;
            let may_be_all = is_own && !is_open && !is_explained;
            if is_open || self.is_unclear(&of) || may_be_all && self.looks_again(&of, event) {
                kept.push_back(event);
                continue;
            }
            let what = match event.is_deletion {
                true => NodeEvent::Deleted,
                false => NodeEvent::Changed,
            };
            self.end(event.id, Some(what));
        }
        self.held = kept;
    }

    /// Whether something may have happened in a directory that is not known.
    fn is_unclear(&self, of: &str) -> bool {
        let mut entries = self.by_id.values();
        entries.any(|it| it.stage != Stage::Whole && directory(&it.wanted.key) == of)
    }

    /// What has deleted a node of the session, and was not the session, may have deleted all of them, as the end of its lease does, and etcd
    /// tells of the keys of one revision in any order. So the others are looked at first. Whether there are any.
    fn looks_again(&mut self, of: &str, event: Event) -> bool {
        let mut any = false;
        for (id, entry) in &mut self.by_id {
            let is_other = *id != event.id && entry.wanted.is_own;
            if is_other && entry.known_to < event.revision && directory(&entry.wanted.key) == of {
                entry.stage = Stage::There;
                any = true;
            }
        }
        any
    }

    fn end(&mut self, id: i64, told: Option<NodeEvent>) {
        let Some(Entry { wanted, .. }) = self.by_id.remove(&id) else {
            return;
        };
        if self.by_key.get(&wanted.key) == Some(&id) {
            self.by_key.remove(&wanted.key);
        }
        self.out.push(Do::Cancel(id));
        if let Some(event) = told {
            self.out.push(Do::Tell(wanted.path, wanted.number, event));
        }
    }
}

fn directory(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[cfg(test)]
mod tests;
