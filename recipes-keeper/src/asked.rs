//! What is asked of the functions, and in which words.

use std::sync::Arc;

use recipes_core::{NodeMode, NodeOp};

use crate::wire::Words;

/// One request, as `requests.lua` of `recipes-redis` lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of these operations, or none.
    Multi(Arc<[NodeOp]>),
    List(String),
    /// A listing for the contender with this node; with that of this call if there is no name.
    Look {
        directory: String,
        own: String,
        watches: Vec<u64>,
    },
    Read(String),
    Stat(String),
    Watch(String, u64),
    Unwatch(String),
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

    /// The operations of a transaction.
    pub(crate) fn operations(&self) -> &[NodeOp] {
        match self {
            Self::Multi(operations) => operations,
            _ => &[],
        }
    }

    /// About how long it is.
    pub(crate) fn bytes(&self) -> usize {
        let of = |operation: &NodeOp| match operation {
            NodeOp::Create(node) => node.path.len() + node.data.len(),
            NodeOp::Set { path, data, .. } => path.len() + data.len(),
            NodeOp::Delete { path, .. } | NodeOp::Check { path, .. } => path.len(),
        };
        match self {
            Self::Multi(operations) => operations.iter().map(of).sum(),
            Self::Look { directory, own, .. } => directory.len() + own.len(),
            Self::List(path) | Self::Read(path) | Self::Stat(path) | Self::Unwatch(path) => {
                path.len()
            }
            Self::Watch(path, _) => path.len(),
            Self::Beat => 0,
        }
    }

    /// Adds its words to the call.
    pub(crate) fn say(&self, call: &mut Words) {
        match self {
            Self::Multi(operations) => {
                call.arg("multi").number(operations.len());
                for operation in operations.iter() {
                    say(operation, call);
                }
                call
            }
            Self::List(path) => call.arg("list").arg(path),
            Self::Look {
                directory,
                own,
                watches,
            } => {
                call.arg("look").arg(directory).arg(own);
                for number in watches {
                    call.number(number);
                }
                call
            }
            Self::Read(path) => call.arg("read").arg(path),
            Self::Stat(path) => call.arg("stat").arg(path),
            Self::Watch(path, number) => call.arg("watch").arg(path).number(number),
            Self::Unwatch(path) => call.arg("unwatch").arg(path),
            Self::Beat => call.arg("beat"),
        };
    }
}

fn say(operation: &NodeOp, call: &mut Words) {
    match operation {
        NodeOp::Create(node) => {
            let kind = match node.mode {
                NodeMode::Persistent => "P",
                NodeMode::Container => "C",
                NodeMode::Ephemeral => "E",
                NodeMode::EphemeralSequential => "S",
            };
            let create = call.arg("create").arg(&node.path);
            create.arg(&*node.data).arg(kind);
        }
        NodeOp::Delete { path, version } => at(version, call.arg("delete").arg(path)),
        NodeOp::Set {
            path,
            data,
            version,
        } => at(version, call.arg("set").arg(path).arg(data)),
        NodeOp::Check { path, version } => at(version, call.arg("check").arg(path)),
    }
}

/// Any version is an empty word.
fn at(version: &Option<i32>, call: &mut Words) {
    match version {
        Some(version) => call.number(version),
        None => call.arg(""),
    };
}
