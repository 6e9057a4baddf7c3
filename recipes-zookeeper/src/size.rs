//! How large a request may be.

use std::sync::Arc;

use recipes_core::{NewNode, NodeOp};
use thiserror::Error;
use zookeeper_client::Acl;

/// The fixed part of a request, and of each operation in it: numbers, flags and lengths.
const OVERHEAD_BYTES: usize = 32;

/// A request that is not sent, because it is too large.
#[doc(hidden)]
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("request of {bytes} bytes is larger than the {bytes_max} that servers take")]
pub struct RequestTooLarge {
    bytes: usize,
    bytes_max: usize,
}

/// The largest write that is sent. Servers answer a larger one by closing the connection, each time
/// it is sent. That looks like a lost connection.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct RequestLimit {
    bytes_max: usize,
}

impl Default for RequestLimit {
    /// As servers have it by default (`jute.maxbuffer`).
    fn default() -> Self {
        Self::new(0xf_ffff)
    }
}

impl RequestLimit {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max }
    }

    /// Whether servers take the create of this node.
    ///
    /// # Errors
    /// If they do not.
    pub fn check_create(self, node: &NewNode, acl: &[Acl]) -> Result<(), RequestTooLarge> {
        self.check_bytes(OVERHEAD_BYTES + create_bytes(node, acl))
    }

    /// Whether servers take this transaction, which gives the nodes that it creates these ACLs.
    ///
    /// # Errors
    /// If they do not.
    pub fn check(self, operations: &[NodeOp], acls: &[Arc<[Acl]>]) -> Result<(), RequestTooLarge> {
        let operations = operations.iter().zip(acls);
        let bytes = operations.map(|(operation, acl)| bytes(operation, acl));
        self.check_bytes(OVERHEAD_BYTES + bytes.sum::<usize>())
    }

    fn check_bytes(self, bytes: usize) -> Result<(), RequestTooLarge> {
        let Self { bytes_max } = self;
        match bytes > bytes_max {
            true => Err(RequestTooLarge { bytes, bytes_max }),
            false => Ok(()),
        }
    }
}

/// Size on the wire, rounded up.
fn bytes(operation: &NodeOp, acl: &[Acl]) -> usize {
    match operation {
        NodeOp::Create(node) => create_bytes(node, acl),
        NodeOp::Delete { path, .. } | NodeOp::Check { path, .. } => OVERHEAD_BYTES + path.len(),
        NodeOp::Set { path, data, .. } => OVERHEAD_BYTES + path.len() + data.len(),
    }
}

fn create_bytes(node: &NewNode, acl: &[Acl]) -> usize {
    let entry = |it: &Acl| OVERHEAD_BYTES + it.scheme().len() + it.id().len();
    let acl = acl.iter().map(entry).sum::<usize>();
    OVERHEAD_BYTES + node.path.len() + node.data.len() + acl
}

#[cfg(test)]
mod tests {
    use recipes_core::NodeMode;
    use zookeeper_client::Acls;

    use super::*;

    fn node(bytes: usize) -> NewNode {
        NewNode {
            path: "/locks/a".to_owned(),
            data: vec![0; bytes].into(),
            mode: NodeMode::Ephemeral,
        }
    }

    #[test]
    fn data_and_access_count() {
        let limit = RequestLimit::new(1_000);
        let open = Acls::anyone_all().to_vec();
        limit.check_create(&node(800), &open).unwrap();
        limit.check_create(&node(1_000), &open).unwrap_err();
        let long = vec![open[0].clone(); 20];
        limit.check_create(&node(800), &long).unwrap_err();
    }

    #[test]
    fn operations_of_a_transaction_count_together() {
        let acl: Arc<[Acl]> = Acls::anyone_all().to_vec().into();
        let fit = 0xf_ffff / 2 - 200;
        let two = |bytes| vec![NodeOp::Create(node(bytes)); 2];
        let acls = vec![Arc::clone(&acl); 2];
        RequestLimit::default().check(&two(fit), &acls).unwrap();
        let error = RequestLimit::default().check(&two(fit + 200), &acls);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("than the 1048575 that"), "{text}");
        let set = NodeOp::Set {
            path: "/a".to_owned(),
            data: vec![0; 0x10_0000],
            version: None,
        };
        let refused = RequestLimit::default().check(&[set], &[Arc::default()]);
        refused.unwrap_err();
    }
}
