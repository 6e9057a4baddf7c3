//! One change of the tree, as long as it can still be undone.

use recipes_core::NodeEvent;

use super::Node;
use super::lag::Change;
use super::node_path::NodePath;

/// What a transaction has done so far.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) zxid: i64,
    pub(crate) time_ms: i64,
    /// The previous node at each touched path, oldest first.
    pub(crate) undo: Vec<(NodePath, Option<Node>)>,
    /// Children that came and went.
    pub(crate) changes: Vec<Change>,
    /// The events that watches get once it is committed.
    pub(crate) events: Vec<(String, NodeEvent)>,
}

impl Transaction {
    pub(crate) fn new(zxid: i64, time_ms: i64) -> Self {
        Self {
            zxid,
            time_ms,
            undo: Vec::new(),
            changes: Vec::new(),
            events: Vec::new(),
        }
    }
}
