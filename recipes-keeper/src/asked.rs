//! What is asked of a server.

use std::sync::Arc;

use recipes_core::{NodeMode, NodeOp};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All of these operations, or none.
    Multi(Arc<[NodeOp]>),
    /// The names of a directory's nodes.
    List(String),
    /// A listing for a contender. If others are ahead of its node, the node itself and the two right ahead
    /// of it are watched, as far as the session does not watch them yet: what the contender would ask for next.
    Look {
        /// What is listed.
        directory: String,
        /// The name of the contender's node. `None`: the last one that this call has created there.
        own: Option<String>,
        /// The numbers of the watches are this one and the two after it.
        first: u64,
    },
    /// Data and stat of a node.
    Read(String),
    /// The stat of a node.
    Stat(String),
    /// As a read, of a node that is watched from now on, under this number.
    Watch(String, u64),
    /// The session does not want any news of a node any more.
    Unwatch(String),
    /// The session lives.
    Beat,
}

impl Asked {
    /// Whether it is for others than who waits for the answer: it changes something.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Multi(operations) => {
                let is_check = |it: &NodeOp| matches!(it, NodeOp::Check { .. });
                !operations.iter().all(is_check)
            }
            Self::List(_) | Self::Look { .. } | Self::Read(_) | Self::Stat(_) => false,
            Self::Watch(..) => false,
            Self::Unwatch(_) | Self::Beat => true,
        }
    }

    /// Whether the answer has all names of a directory.
    pub(crate) fn lists(&self) -> bool {
        matches!(self, Self::List(_) | Self::Look { .. })
    }

    /// Whether it sets watches.
    pub fn watches(&self) -> bool {
        matches!(self, Self::Look { .. } | Self::Watch(..))
    }

    /// Whether it deletes or changes nodes that somebody may watch.
    pub fn tells(&self) -> bool {
        let tells = |it: &NodeOp| matches!(it, NodeOp::Delete { .. } | NodeOp::Set { .. });
        self.operations().iter().any(tells)
    }

    /// The operations of a transaction.
    pub(crate) fn operations(&self) -> &[NodeOp] {
        match self {
            Self::Multi(operations) => operations,
            _ => &[],
        }
    }

    /// About how long it is.
    pub(crate) fn bytes(&self) -> usize {
        let data = |operation: &NodeOp| match operation {
            NodeOp::Create(node) => node.data.len(),
            NodeOp::Set { data, .. } => data.len(),
            NodeOp::Delete { .. } | NodeOp::Check { .. } => 0,
        };
        let of = |operation: &NodeOp| operation.path().len() + data(operation);
        match self {
            Self::Multi(operations) => operations.iter().map(of).sum(),
            Self::Look { directory, own, .. } => {
                directory.len() + own.as_ref().map_or(0, String::len)
            }
            Self::List(path) | Self::Read(path) | Self::Stat(path) => path.len(),
            Self::Unwatch(path) | Self::Watch(path, _) => path.len(),
            Self::Beat => 0,
        }
    }
}

/// The mode of a node, as all servers are told.
pub fn letter(mode: NodeMode) -> &'static str {
    match mode {
        NodeMode::Persistent => "P",
        NodeMode::Container => "C",
        NodeMode::Ephemeral => "E",
        NodeMode::EphemeralSequential => "S",
    }
}

/// The version that a node must have. Any is an empty word.
pub fn version_word(version: Option<i32>) -> String {
    version.map(|it| it.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use recipes_core::NewNode;

    use super::*;

    #[test]
    fn request_is_as_long_as_its_paths_and_data() {
        let path = || "/a/b".to_owned();
        let version = None;
        let create = NodeOp::Create(NewNode {
            path: path(),
            data: Arc::from([7; 10]),
            mode: NodeMode::Persistent,
        });
        let set = NodeOp::Set {
            path: path(),
            data: vec![7; 10],
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
        let look = |own: Option<&str>| Asked::Look {
            directory: path(),
            own: own.map(ToOwned::to_owned),
            first: 1,
        };
        let tells = |operation: &NodeOp| Asked::Multi([operation.clone()].into()).tells();
        assert!(tells(&set) && tells(&delete) && !tells(&create) && !tells(&check));
        assert_eq!(
            Asked::Multi([create, set, delete, check].into()).bytes(),
            36
        );
        let all = [
            (look(Some("own")), 7),
            (look(None), 4),
            (Asked::List(path()), 4),
            (Asked::Read(path()), 4),
            (Asked::Stat(path()), 4),
            (Asked::Watch(path(), 1), 4),
            (Asked::Unwatch(path()), 4),
            (Asked::Beat, 0),
        ];
        for (asked, bytes) in all {
            assert_eq!(asked.bytes(), bytes, "{asked:?}");
            let sets = matches!(asked, Asked::Look { .. } | Asked::Watch(..));
            assert_eq!(asked.watches(), sets, "{asked:?}");
            assert!(!asked.tells(), "{asked:?}");
        }
    }
}
