//! Session, lock driver and pure lock core of `zookeeper-recipes`.

mod backend;
mod nodes;

#[doc(hidden)]
pub use backend::Backend;
pub use nodes::{Acl, NodeStat};
#[doc(hidden)]
pub use nodes::{
    Connection, Created, EndReason, MultiError, NewNode, NodeEvent, NodeMode, NodeOp, NodeOpDone,
    NodeWatch, Nodes, NodesError, Reply,
};
