//! Who may use which node.

use std::fmt;
use std::sync::Arc;

use recipes_core::{ConfigError, NewNode, NodeOp};
use zookeeper_client::{Acl, Acls};

type AclByPath = dyn Fn(&str) -> Option<Vec<Acl>> + Send + Sync;

/// The ACL of each node, like Curator's `ACLProvider`.
#[doc(hidden)]
#[derive(Clone)]
pub struct AclSource {
    default: Arc<[Acl]>,
    by_path: Option<Arc<AclByPath>>,
}

impl Default for AclSource {
    /// Open to everyone, as in Curator.
    fn default() -> Self {
        Self {
            default: Acls::anyone_all().to_vec().into(),
            by_path: None,
        }
    }
}

impl fmt::Debug for AclSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_path = self.by_path.is_some();
        f.debug_struct("AclSource")
            .field("default", &self.default)
            .field("by_path", &by_path)
            .finish()
    }
}

impl AclSource {
    pub(crate) fn set_default(&mut self, acl: &[Acl]) -> Result<(), ConfigError> {
        if acl.is_empty() {
            return Err(ConfigError::EmptyAcl);
        }
        self.default = acl.into();
        Ok(())
    }

    pub(crate) fn set_by_path(&mut self, acl: Arc<AclByPath>) {
        self.by_path = Some(acl);
    }

    /// The ACL of a node to create. For a lock node, its path is without the sequence number.
    #[must_use]
    pub fn of(&self, node: &NewNode) -> Arc<[Acl]> {
        match self.by_path.as_ref().and_then(|it| it(&node.path)) {
            Some(acl) => acl.into(),
            None => Arc::clone(&self.default),
        }
    }

    /// The ACL of each operation, of those that create no node an empty one.
    #[must_use]
    pub fn of_each(&self, operations: &[NodeOp]) -> Vec<Arc<[Acl]>> {
        let acls = operations.iter().map(|operation| match operation {
            NodeOp::Create(node) => self.of(node),
            NodeOp::Delete { .. } | NodeOp::Set { .. } | NodeOp::Check { .. } => Arc::default(),
        });
        acls.collect()
    }
}
