//! Options of one session.

use std::fmt;
use std::sync::Arc;

use recipes_core::{NewNode, NodeOp, RequestLimit, SessionOptions};

use super::acl::Acl;

type AclOf = dyn Fn(&NewNode) -> Arc<[Acl]> + Send + Sync;

/// Options of a session of a [`MemoryEnsemble`](crate::MemoryEnsemble): made from
/// [`SessionOptions`], and with the feature `zookeeper` also from a `ZooKeeperBuilder`, which adds
/// access control lists and the largest request.
#[derive(Clone)]
pub struct MemoryOptions {
    pub(super) options: SessionOptions,
    pub(super) rules: NodeRules,
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Whose nodes are open to everyone.
impl From<SessionOptions> for MemoryOptions {
    fn from(options: SessionOptions) -> Self {
        let open = Acl::open();
        let rules = NodeRules {
            acl_of: Arc::new(move |_| Arc::clone(&open)),
            limit: RequestLimit::default(),
        };
        Self { options, rules }
    }
}

/// The transport of these options has no effect in memory, and neither have credentials.
#[cfg(feature = "zookeeper")]
impl From<recipes_zookeeper::ZooKeeperBuilder> for MemoryOptions {
    fn from(options: recipes_zookeeper::ZooKeeperBuilder) -> Self {
        let (options, source, limit) = options.into_parts();
        let rules = NodeRules {
            acl_of: Arc::new(move |node| source.of(node).iter().map(Acl::from).collect()),
            limit,
        };
        Self { options, rules }
    }
}

/// Who may use the nodes that a session creates, and how large its requests may be.
#[derive(Clone)]
pub(crate) struct NodeRules {
    acl_of: Arc<AclOf>,
    pub(crate) limit: RequestLimit,
}

impl NodeRules {
    /// The list of a node to create.
    pub(crate) fn acl_of(&self, node: &NewNode) -> Arc<[Acl]> {
        (self.acl_of)(node)
    }

    /// The list of each operation, of those that create no node an empty one.
    pub(crate) fn acl_of_each(&self, operations: &[NodeOp]) -> Vec<Arc<[Acl]>> {
        let acls = operations.iter().map(|operation| match operation {
            NodeOp::Create(node) => self.acl_of(node),
            NodeOp::Delete { .. } | NodeOp::Set { .. } | NodeOp::Check { .. } => Arc::default(),
        });
        acls.collect()
    }
}
