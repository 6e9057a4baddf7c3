//! A lock to acquire: which one, how, and for whom.

use std::sync::Arc;

use uuid::Uuid;

use crate::lock::lease_state::LeaseState;
use crate::lock::lock_path::LockPath;
use crate::names::node_name::{self, LockKind};
use crate::names::owner::OwnerLabel;
use crate::rules::admission::Place;
use crate::store::nodes::{NewNode, NodeMode, NodeOp};

/// One lock of the set that is acquired.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) lock: Arc<LockPath>,
    pub(crate) kind: LockKind,
    /// The writer that a reader of the same owner goes next to.
    pub(crate) beside: Option<Arc<LeaseState>>,
    /// The owner, for the node's record. `None` if several owners share the node.
    pub(crate) owner: Option<OwnerLabel>,
}

impl Target {
    pub(crate) fn place(&self) -> Place {
        match &self.beside {
            Some(writer) => Place::Beside {
                session: writer.session_id(),
            },
            None => Place::Tail,
        }
    }

    /// The node to create, and a check that must hold for it, if any.
    pub(crate) fn creation(&self, uuid: Uuid) -> (Option<NodeOp>, NewNode) {
        let Some(writer) = &self.beside else {
            let name = node_name::requested(uuid, self.kind);
            return (
                None,
                self.lock
                    .new_node(&name, self.kind, NodeMode::EphemeralSequential, self.owner),
            );
        };
        let writer_name = node_name::last_part(&writer.node_path);
        let sequence = node_name::sequence_text(writer_name).unwrap_or_default();
        let name = node_name::beside(uuid, self.kind, sequence);
        let writer_exists = NodeOp::Check {
            path: writer.node_path.clone(),
            version: None,
        };
        let node = self
            .lock
            .new_node(&name, self.kind, NodeMode::Ephemeral, self.owner);
        (Some(writer_exists), node)
    }
}
