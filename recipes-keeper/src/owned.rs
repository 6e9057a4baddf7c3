//! The nodes that a session has, as far as the server has answered.
//!
//! A server that has lost its last writes may have nodes again that were deleted, by the session or by
//! an operator. Nobody else would delete them as long as their session lives, and whoever comes after
//! them would wait for ever.

use std::collections::BTreeSet;

use recipes_core::{NewNode, NodeMode, NodeOp};

use crate::answers::parts_of;
use crate::asked::Asked;
use crate::wire::Value;

/// The nodes of one session that go with it.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// The run of the server that has answered.
    run: String,
    known: BTreeSet<String>,
    /// The paths in creates without an answer, to which the server may have appended a sequence.
    unanswered: BTreeSet<String>,
}

impl Owned {
    pub(crate) fn on(run: &str) -> Self {
        Self {
            run: run.to_owned(),
            ..Self::default()
        }
    }

    /// A transaction of these operations leaves.
    pub(crate) fn sent(&mut self, operations: &[NodeOp]) {
        for node in operations.iter().filter_map(owned) {
            self.unanswered.insert(node.path.clone());
        }
    }

    /// A request was carried out or refused.
    pub(crate) fn answered(&mut self, asked: &Asked, answer: &Value) {
        let Value::List(answers) = answer else {
            return;
        };
        let mut answers = answers.iter();
        let reason = answers.next();
        let is = |word: &[u8]| matches!(reason, Some(Value::Bytes(it)) if it == word);
        let operations = match asked {
            Asked::Multi(operations) => operations,
            // Whoever reads its node learns in this way that it is gone.
            Asked::Read(path) | Asked::Stat(path) | Asked::Watch(path, _) if is(b"NoNode") => {
                self.known.remove(path);
                return;
            }
            _ => return,
        };
        let is_single = operations.len() == 1;
        for operation in operations.iter() {
            let answer: Vec<_> = answers.by_ref().take(parts_of(operation)).collect();
            if let Some(node) = owned(operation) {
                self.unanswered.remove(&node.path);
                if let (true, Some(Value::Bytes(path))) = (is(b""), answer.first()) {
                    self.known
                        .insert(String::from_utf8_lossy(path).into_owned());
                }
            } else if let NodeOp::Delete { path, .. } = operation {
                if is(b"") || (is_single && is(b"NoNode")) {
                    self.gone(path);
                }
            }
        }
    }

    /// The create without an answer that may have made this node.
    fn asked(&self, path: &str) -> Option<String> {
        let asked = self.unanswered.range(..=path.to_owned()).next_back();
        asked.filter(|asked| path.starts_with(*asked)).cloned()
    }

    /// Whether this run of the server is another than that which has answered.
    pub(crate) fn is_new(&self, run: &str) -> bool {
        self.run != run
    }

    /// A new run of the server has these nodes of the session. Returns those that were deleted, as
    /// far as the session was told.
    pub(crate) fn deleted(&mut self, nodes: Vec<String>) -> Vec<String> {
        let (mut known, mut deleted) = (BTreeSet::new(), Vec::new());
        for path in nodes {
            if self.known.contains(&path) || self.asked(&path).is_some() {
                known.insert(path);
            } else {
                deleted.push(path);
            }
        }
        // A create that has not reached this run never will.
        self.unanswered.clear();
        self.known = known;
        deleted
    }

    /// As [`deleted`](Self::deleted), for a session that has lost its nodes, all of them.
    pub(crate) fn all(&mut self, nodes: Vec<String>) -> Vec<String> {
        self.unanswered.clear();
        self.known.clear();
        nodes
    }

    /// The session has learned that its nodes are gone whose paths begin so.
    pub(crate) fn all_gone(&mut self, start: &str) {
        self.gone(start);
        for paths in [&mut self.known, &mut self.unanswered] {
            let all = paths.range(start.to_owned()..);
            let gone = all.take_while(|path| path.starts_with(start)).cloned();
            for path in gone.collect::<Vec<_>>() {
                paths.remove(&path);
            }
        }
    }

    fn gone(&mut self, path: &str) {
        if let Some(asked) = self.asked(path) {
            self.unanswered.remove(&asked);
        }
        self.known.remove(path);
    }

    /// The session goes on, on this run of the server.
    pub(crate) fn go_on(&mut self, run: &str) {
        self.run = run.to_owned();
    }
}

/// The node to create that goes with its session.
fn owned(operation: &NodeOp) -> Option<&NewNode> {
    match operation {
        NodeOp::Create(node) => match node.mode {
            NodeMode::Ephemeral | NodeMode::EphemeralSequential => Some(node),
            NodeMode::Persistent | NodeMode::Container => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str) -> NodeOp {
        NodeOp::Create(NewNode {
            path: path.to_owned(),
            data: Default::default(),
            mode: NodeMode::EphemeralSequential,
        })
    }

    fn check(path: &str) -> NodeOp {
        let (path, version) = (path.to_owned(), Some(0));
        NodeOp::Check { path, version }
    }

    fn delete(path: &str) -> NodeOp {
        let (path, version) = (path.to_owned(), None);
        NodeOp::Delete { path, version }
    }

    fn text(word: &str) -> Value {
        Value::Bytes(word.into())
    }

    fn made(path: &str) -> Vec<Value> {
        vec![text(path), text("1")]
    }

    fn asked(owned: &mut Owned, operations: &[NodeOp], answer: Vec<Value>) {
        owned.sent(operations);
        owned.answered(&Asked::Multi(operations.into()), &Value::List(answer));
    }

    #[test]
    fn node_that_was_deleted_and_is_back_is_told_from_those_that_may_be_used() {
        let mut owned = Owned::on("one");
        let entered = [check("/a"), create("/a/x-"), create("/b/y-")];
        let done = [vec![text("")], made("/a/x-1"), made("/b/y-1")].concat();
        asked(&mut owned, &entered, done);
        asked(&mut owned, &[delete("/a/x-1")], vec![text("")]);
        // Nobody knows whether this was done.
        owned.sent(&[create("/c/z-")]);
        // This was not.
        let refused = vec![text("NoNode"), Value::Number(0)];
        asked(&mut owned, &[create("/d/w-")], refused);
        assert!(!owned.is_new("one") && owned.is_new("two"));
        let nodes = ["/a/x-1", "/b/y-1", "/c/z-7", "/d/w-3"].map(ToOwned::to_owned);
        assert_eq!(owned.deleted(nodes.to_vec()), ["/a/x-1", "/d/w-3"]);
        // What was found is known from now on.
        let nodes = ["/b/y-1", "/c/z-7"].map(ToOwned::to_owned);
        assert!(owned.deleted(nodes.to_vec()).is_empty());
        asked(
            &mut owned,
            &[delete("/c/z-7")],
            vec![text("NoNode"), Value::Number(0)],
        );
        assert_eq!(owned.deleted(vec!["/c/z-7".to_owned()]), ["/c/z-7"]);
    }

    #[test]
    fn node_that_is_gone_as_the_session_has_learned_is_not_spared() {
        let mut owned = Owned::on("one");
        asked(
            &mut owned,
            &[create("/a/x-")],
            [vec![text("")], made("/a/x-1")].concat(),
        );
        owned.all_gone("/a/x-1");
        // Nobody knows whether this was done, but it is gone.
        owned.sent(&[create("/b/y-")]);
        owned.all_gone("/b/y-7");
        asked(
            &mut owned,
            &[create("/b/z-")],
            [vec![text("")], made("/b/z-8")].concat(),
        );
        owned.all_gone("/b/z");
        let nodes = ["/a/x-1", "/b/y-7", "/b/z-8"].map(ToOwned::to_owned);
        assert_eq!(owned.deleted(nodes.to_vec()), nodes);
    }

    #[test]
    fn node_that_was_not_found_is_not_spared() {
        let paths = ["/a/x-1", "/a/y-2", "/a/z-3", "/a/w-4"].map(ToOwned::to_owned);
        let mut owned = Owned::on("one");
        for path in &paths {
            let made = [vec![text("")], made(path)].concat();
            asked(&mut owned, &[create(path.split('-').next().unwrap())], made);
        }
        let [read, stat, watch, _] = paths.clone();
        for asked in [Asked::Read(read), Asked::Stat(stat), Asked::Watch(watch, 1)] {
            owned.answered(&asked, &Value::List(vec![text("")]));
        }
        assert!(owned.deleted(paths.to_vec()).is_empty());
        let [read, stat, watch, _] = paths.clone();
        for asked in [Asked::Read(read), Asked::Stat(stat), Asked::Watch(watch, 1)] {
            owned.answered(&asked, &Value::List(vec![text("NoNode")]));
        }
        assert_eq!(owned.deleted(paths.to_vec()), paths[..3]);
    }

    #[test]
    fn session_that_may_have_ended_keeps_nothing() {
        let mut owned = Owned::on("one");
        asked(
            &mut owned,
            &[create("/a/x-")],
            [vec![text("")], made("/a/x-1")].concat(),
        );
        owned.sent(&[create("/b/y-")]);
        let nodes = ["/a/x-1", "/b/y-7"].map(ToOwned::to_owned);
        assert_eq!(owned.all(nodes.to_vec()), nodes);
        assert_eq!(owned.deleted(nodes.to_vec()), nodes);
    }

    #[test]
    fn node_of_a_lost_create_that_was_found_and_deleted_is_not_spared() {
        let mut owned = Owned::on("one");
        owned.sent(&[create("/c/z-")]);
        asked(&mut owned, &[delete("/c/z-7")], vec![text("")]);
        assert_eq!(owned.deleted(vec!["/c/z-7".to_owned()]), ["/c/z-7"]);
    }
}
