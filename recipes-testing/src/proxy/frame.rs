//! What a frame is, to those who set rules and read the log.

use tokio::time::Instant;

use super::message::Message;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A request.
    ToServer,
    /// A reply or a notification.
    FromServer,
}

/// What a frame asks for, or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Opcode {
    /// The first frame of each direction: a session is opened or taken up again.
    Connect,
    /// Create a node of any mode: `create`, `create2`, `createContainer`, `createTTL`.
    Create,
    /// Delete a node.
    Delete,
    /// Read the stat of a node.
    Exists,
    /// Read data and stat of a node.
    GetData,
    /// Replace the data of a node.
    SetData,
    /// List the children of a node: `getChildren`, `getChildren2`.
    GetChildren,
    /// Pass through the leader.
    Sync,
    /// A transaction.
    Multi,
    /// Several reads.
    MultiRead,
    /// Set a persistent watch.
    AddWatch,
    /// Remove or check watches.
    RemoveWatches,
    /// Set watches again on a new connection.
    SetWatches,
    /// Authenticate, by scheme or SASL.
    Auth,
    /// The client lives.
    Ping,
    /// Close the session.
    CloseSession,
    /// A watch has fired; from the server only.
    Notification,
    /// Another request, by its number in ZooKeeper's `ZooDefs.OpCode`.
    Other(i32),
    /// Not understood, such as a reply to nothing that was asked.
    Unknown,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Handed on whole, if late or in pieces.
    Passed,
    /// Taken and not handed on.
    Swallowed,
    /// Half of it was handed on.
    Halved,
}

/// A frame that a [`FaultProxy`](crate::FaultProxy) has dealt with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// The connection that it went through, counted from 1.
    pub connection: u64,
    /// Which way it went.
    pub direction: Direction,
    /// What it asks for; of a reply, what was asked.
    pub opcode: Opcode,
    /// Nodes that it names, a reply those of its request; of a transaction, all in order. As sent:
    /// below the client's chroot, and a create's without the sequence.
    pub paths: Vec<String>,
    /// Whether it sets a watch, or answers such a request.
    pub watch: bool,
    /// The client's number of the request, `None` for [`Opcode::Connect`].
    pub xid: Option<i32>,
    /// The last transaction that the server had seen; of replies and notifications.
    pub zxid: Option<i64>,
    /// ZooKeeper's error code, 0 for none; of replies.
    pub error: Option<i32>,
    /// Its length with the prefix.
    pub bytes: usize,
    /// When the proxy had read the whole of it.
    pub arrived: Instant,
    /// What became of it.
    pub fate: Fate,
}

impl Frame {
    pub(super) fn new(
        (connection, direction): (u64, Direction),
        message: Message,
        bytes: usize,
        arrived: Instant,
    ) -> Self {
        Self {
            connection,
            direction,
            opcode: message.opcode,
            paths: message.paths,
            watch: message.watch,
            xid: message.xid,
            zxid: message.zxid,
            error: message.error,
            bytes,
            arrived,
            fate: Fate::Passed,
        }
    }
}
