//! The nodes that a session has, as far as the server has answered.
//!
//! A server that has lost its last writes may have nodes again that were deleted, by the session or by
//! an operator. Nobody else would delete them as long as their session lives, and whoever comes after
//! them would wait for ever.

use std::collections::BTreeSet;

use recipes_core::{NewNode, NodeMode, NodeOp, NodeOpDone, NodesError};

use crate::asked::Asked;
use crate::wire::{Outcome, Said};

/// The nodes of one session that go with it.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// The run of the server that has answered.
    run: String,
    /// How many others the session went on with before it.
    runs: u64,
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
    pub(crate) fn answered(&mut self, asked: &Asked, outcome: &Outcome) {
        let is_missing =
            matches!(outcome, Err(refused) if matches!(refused.source, NodesError::NoNode));
        match (asked, outcome) {
            // Whoever reads its node learns in this way that it is gone.
            (Asked::Read(path) | Asked::Stat(path) | Asked::Watch(path, _), _) if is_missing => {
                self.known.remove(path);
            }
            (Asked::Read(path) | Asked::Stat(path) | Asked::Watch(path, _), Ok(_)) => {
                self.found(path.clone());
            }
            (Asked::List(directory) | Asked::Look { directory, .. }, Ok(Said::Names(names, _)))
                if !self.unanswered.is_empty() =>
            {
                let paths = names.iter().map(|name| format!("{directory}/{name}"));
                paths.for_each(|path| self.found(path));
            }
            (Asked::Multi(operations), Ok(Said::Multi(done))) => {
                for (operation, done) in operations.iter().zip(done) {
                    self.done(operation, done);
                }
            }
            (Asked::Multi(operations), _) => {
                for node in operations.iter().filter_map(owned) {
                    self.unanswered.remove(&node.path);
                }
                if let ([NodeOp::Delete { path, .. }], true) = (&**operations, is_missing) {
                    self.gone(path);
                }
            }
            _ => {}
        }
    }

    fn done(&mut self, operation: &NodeOp, done: &NodeOpDone) {
        if let Some(node) = owned(operation) {
            self.unanswered.remove(&node.path);
            if let NodeOpDone::Created(created) = done {
                self.known.insert(created.path.clone());
            }
        } else if let NodeOp::Delete { path, .. } = operation {
            self.gone(path);
        }
    }

    /// If a create without an answer has made this node, it has made no other one.
    fn found(&mut self, path: String) {
        if let Some(asked) = self.asked(&path) {
            self.unanswered.remove(&asked);
            self.known.insert(path);
        }
    }

    /// The create without an answer that may have made this node.
    fn asked(&self, path: &str) -> Option<String> {
        let asked = self.unanswered.range(..=path.to_owned()).next_back();
        asked.filter(|asked| path.starts_with(*asked)).cloned()
    }

    pub(crate) fn runs(&self) -> u64 {
        self.runs
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
        self.runs += 1;
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
    use recipes_core::{Created, NodeStat};

    use super::*;
    use crate::answers::{reason, whole};

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

    fn made(path: &str) -> NodeOpDone {
        NodeOpDone::Created(Created {
            path: path.to_owned(),
            czxid: Some(1),
        })
    }

    fn refused(word: &str) -> Outcome {
        Err(reason(word, Some(0)).unwrap())
    }

    fn done(owned: &mut Owned, operations: &[NodeOp], done: Vec<NodeOpDone>) {
        asked(owned, operations, Ok(Said::Multi(done)));
    }

    fn asked(owned: &mut Owned, operations: &[NodeOp], outcome: Outcome) {
        owned.sent(operations);
        owned.answered(&Asked::Multi(operations.into()), &outcome);
    }

    #[test]
    fn node_that_was_deleted_and_is_back_is_told_from_those_that_may_be_used() {
        let mut owned = Owned::on("one");
        let entered = [check("/a"), create("/a/x-"), create("/b/y-")];
        let answer = vec![NodeOpDone::Checked, made("/a/x-1"), made("/b/y-1")];
        done(&mut owned, &entered, answer);
        done(&mut owned, &[delete("/a/x-1")], vec![NodeOpDone::Deleted]);
        // Nobody knows whether this was done.
        owned.sent(&[create("/c/z-")]);
        // This was not.
        asked(&mut owned, &[create("/d/w-")], refused("NoNode"));
        assert!(!owned.is_new("one") && owned.is_new("two"));
        let nodes = ["/a/x-1", "/b/y-1", "/c/z-7", "/d/w-3"].map(ToOwned::to_owned);
        assert_eq!(owned.deleted(nodes.to_vec()), ["/a/x-1", "/d/w-3"]);
        // What was found is known from now on.
        let nodes = ["/b/y-1", "/c/z-7"].map(ToOwned::to_owned);
        assert!(owned.deleted(nodes.to_vec()).is_empty());
        asked(&mut owned, &[delete("/c/z-7")], refused("NoNode"));
        assert_eq!(owned.deleted(vec!["/c/z-7".to_owned()]), ["/c/z-7"]);
        assert_eq!(owned.runs(), 0);
        owned.go_on("two");
        assert_eq!((owned.runs(), owned.is_new("two")), (1, false));
    }

    #[test]
    fn node_that_is_gone_as_the_session_has_learned_is_not_spared() {
        let mut owned = Owned::on("one");
        done(&mut owned, &[create("/a/x-")], vec![made("/a/x-1")]);
        owned.all_gone("/a/x-1");
        // Nobody knows whether this was done, but it is gone.
        owned.sent(&[create("/b/y-")]);
        owned.all_gone("/b/y-7");
        done(&mut owned, &[create("/b/z-")], vec![made("/b/z-8")]);
        owned.all_gone("/b/z");
        let nodes = ["/a/x-1", "/b/y-7", "/b/z-8"].map(ToOwned::to_owned);
        assert_eq!(owned.deleted(nodes.to_vec()), nodes);
    }

    #[test]
    fn node_that_was_not_found_is_not_spared() {
        let paths = ["/a/x-1", "/a/y-2", "/a/z-3", "/a/w-4"].map(ToOwned::to_owned);
        let mut owned = Owned::on("one");
        for path in &paths {
            let create = create(path.split('-').next().unwrap());
            done(&mut owned, &[create], vec![made(path)]);
        }
        let [read, stat, watch, _] = paths.clone();
        for asked in [Asked::Read(read), Asked::Stat(stat), Asked::Watch(watch, 1)] {
            let stat = NodeStat::new(1, 1, 0, 7, 0);
            owned.answered(&asked, &Ok(Said::Stat(stat)));
        }
        assert!(owned.deleted(paths.to_vec()).is_empty());
        let [read, stat, watch, _] = paths.clone();
        for asked in [Asked::Read(read), Asked::Stat(stat), Asked::Watch(watch, 1)] {
            owned.answered(&asked, &refused("NoNode"));
        }
        assert_eq!(owned.deleted(paths.to_vec()), paths[..3]);
    }

    #[test]
    fn node_that_may_not_be_read_or_deleted_is_there() {
        let path = || "/a/x-1".to_owned();
        let asked = [
            Asked::Read(path()),
            Asked::Stat(path()),
            Asked::Watch(path(), 1),
            Asked::Multi([delete("/a/x-1")].into()),
        ];
        let mut owned = Owned::on("one");
        done(&mut owned, &[create("/a/x-")], vec![made("/a/x-1")]);
        for asked in asked {
            owned.answered(&asked, &Err(whole(NodesError::NoAuth)));
            assert!(owned.deleted(vec![path()]).is_empty(), "{asked:?}");
        }
    }

    #[test]
    fn create_whose_node_was_found_spares_no_other() {
        let names = ["y-9", "x-4"].map(ToOwned::to_owned);
        let (path, directory) = ("/a/x-4".to_owned(), "/a".to_owned());
        let look = Asked::Look {
            directory: directory.clone(),
            own: None,
            first: 1,
        };
        let stat = || Ok(Said::Stat(NodeStat::new(1, 1, 0, 7, 0)));
        let listing = || Ok(Said::Names(names.to_vec(), Vec::new()));
        let answers = [
            (Asked::Read(path.clone()), stat()),
            (Asked::Stat(path.clone()), stat()),
            (Asked::Watch(path, 1), stat()),
            (Asked::List(directory), listing()),
            (look, listing()),
        ];
        for (asked, answer) in answers {
            let mut owned = Owned::on("one");
            owned.sent(&[create("/a/x-")]);
            owned.answered(&asked, &answer);
            // The attempt made an earlier one, which the server had forgotten.
            let nodes = ["/a/x-4", "/a/x-7"].map(ToOwned::to_owned);
            assert_eq!(owned.deleted(nodes.to_vec()), ["/a/x-7"], "{asked:?}");
        }
    }

    #[test]
    fn session_that_may_have_ended_keeps_nothing() {
        let mut owned = Owned::on("one");
        done(&mut owned, &[create("/a/x-")], vec![made("/a/x-1")]);
        owned.sent(&[create("/b/y-")]);
        let nodes = ["/a/x-1", "/b/y-7"].map(ToOwned::to_owned);
        assert_eq!(owned.all(nodes.to_vec()), nodes);
        assert_eq!(owned.deleted(nodes.to_vec()), nodes);
    }

    #[test]
    fn node_of_a_lost_create_that_was_found_and_deleted_is_not_spared() {
        let mut owned = Owned::on("one");
        owned.sent(&[create("/c/z-")]);
        done(&mut owned, &[delete("/c/z-7")], vec![NodeOpDone::Deleted]);
        assert_eq!(owned.deleted(vec!["/c/z-7".to_owned()]), ["/c/z-7"]);
    }

    fn create_as(mode: NodeMode, path: &str) -> NodeOp {
        NodeOp::Create(NewNode {
            path: path.to_owned(),
            data: Default::default(),
            mode,
        })
    }

    #[test]
    fn node_of_any_lost_create_is_spared_and_no_other() {
        let mut owned = Owned::on("one");
        owned.sent(&[create("/a/x-"), create("/b/y-")]);
        owned.sent(&[create_as(NodeMode::Ephemeral, "/c/own")]);
        // What lives in these does not go with the session because of them.
        owned.sent(&[create_as(NodeMode::Persistent, "/d")]);
        owned.sent(&[create_as(NodeMode::Container, "/e")]);
        let nodes = ["/a/x-1", "/b/y-2", "/c/own", "/d/x-3", "/e/x-4", "/f"];
        let nodes = nodes.map(ToOwned::to_owned);
        assert_eq!(owned.deleted(nodes.to_vec()), nodes[3..]);
        // A create that has not reached this run never will.
        assert_eq!(owned.deleted(vec!["/b/y-5".to_owned()]), ["/b/y-5"]);
    }

    #[test]
    fn create_that_was_answered_spares_the_node_that_it_has_made_only() {
        let mut owned = Owned::on("one");
        done(&mut owned, &[create("/a/x-")], vec![made("/a/x-1")]);
        let nodes = ["/a/x-1", "/a/x-7"].map(ToOwned::to_owned);
        assert_eq!(owned.deleted(nodes.to_vec()), nodes[1..]);
    }

    #[test]
    fn nodes_are_gone_whose_paths_begin_so_and_no_others() {
        let mut owned = Owned::on("one");
        let paths = ["/a/a-1", "/b/z-8", "/b/z-9", "/c/c-1"].map(ToOwned::to_owned);
        for path in &paths {
            let create = create(path.split('-').next().unwrap());
            done(&mut owned, &[create], vec![made(path)]);
        }
        owned.all_gone("/b/z");
        assert_eq!(owned.deleted(paths.to_vec()), paths[1..3]);
    }
}
