//! A lock to acquire: which one, how, and for whom.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::{AcquireError, Step};
use crate::lock::lease_state::{GuardState, LeaseState};
use crate::lock::lock_path::LockPath;
use crate::names::node_name::{self, LockKind};
use crate::names::owner::OwnerLabel;
use crate::rules::admission::Place;
use crate::store::nodes::{NewNode, NodeMode, NodeOp, NodesError};

/// The writer that a reader of the same owner goes next to.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) lease: Arc<LeaseState>,
    /// The number in its node's name, as it stands there. The reader's node has the same.
    sequence: String,
}

/// The name of a node has no number, so no place in the queue can be derived from it.
#[derive(Debug, Error)]
#[error("the name of {node} does not end in a sequence number")]
struct Unnumbered {
    node: String,
}

impl Writer {
    /// # Errors
    /// [`AcquireError`] if the writer's node has no number, which no store gives.
    pub(crate) fn new(lease: Arc<LeaseState>) -> Result<Self, AcquireError> {
        let name = node_name::last_part(&lease.node.path);
        let Some(sequence) = node_name::sequence_text(name).map(str::to_owned) else {
            let node = lease.node.path.clone();
            let source = NodesError::Refused(Arc::new(Unnumbered { node }));
            return Err(AcquireError::refused(
                &lease.node.lock_path,
                Step::Create,
                source,
            ));
        };
        Ok(Self { lease, sequence })
    }
}

/// One lock of the set that is acquired.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) lock: Arc<LockPath>,
    pub(crate) kind: LockKind,
    /// The writer that a reader of the same owner goes next to.
    pub(crate) beside: Option<Writer>,
    /// The owner, for the node's record. `None` if several owners share the node.
    pub(crate) owner: Option<OwnerLabel>,
    /// How many permits the semaphore has of which this is a lease.
    pub(crate) permits: Option<Permits>,
    /// What the node contains; `None` for the data of its lock or its session.
    pub(crate) data: Option<Arc<[u8]>>,
}

/// How many permits a semaphore has, and changes of that.
pub(crate) type Permits = watch::Receiver<usize>;

impl Target {
    /// Ties the writer that the reader goes next to, if any; false if it is released already.
    fn tie_writer(&self) -> bool {
        let writer = self.beside.as_ref();
        writer.is_none_or(|writer| writer.lease.tie())
    }

    /// How many permits the semaphore has of which one of these is a lease.
    pub(crate) fn permits(targets: &[Self]) -> Option<&Permits> {
        targets.iter().find_map(|target| target.permits.as_ref())
    }

    fn untie_writer(&self) {
        if let Some(writer) = &self.beside {
            writer.lease.untie();
        }
    }

    /// Ties the writers of all targets or none; false if one of them is released already.
    pub(crate) fn tie_writers(targets: &[Self]) -> bool {
        let released = targets.iter().position(|target| !target.tie_writer());
        if let Some(released) = released {
            targets
                .iter()
                .take(released + 1)
                .for_each(Self::untie_writer);
        }
        released.is_none()
    }

    /// Whether the writer that the reader goes next to is lost. What is left of it may be in the
    /// store, but a loss is final.
    pub(crate) fn has_lost_writer(&self) -> bool {
        let writer = self.beside.as_ref().map(|writer| &writer.lease);
        writer.is_some_and(|it| !it.is_released() && matches!(it.state(), GuardState::Lost(_)))
    }

    pub(crate) fn place(&self) -> Place {
        match &self.beside {
            Some(writer) => Place::Beside {
                session: writer.lease.node.session_id(),
            },
            None => Place::Tail,
        }
    }

    /// The node to create, and a check that must hold for it, if any.
    pub(crate) fn creation(&self, uuid: Uuid) -> (Option<NodeOp>, NewNode) {
        let new_node = |name: &str, mode| NewNode {
            path: self.lock.node_path(name),
            data: match &self.data {
                Some(data) => Arc::clone(data),
                None => self.lock.node_data(self.kind, self.owner),
            },
            mode,
        };
        let Some(writer) = &self.beside else {
            let name = node_name::requested(uuid, self.kind);
            return (None, new_node(&name, NodeMode::EphemeralSequential));
        };
        let name = node_name::beside(uuid, self.kind, &writer.sequence);
        let writer_exists = NodeOp::Check {
            path: writer.lease.node.path.clone(),
            version: None,
        };
        (Some(writer_exists), new_node(&name, NodeMode::Ephemeral))
    }
}
