//! How large a request to ZooKeeper may be, or to its double.

use thiserror::Error;

use crate::store::nodes::{NewNode, NodeOp};

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
    /// Servers take requests of up to that many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max }
    }

    /// Whether servers take the create of this node. `acl` is its access control list: the scheme
    /// and the identity of each entry.
    ///
    /// # Errors
    /// If they do not.
    pub fn check_create<'a>(
        self,
        node: &NewNode,
        acl: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), RequestTooLarge> {
        self.check_bytes(OVERHEAD_BYTES + create_bytes(node) + acl_bytes(acl))
    }

    /// Whether servers take this transaction. `acls` are the entries of the access control lists of
    /// all nodes that it creates.
    ///
    /// # Errors
    /// If they do not.
    pub fn check<'a>(
        self,
        operations: &[NodeOp],
        acls: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), RequestTooLarge> {
        let bytes = operations.iter().map(bytes).sum::<usize>();
        self.check_bytes(OVERHEAD_BYTES + bytes + acl_bytes(acls))
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
fn bytes(operation: &NodeOp) -> usize {
    match operation {
        NodeOp::Create(node) => create_bytes(node),
        NodeOp::Delete { path, .. } | NodeOp::Check { path, .. } => OVERHEAD_BYTES + path.len(),
        NodeOp::Set { path, data, .. } => OVERHEAD_BYTES + path.len() + data.len(),
    }
}

fn create_bytes(node: &NewNode) -> usize {
    OVERHEAD_BYTES + node.path.len() + node.data.len()
}

fn acl_bytes<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> usize {
    let entry = |(scheme, id): (&str, &str)| OVERHEAD_BYTES + scheme.len() + id.len();
    entries.into_iter().map(entry).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::nodes::NodeMode;

    const ANYONE: (&str, &str) = ("world", "anyone");

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
        limit.check_create(&node(800), [ANYONE]).unwrap();
        limit.check_create(&node(1_000), [ANYONE]).unwrap_err();
        limit.check_create(&node(800), [ANYONE; 20]).unwrap_err();
    }

    #[test]
    fn operations_of_a_transaction_count_together() {
        let fit = 0xf_ffff / 2 - 200;
        let two = |bytes| vec![NodeOp::Create(node(bytes)); 2];
        let limit = RequestLimit::default();
        limit.check(&two(fit), [ANYONE; 2]).unwrap();
        let error = limit.check(&two(fit + 200), [ANYONE; 2]);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("than the 1048575 that"), "{text}");
        let set = NodeOp::Set {
            path: "/a".to_owned(),
            data: vec![0; 0x10_0000],
            version: None,
        };
        limit.check(&[set], []).unwrap_err();
    }

    #[test]
    fn paths_count_in_every_operation() {
        let (path, version) = (|| "x".repeat(600), None);
        let create = NodeOp::Create(NewNode {
            path: path(),
            ..node(0)
        });
        let set = NodeOp::Set {
            path: path(),
            data: Vec::new(),
            version,
        };
        let delete = NodeOp::Delete {
            path: path(),
            version,
        };
        let check = NodeOp::Check {
            path: path(),
            version,
        };
        let limit = RequestLimit::new(1_000);
        for operation in [create, set, delete, check] {
            limit.check(std::slice::from_ref(&operation), []).unwrap();
            limit
                .check(&[operation.clone(), operation], [])
                .unwrap_err();
        }
    }
}
