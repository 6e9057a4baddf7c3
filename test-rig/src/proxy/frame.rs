//! A frame, as rules and the log show it.

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

/// The kind of a request, or of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Opcode {
    /// The first frame of each direction: a session is opened or resumed.
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
    /// Heartbeat of the client.
    Ping,
    /// Close the session.
    CloseSession,
    /// A watch has fired, or Redis, etcd or a database has sent what nobody asked for; from the server
    /// only.
    Notification,
    /// Another request, by its number in ZooKeeper's `ZooDefs.OpCode`.
    Other(i32),
    /// A request to Redis. Its [names](Frame::names) say which.
    Redis,
    /// A message to PostgreSQL or MySQL, or an answer. Its [names](Frame::names) say which.
    Sql,
    /// A request to etcd, or an answer. Its [names](Frame::names) say which.
    Etcd,
    /// Not understood, such as a reply that belongs to no request.
    Unknown,
}

/// What the proxy did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Forwarded whole, perhaps late or in pieces.
    Passed,
    /// Read and not forwarded.
    Swallowed,
    /// Only half of it was forwarded.
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
    /// The kind of request. A reply has the kind of its request.
    pub opcode: Opcode,
    /// What it is called. A reply is called as its request.
    ///
    /// - ZooKeeper: the name of the opcode.
    /// - Redis: the command, as `HELLO` or `FUNCTION LOAD`. A call of a function of the store is `open`,
    ///   `resume` or `close`, or all requests that are in it, each kind once: `look`, `list`, `read`,
    ///   `stat`, `watch`, `unwatch`, `beat`, `multi create`, `multi delete`, `multi set`,
    ///   `multi check`. News are what Redis calls them, as `message`.
    /// - etcd: a request and the messages that answer it have the method of gRPC, as `LeaseGrant`. A watch is
    ///   `watch` and `unwatch`, and what it tells is `news`. A transaction comes with all that is in it, each kind
    ///   once: `look`, `read`, `count`, `local read`, `multi create`, `multi delete`, `multi set`,
    ///   `multi check`; `resume` if a session goes on, `prove` if there is nothing else in it; last `Txn`. The frames before
    ///   and after an answer are `.. HEADERS` and `.. TRAILERS`, as `look TRAILERS`, and the end of a request is `.. END`. What belongs to no call is what
    ///   HTTP/2 calls it, as `PING`, and the first bytes are `PRI`.
    /// - Databases: the statement with the message, as `requests Bind` or `COMMIT Query`; then each
    ///   by itself. A statement is the function or procedure that it calls, or its first word.
    ///   Answers have the statement, and a message of their own, as `requests DataRow`. What belongs
    ///   to no statement is only the message. An error also has its SQLSTATE, as `40001`.
    pub names: Vec<String>,
    /// Nodes that it names, all in order for a transaction. A reply has those of its request. Paths
    /// are as sent: below the client's chroot, and without the sequence of a create.
    pub paths: Vec<String>,
    /// Whether it sets a watch, or answers such a request.
    pub watch: bool,
    /// The client's number of the request, `None` for [`Opcode::Connect`]. etcd has the
    /// number of the stream. Redis and PostgreSQL have none, and MySQL counts anew; there requests are
    /// counted from 1 on each connection.
    pub xid: Option<i32>,
    /// The last transaction that the server had seen. Only in replies and notifications.
    pub zxid: Option<i64>,
    /// ZooKeeper's or MySQL's error code, or gRPC's, 0 for none. Only in replies; on etcd, in their trailers. Redis and PostgreSQL have no
    /// numbers; there every error is -1.
    pub error: Option<i32>,
    /// Its length, all included.
    pub bytes: usize,
    /// When the proxy had read the whole of it.
    pub arrived: Instant,
    /// What the proxy did with it.
    pub fate: Fate,
}

impl Frame {
    pub(super) fn new(
        (connection, direction): (u64, Direction),
        message: Message,
        bytes: usize,
        arrived: Instant,
    ) -> Self {
        let names = match message.names.is_empty() {
            true => vec![format!("{:?}", message.opcode)],
            false => message.names,
        };
        Self {
            connection,
            direction,
            opcode: message.opcode,
            names,
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
