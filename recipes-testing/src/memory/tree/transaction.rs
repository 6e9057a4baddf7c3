//! One change of the tree, as long as it can still be undone.

use recipes_core::NodeEvent;

use super::history::Change;
use super::node_path::NodePath;
use super::tree::Node;

/// What a transaction has done so far.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) zxid: i64,
    pub(super) time_ms: i64,
    /// The previous node at each touched path, oldest first.
    pub(super) undo: Vec<(NodePath, Option<Node>)>,
    /// Children that came and went.
    pub(super) changes: Vec<Change>,
    /// The events that watches get once it is committed.
    pub(super) events: Vec<(String, NodeEvent)>,
}

impl Transaction {
    pub(super) fn new(zxid: i64, time_ms: i64) -> Self {
        Self {
            zxid,
            time_ms,
            undo: Vec::new(),
            changes: Vec::new(),
            events: Vec::new(),
        }
    }
}
