//! Nodes, as an operator sees and changes them.

use std::sync::Arc;

use recipes_core::{NewNode, NodeMode, NodeStat, NodesError};

use super::acl::Acl;
use super::ensemble::MemoryEnsemble;
use super::state::request::Proposed;
use super::tree::access::Access;
use super::tree::node_path::NodePath;

/// Nodes, as an operator sees and changes them.
impl MemoryEnsemble {
    /// Names of the children, sorted; empty if the node does not exist.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        let Ok(path) = NodePath::parse(path) else {
            return Vec::new();
        };
        self.shared.with(|state| state.tree.children(&path))
    }

    /// Whether a node exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.stat(path).is_some()
    }

    /// Data of a node.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        let path = NodePath::parse(path).ok()?;
        self.shared
            .with(|state| state.tree.get(&path).map(|node| node.data.to_vec()))
    }

    /// What the ensemble knows about a node.
    #[must_use]
    pub fn stat(&self, path: &str) -> Option<NodeStat> {
        let path = NodePath::parse(path).ok()?;
        self.shared
            .with(|state| state.tree.get(&path).map(|node| node.stat()))
    }

    /// Creates a persistent node that everyone may use, and its missing parents.
    ///
    /// # Errors
    ///
    /// `NodeExists`; `Refused` for an invalid path or a parent that is ephemeral. Parents that were
    /// made stay.
    pub fn create(&self, path: &str, data: &[u8]) -> Result<(), NodesError> {
        self.create_with(path, data, Acl::open())
    }

    /// Creates a persistent node with this access control list, and its missing parents, which
    /// everyone may use.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); also `Refused` if the list is empty or names the creator.
    #[cfg(feature = "zookeeper")]
    pub fn create_with_acl(
        &self,
        path: &str,
        data: &[u8],
        acl: &[recipes_zookeeper::Acl],
    ) -> Result<(), NodesError> {
        self.create_with(path, data, acl.iter().map(Acl::from).collect())
    }

    fn create_with(&self, path: &str, data: &[u8], acl: Arc<[Acl]>) -> Result<(), NodesError> {
        let leaf = NodePath::parse(path)?;
        let mut missing = Vec::new();
        let mut parent = leaf.parent();
        // The loop ends at the root.
        while let Some(path) = parent.filter(|path| !self.exists(&path.to_string())) {
            missing.push(path.to_string());
            parent = path.parent();
        }
        for path in missing.into_iter().rev() {
            let made = self.create_one(0, persistent(path, &[]), Acl::open());
            // Another task may create it at the same time.
            if !matches!(made, Ok(_) | Err(NodesError::NodeExists)) {
                return made.map(drop);
            }
        }
        let node = persistent(path.to_owned(), data);
        self.create_one(0, node, acl).map(drop)
    }

    /// Creates a node that everyone may use, as if a session had done so. An ephemeral node is deleted with that session.
    /// Returns the full path, with the sequence.
    ///
    /// # Errors
    ///
    /// `SessionEnded` if the session is not alive, `NoNode` without a parent, `NodeExists`,
    /// `Unsupported` for a container where they are switched off, `Refused` otherwise.
    #[doc(hidden)]
    pub fn create_as(&self, session: i64, node: &NewNode) -> Result<String, NodesError> {
        if !self.shared.with(|state| state.is_live(session)) {
            return Err(NodesError::SessionEnded);
        }
        self.create_one(session, node.clone(), Acl::open())
    }

    /// Replaces the data of a node.
    ///
    /// # Errors
    ///
    /// `NoNode`; `Refused` for an invalid path.
    pub fn set_data(&self, path: &str, data: &[u8]) -> Result<(), NodesError> {
        let path = NodePath::parse(path)?;
        self.shared.with(|state| {
            state.transact(|tree, transaction| {
                tree.set(transaction, &path, data, None, &Access::Operator)
                    .map(drop)
            })
        })
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// `NoNode`; `Refused` for a node with children or an invalid path.
    pub fn delete(&self, path: &str) -> Result<(), NodesError> {
        let path = NodePath::parse(path)?;
        self.shared.with(|state| {
            state.transact(|tree, transaction| {
                tree.delete(transaction, &path, None, &Access::Operator)
            })
        })
    }

    /// Deletes the containers that are empty and have had a child, as a server does once a minute.
    /// Returns their paths. A container that becomes empty through this is deleted the next time.
    pub fn reap_containers(&self) -> Vec<String> {
        self.shared.with(|state| {
            let abandoned = state.tree.abandoned_containers();
            let reap = |path: &NodePath| {
                let deleted = state.transact(|tree, transaction| {
                    tree.delete(transaction, path, None, &Access::Operator)
                });
                deleted.is_ok().then(|| path.to_string())
            };
            abandoned.iter().filter_map(reap).collect()
        })
    }

    /// Sets the sequence that the next sequential child of a directory gets.
    ///
    /// # Errors
    ///
    /// `NoNode`; `Refused` for an invalid path.
    pub fn set_sequence(&self, path: &str, next: i32) -> Result<(), NodesError> {
        let path = NodePath::parse(path)?;
        self.shared
            .with(|state| state.tree.set_sequence(&path, next))
    }

    /// A readable dump of all nodes, parents first.
    #[must_use]
    pub fn tree(&self) -> String {
        self.shared.with(|state| state.tree.dump())
    }

    /// The number of the last transaction.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.shared.with(|state| state.zxid)
    }

    fn create_one(
        &self,
        session: i64,
        node: NewNode,
        acl: Arc<[Acl]>,
    ) -> Result<String, NodesError> {
        let proposed = Proposed { node, acl };
        let created = self
            .shared
            .with(|state| state.create(session, &proposed, &Access::Operator));
        created.map(|created| created.path)
    }
}

fn persistent(path: String, data: &[u8]) -> NewNode {
    NewNode {
        path,
        data: data.into(),
        mode: NodeMode::Persistent,
    }
}
