//! All accepted differences between the double and the store on etcd, and why. That comparison ignores nothing else
//! but what `differences_served` lists under 1 to 11, 13, 14 and 15, as for a database.
//!
//! | | difference | reason |
//! |---|---|---|
//! | 1 | Nobody creates below a node that is not there or goes with its session, and nobody deletes a node with others below it. | Directories are no keys of etcd: one is there as long as something is below it. |
//! | 2 | A directory without a node is not there to who lists it. | The same. |
//! | 3 | Numbers of a directory (`cversion`, `pzxid`, how many are in it) and times are not compared. | A key has none. What is below it is counted over all levels. |
//! | 4 | A number at the end of a name has 19 digits and is a revision; a node that goes with its session has `+` behind a name of its own. | See `numbers`. |
//! | 5 | Each node with a number has a name that no other has: `_c_1-lock-`. | The key is the name without the number. The core's names have a UUID. |
//! | 6 | A transaction names a node once. | etcd compares before it changes anything, and refuses two changes of a key. |
//! | 7 | Requests that were sent together may have one revision. | They are one transaction. |
//! | 8 | Of requests that may be sent together, none watches a node that an earlier one watches or sets. | A change may be told again to a watch whose answer has shown it: etcd's watches of one node and one session are one, and the change has the revision of what comes later. The core reads the node after any event. |
//!
//! Scripts are made such: four names of nodes and three directories, which nobody deletes, take the place of all
//! that the generator names.

use std::collections::{BTreeMap, BTreeSet};

use recipes_core::NodeMode;

use crate::differences_served;
use crate::script::{Change, Made, Place, Request, Script, Step};
use crate::seen::{Answer, Refusal, Seen};

/// Below the directory of a script. Another name comes between them in the order of keys: `/d`, `/d-b`, `/d/e`.
pub(crate) const DIRECTORIES: [&str; 2] = ["/d", "/d/e"];

/// What is left of a script.
pub(crate) fn script(script: Script) -> Script {
    let mut author = Author { entered: 0 };
    let Script { mut steps } = differences_served::script(script);
    // 8: what a session may have asked to watch or set without an answer, and the sessions that get none.
    let (mut named, mut cut) = (BTreeMap::<_, BTreeSet<Place>>::new(), BTreeSet::new());
    steps.retain_mut(|step| {
        let session = step.session();
        let own = named.entry(session).or_default();
        let mut is_first = |it: &Request| match it {
            Request::Watch(place) => own.insert(place.clone()),
            Request::Multi(changes) => {
                own.extend(changes.iter().filter_map(set));
                true
            }
            _ => true,
        };
        match step {
            Step::Ask { requests, .. } => {
                requests.iter_mut().for_each(|it| author.request(it));
                requests.retain(&mut is_first);
                if !cut.contains(&session) {
                    own.clear();
                }
                !requests.is_empty()
            }
            Step::Forget { request, .. } => {
                author.request(request);
                is_first(request)
            }
            Step::Cut { .. } => {
                cut.insert(session);
                true
            }
            Step::Mend { .. } => {
                cut.remove(&session);
                true
            }
            _ => true,
        }
    });
    Script { steps }
}

struct Author {
    /// How many nodes with numbers were created.
    entered: usize,
}

impl Author {
    fn request(&mut self, request: &mut Request) {
        match request {
            Request::Create(node) => self.made(node),
            Request::Delete(place) => *place = self.node(place),
            // 2: of a node that is none it would list nothing.
            Request::List(place) => {
                place.0 = match directory(place) {
                    "" => ".".to_owned(),
                    below => below.to_owned(),
                };
            }
            Request::Read(place) | Request::Watch(place) | Request::Sync(place) => {
                *place = self.place(place);
            }
            Request::Multi(changes) => {
                let mut named = BTreeSet::new();
                changes.iter_mut().for_each(|it| self.change(it));
                // 6
                changes.retain(|it| named.insert(key(it)));
            }
        }
    }

    fn change(&mut self, change: &mut Change) {
        match change {
            Change::Create(node) => self.made(node),
            Change::Delete(place, _) => *place = self.node(place),
            Change::Set(place, ..) | Change::Check(place, _) => *place = self.place(place),
        }
    }

    fn made(&mut self, node: &mut Made) {
        if node.mode == NodeMode::EphemeralSequential {
            self.entered += 1;
            let directory = directory(&node.place);
            node.place = Place(format!("{directory}/_c_{}-lock-", self.entered));
            return;
        }
        node.place = self.named(&node.place);
        match node.place.0.strip_suffix('+') {
            Some(place) => (node.place, node.mode) = (Place(place.to_owned()), NodeMode::Ephemeral),
            None if node.mode == NodeMode::Ephemeral => node.mode = NodeMode::Persistent,
            None => {}
        }
    }

    /// A node, or a directory.
    fn place(&self, place: &Place) -> Place {
        match place.0.as_str() {
            "." | "" => Place(".".to_owned()),
            _ => self.node(place),
        }
    }

    /// A node that may be deleted.
    fn node(&self, place: &Place) -> Place {
        let is_numbered = place.0.ends_with(|it: char| it.is_ascii_digit());
        if !is_numbered || self.entered == 0 {
            return self.named(place);
        }
        // One that was entered lately.
        let sum: usize = place.0.bytes().map(usize::from).sum();
        let number = self.entered - sum % self.entered.min(4);
        Place(format!("{}/_c_{number}-lock-#", directory(place)))
    }

    fn named(&self, place: &Place) -> Place {
        let name = match place.0.rsplit('/').next() {
            Some("a") => "a",
            Some("b") => "d-b",
            Some("c") => "c+",
            _ => "é+",
        };
        Place(format!("{}/{name}", directory(place)))
    }
}

/// The directory of a place: the deeper, the deeper. Empty for the script's own.
fn directory(place: &Place) -> &'static str {
    match place.0.matches('/').count() {
        0 | 1 => "",
        2 => DIRECTORIES[0],
        _ => DIRECTORIES[1],
    }
}

fn key(change: &Change) -> String {
    let place = match change {
        Change::Create(node) => &node.place,
        Change::Delete(place, _) | Change::Set(place, _, _) | Change::Check(place, _) => place,
    };
    place.0.trim_end_matches(['+', '#']).to_owned()
}

fn set(change: &Change) -> Option<Place> {
    match change {
        Change::Set(place, ..) => Some(place.clone()),
        _ => None,
    }
}

/// Whether no script for etcd can have this outcome.
pub(crate) fn never_seen(outcome: &str) -> bool {
    // 1, 2
    let refusals = [": EphemeralParent", ": NotEmpty", "list: NoNode"];
    let is_of_create = outcome.starts_with("create");
    differences_served::never_seen(outcome)
        || refusals.iter().any(|refusal| outcome.ends_with(refusal))
        || is_of_create && outcome.ends_with(": NoNode")
}

/// 2
pub(crate) fn without(mut seen: Seen) -> Seen {
    for answer in &mut seen.answers {
        if *answer == Answer::Names(Vec::new()) {
            *answer = Answer::Refused {
                index: None,
                why: Refusal::NoNode,
            };
        }
    }
    seen
}
