//! The nodes that the client of a session on Redis knows as its own, as far as it was answered: what
//! `recipes-keeper/src/owned.rs` keeps.

use std::collections::{BTreeMap, BTreeSet};

use recipes_core::{NodeMode, NodeOpDone, NodesError};

use super::State;
use super::request::{Answer, Call, Change, Outcome, Proposed};
use crate::memory::tree::access::Access;
use crate::memory::tree::node_path::NodePath;

#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// The run of the server that has answered.
    pub(super) run: u64,
    known: BTreeSet<String>,
    /// The paths in creates without an answer.
    unanswered: BTreeSet<String>,
    /// What the client learns from answers that are on their way, by request.
    learned: BTreeMap<u64, Vec<Learned>>,
}

#[derive(Debug)]
enum Learned {
    /// A create is answered: its path, and the node.
    Created(String, Option<String>),
    Deleted(String),
    /// Somebody has looked for it.
    Absent(String),
}

impl Owned {
    /// A request leaves.
    pub(crate) fn sent(&mut self, call: &Call) {
        self.unanswered.extend(created(call));
    }

    /// The server has answered.
    pub(crate) fn answered(&mut self, number: u64, call: &Call, outcome: &Outcome) {
        let learned: Vec<_> = match (call, outcome) {
            (Call::Multi(changes), outcome) => {
                let done = match outcome {
                    Ok(Answer::Done(done)) => done.as_slice(),
                    _ => &[],
                };
                let done = (0..changes.len()).map(|it| done.get(it));
                let learned = changes.iter().zip(done).filter_map(learned_of_change);
                learned.collect()
            }
            (Call::Create(_), outcome) => {
                let path = match outcome {
                    Ok(Answer::Created(created)) => Some(created.path.clone()),
                    _ => None,
                };
                let asked = created(call).into_iter();
                asked
                    .map(|asked| Learned::Created(asked, path.clone()))
                    .collect()
            }
            (Call::Delete(path), outcome) => {
                let is_gone = match outcome {
                    Ok(_) => true,
                    Err(error) => matches!(error.source, NodesError::NoNode),
                };
                is_gone
                    .then(|| Learned::Deleted(path.clone()))
                    .into_iter()
                    .collect()
            }
            (
                Call::Read(path) | Call::Stat(path) | Call::Watch(path),
                Ok(Answer::Node(None) | Answer::Stat(None) | Answer::Watched(None)),
            ) => vec![Learned::Absent(path.clone())],
            _ => return,
        };
        self.learned.insert(number, learned);
    }

    /// An answer has arrived.
    pub(crate) fn arrived(&mut self, number: u64) {
        for learned in self.learned.remove(&number).into_iter().flatten() {
            match learned {
                Learned::Created(asked, path) => {
                    self.unanswered.remove(&asked);
                    self.known.extend(path);
                }
                Learned::Deleted(path) => self.gone(&path),
                Learned::Absent(path) => drop(self.known.remove(&path)),
            }
        }
    }

    /// Answers on their way are lost.
    pub(crate) fn lost(&mut self) {
        self.learned.clear();
    }

    fn asked(&self, path: &str) -> Option<String> {
        let asked = self.unanswered.range(..=path.to_owned()).next_back();
        asked.filter(|asked| path.starts_with(*asked)).cloned()
    }

    /// The client has learned that its nodes are gone whose paths begin so.
    pub(crate) fn all_gone(&mut self, start: &str) {
        self.gone(start);
        self.known.retain(|path| !path.starts_with(start));
        self.unanswered.retain(|path| !path.starts_with(start));
    }

    fn gone(&mut self, path: &str) {
        if let Some(asked) = self.asked(path) {
            self.unanswered.remove(&asked);
        }
        self.known.remove(path);
    }

    /// A new run of the server has these nodes. Returns those that were deleted, as far as the
    /// client knows.
    fn deleted(&mut self, nodes: Vec<String>) -> Vec<String> {
        let is_own = |path: &String| self.known.contains(path) || self.asked(path).is_some();
        let (known, deleted): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_own);
        self.unanswered.clear();
        self.known = known.into_iter().collect();
        deleted
    }
}

impl State {
    /// Nodes that are gone, as the client knows, and that a server which has forgotten that has again.
    /// All of its nodes, if the run before may have ended the session and granted others its place.
    pub(crate) fn delete_what_is_back(&mut self, session: i64, may_have_ended: bool) {
        let nodes = self.tree.owned_by(session);
        let nodes = nodes.iter().map(NodePath::to_string).collect();
        let Some(record) = self.sessions.get_mut(&session) else {
            return;
        };
        if may_have_ended {
            record.owned.known.clear();
            record.owned.unanswered.clear();
        }
        for path in record.owned.deleted(nodes) {
            let deleted: Result<(), NodesError> = self.transact(|tree, transaction| {
                tree.delete(
                    transaction,
                    &NodePath::parse(&path)?,
                    None,
                    &Access::Operator,
                )
            });
            debug_assert!(deleted.is_ok(), "the session has this node");
        }
    }
}

/// The paths of the nodes to create that go with their session.
fn created(call: &Call) -> Vec<String> {
    match call {
        Call::Create(proposed) => owned(proposed).into_iter().collect(),
        Call::Multi(changes) => {
            let creates = changes.iter().filter_map(|change| match change {
                Change::Create(proposed) => owned(proposed),
                _ => None,
            });
            creates.collect()
        }
        _ => Vec::new(),
    }
}

fn owned(Proposed { node, .. }: &Proposed) -> Option<String> {
    match node.mode {
        NodeMode::Ephemeral | NodeMode::EphemeralSequential => Some(node.path.clone()),
        NodeMode::Persistent | NodeMode::Container => None,
    }
}

fn learned_of_change((change, done): (&Change, Option<&NodeOpDone>)) -> Option<Learned> {
    match (change, done) {
        (Change::Create(proposed), done) => {
            let path = match done {
                Some(NodeOpDone::Created(created)) => Some(created.path.clone()),
                _ => None,
            };
            Some(Learned::Created(owned(proposed)?, path))
        }
        (Change::Delete { path, .. }, Some(_)) => Some(Learned::Deleted(path.clone())),
        _ => None,
    }
}
