//! A proxy that breaks connections between clients and servers at chosen frames.
//!
//! | file | noun |
//! |---|---|
//! | `rule` | which frame, and what happens to it |
//! | `frame`, `journal` | what a frame is, and the log of all that passed |
//! | `connection`, `pump` | two sockets, and one direction between them |
//! | `splitter` | from bytes to frames; pure |
//! | `protocol` | what the stores have in common; the rest knows none of them |
//! | `message` | the meaning of ZooKeeper's frames; pure |
//! | `resp`, `redis` | the parts and the meaning of Redis' messages; pure |
//! | `http2`, `protobuf`, `etcd` | the parts of etcd's frames and messages, and what they mean; pure |
//! | `postgres`, `mysql`, `statement` | the same of databases, and what a statement is called; pure |
//! | `shared` | what the connections have in common |

mod connection;
mod etcd;
mod frame;
mod http2;
mod journal;
mod message;
mod mysql;
mod postgres;
mod protobuf;
mod protocol;
mod pump;
#[cfg(test)]
mod recorded;
mod redis;
mod resp;
mod rule;
mod shared;
mod splitter;
mod statement;

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub use frame::{Direction, Fate, Frame, Opcode};
pub use rule::{Cut, Fault, Gate, Injection};

use self::connection::Connections;
use self::protocol::Protocol;
use self::rule::{Act, GateState, Pattern, Turn};
use self::shared::{Flow, Shared};
use recipes_testing::internal::ports::{self, Port};

/// Ports that are tried before giving up.
const STARTS_MAX: usize = 10;

/// How long the proxy's own port may be somebody else's.
const PORT_MAX: Duration = Duration::from_secs(60);

/// A TCP proxy on loopback, in front of one server of ZooKeeper, etcd, Redis, PostgreSQL, MySQL or MariaDB.
/// It understands the frames that it forwards, and injects faults at those that a test names. A frame
/// is a message: a request, an answer, or news.
///
/// It changes nothing until a test sets a rule. It forwards unchanged what it does not understand,
/// such as four-letter words, TLS, and what is malformed. One proxy for each client keeps faults apart.
///
/// Faults come in three kinds:
/// - at a frame: [`on`](Self::on) names it, [`then`](FramePattern::then) breaks the connection
///   there, [`hold`](FramePattern::hold) keeps it until the test lets it go;
/// - of the network: [`black_hole`](Self::black_hole), [`stall`](Self::stall),
///   [`cut_all`](Self::cut_all), [`set_latency`](Self::set_latency);
/// - of the server: [`refuse_connections`](Self::refuse_connections),
///   [`retarget`](Self::retarget).
///
/// All methods take `&self` and may be called from several tasks. It runs in real time. Dropping it
/// closes all connections.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use test_rig::{Cut, Direction, Fault, FaultProxy, Opcode, ZooKeeperServer};
/// use zookeeper_client::{Acls, Client, CreateMode};
///
/// let server = ZooKeeperServer::start().await?;
/// let proxy = FaultProxy::start(&server.connect_string()).await?;
/// let client = Client::connect(&proxy.connect_string()).await?;
/// let reply = proxy.on(Direction::FromServer).opcode(Opcode::Create);
/// reply.then(Fault::CutBefore(Cut::Fin));
///
/// let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// let created = client.create("/node", b"", &options).await;
/// assert!(created.is_err(), "the reply is lost");
/// assert!(client.check_stat("/node").await?.is_some(), "the node is there");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    /// What follows the address in the connect string of a ZooKeeper server.
    chroot: String,
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    /// The task that accepts connections; `None` while they are refused.
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl FaultProxy {
    /// Starts a proxy in front of a ZooKeeper server, `host:port` or `host:port/chroot`, on a free port of
    /// loopback.
    ///
    /// # Errors
    /// If the operating system gives no port.
    pub async fn start(upstream: &str) -> io::Result<Self> {
        Self::start_with(Protocol::ZooKeeper, upstream).await
    }

    /// Starts a proxy in front of a Redis server, `host:port`, on a free port of loopback.
    ///
    /// Frames have [names](Frame::names), and [`FramePattern::named`] picks them. Calls of a script
    /// are named after what is in them if the script was loaded over the same connection, as
    /// sessions do.
    ///
    /// # Errors
    /// If the operating system gives no port.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use recipes_redis::Redis;
    /// use test_rig::{Cut, Direction, Fault, FaultProxy, RedisServer};
    ///
    /// let server = RedisServer::start().await?;
    /// let address = format!("127.0.0.1:{}", server.port());
    /// let proxy = FaultProxy::start_for_redis(&address).await?;
    /// let opened = proxy.on(Direction::FromServer).named("open");
    /// let lost = opened.then(Fault::CutBefore(Cut::Reset));
    ///
    /// let url = format!("redis://{}", proxy.connect_string());
    /// let session = Redis::builder().new_server().connect(&url).await?;
    /// assert_eq!(lost.count(), 1);
    /// assert!(session.session_id().is_some(), "it was opened over another connection");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_for_redis(upstream: &str) -> io::Result<Self> {
        Self::start_with(Protocol::Redis, upstream).await
    }

    /// Starts a proxy in front of a PostgreSQL server, `host:port`, on a free port of loopback.
    ///
    /// Frames have [names](Frame::names) of their statement and of PostgreSQL's message. What is
    /// encrypted is forwarded, and is no frame: tests do without TLS.
    ///
    /// # Errors
    /// If the operating system gives no port.
    pub async fn start_for_postgres(upstream: &str) -> io::Result<Self> {
        Self::start_with(Protocol::Postgres, upstream).await
    }

    /// The same in front of a server of MySQL or MariaDB. A message of 16 MB or more is one frame,
    /// whatever packets it has. Clients must not compress.
    ///
    /// # Errors
    /// If the operating system gives no port.
    pub async fn start_for_mysql(upstream: &str) -> io::Result<Self> {
        Self::start_with(Protocol::MySql, upstream).await
    }

    /// Starts a proxy in front of an etcd server, `host:port`, on a free port of loopback.
    ///
    /// Frames have [names](Frame::names) of their calls. A request is one frame: its headers are kept until
    /// its message comes, which says what they are for, and which the client sends together with them. An answer is three: headers, message, trailers.
    /// Clients must not compress. What is encrypted is forwarded, and is no frame.
    ///
    /// # Errors
    /// If the operating system gives no port.
    pub async fn start_for_etcd(upstream: &str) -> io::Result<Self> {
        Self::start_with(Protocol::Etcd, upstream).await
    }

    async fn start_with(protocol: Protocol, upstream: &str) -> io::Result<Self> {
        let mut tries = 1..STARTS_MAX;
        let (upstream, chroot) = upstream.split_at(upstream.find('/').unwrap_or(upstream.len()));
        loop {
            let port = ports::free(1)?
                .pop()
                .ok_or_else(|| io::Error::other("no free port"))?;
            let proxy = Self {
                port,
                chroot: chroot.to_owned(),
                shared: Arc::new(Shared::new(protocol, upstream)),
                connections: Arc::default(),
                acceptor: Mutex::new(None),
            };
            match proxy.accept_connections().await {
                Ok(()) => return Ok(proxy),
                // Another process took the port first, perhaps another proxy of a test that starts
                // many.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && tries.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns where clients connect: `127.0.0.1:<port>`, and the chroot of the server's connect string.
    #[must_use]
    pub fn connect_string(&self) -> String {
        format!("127.0.0.1:{}{}", self.port.number(), self.chroot)
    }

    /// Starts a pattern that matches all frames of one direction.
    pub fn on(&self, direction: Direction) -> FramePattern<'_> {
        FramePattern {
            shared: &self.shared,
            pattern: Pattern {
                direction,
                opcode: None,
                name: None,
                path_part: None,
                connection: None,
            },
            turn: Turn::Nth(1),
        }
    }

    /// Removes all rules. A frame that is delayed or held by one of them stays so.
    pub fn clear_rules(&self) {
        self.shared.rules.clear();
    }

    /// Returns the frames that were dealt with so far, in that order.
    #[must_use]
    pub fn log(&self) -> Vec<Frame> {
        self.shared.journal.frames()
    }

    /// Clears the log of frames.
    pub fn clear_log(&self) {
        self.shared.journal.clear();
    }

    /// Returns how many connections were accepted so far, which is the number of the latest.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

/// Faults of the network and of the server.
impl FaultProxy {
    /// Connects clients to another server, `host:port`, from now on. Existing connections stay;
    /// [`cut_all`](Self::cut_all) makes their clients move.
    pub fn retarget(&self, upstream: &str) {
        upstream.clone_into(&mut lock(&self.shared.upstream));
    }

    /// Cuts all connections. New ones are accepted.
    pub fn cut_all(&self, how: Cut) {
        self.shared.cut.send_replace(how);
    }

    /// Refuses new connections, as a machine without a server does. Existing ones stay.
    pub async fn refuse_connections(&self) {
        let acceptor = lock(&self.acceptor).take();
        if let Some(acceptor) = acceptor {
            acceptor.abort();
            // The port is closed once the task has ended. An error means that it was aborted.
            drop(acceptor.await);
        }
    }

    /// Accepts connections again, on the same port. Does nothing if they are accepted already.
    ///
    /// # Errors
    /// If another process than a test took the port meanwhile.
    pub async fn accept_connections(&self) -> io::Result<()> {
        if lock(&self.acceptor).is_some() {
            return Ok(());
        }
        let until = Instant::now() + PORT_MAX;
        let listener = loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, self.port.number())).await {
                // A process that was being started when the port was closed has it until it runs its own program.
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                    sleep(Duration::from_millis(5)).await;
                }
                listener => break listener?,
            }
        };
        let connections = Arc::downgrade(&self.connections);
        let accepting = connection::accept(listener, Arc::clone(&self.shared), connections);
        *lock(&self.acceptor) = Some(tokio::spawn(accepting));
        Ok(())
    }

    /// Swallows everything of this direction from now on, on present and new connections, even
    /// their end. The senders notice nothing. In both directions it is a partition.
    ///
    /// [`restore`](Self::restore) ends it and cuts the connections that lost something.
    pub fn black_hole(&self, direction: Direction) {
        self.set_flow(direction, Flow::Swallows);
    }

    /// Keeps everything of this direction from now on. After [`restore`](Self::restore) all of it
    /// arrives, late and in order: a partition that TCP survives.
    pub fn stall(&self, direction: Direction) {
        self.set_flow(direction, Flow::Stalls);
    }

    /// Ends [`black_hole`](Self::black_hole) and [`stall`](Self::stall).
    pub fn restore(&self) {
        self.set_flow(Direction::ToServer, Flow::Passes);
        self.set_flow(Direction::FromServer, Flow::Passes);
    }

    /// Delays everything that arrives from now on by this time, in each direction; a round trip
    /// takes twice that. Any number of frames are in flight together, in order.
    pub fn set_latency(&self, each_way: Duration) {
        self.shared.latency.send_replace(each_way);
    }

    fn set_flow(&self, direction: Direction, flow: Flow) {
        self.shared.flow(direction).send_replace(flow);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(acceptor) = lock(&self.acceptor).take() {
            acceptor.abort();
        }
    }
}

/// Some frames of a [`FaultProxy`], to which a rule applies.
///
/// Rules count the matching frames from when they are set. If several are due at one frame, the one
/// that was set first applies.
#[derive(Clone, Debug)]
#[must_use = "a pattern does nothing by itself"]
pub struct FramePattern<'a> {
    shared: &'a Shared,
    pattern: Pattern,
    turn: Turn,
}

impl FramePattern<'_> {
    /// Matches only frames of this kind: requests, and replies to them.
    pub fn opcode(mut self, opcode: Opcode) -> Self {
        self.pattern.opcode = Some(opcode);
        self
    }

    /// Matches only frames that are called so, or that have such a request in them: see
    /// [`Frame::names`].
    pub fn named(mut self, name: &str) -> Self {
        self.pattern.name = Some(name.to_owned());
        self
    }

    /// Matches only frames with a path that contains `part`. Replies have the paths of their
    /// requests.
    pub fn path_contains(mut self, part: &str) -> Self {
        self.pattern.path_part = Some(part.to_owned());
        self
    }

    /// Matches only frames of this connection, counted from 1.
    pub fn connection(mut self, connection: u64) -> Self {
        self.pattern.connection = Some(connection);
        self
    }

    /// Matches the n-th such frame instead of the first, counted from 1.
    pub fn nth(mut self, n: usize) -> Self {
        self.turn = Turn::Nth(n);
        self
    }

    /// Matches every such frame; for [`seen`](Self::seen), the first.
    pub fn each(mut self) -> Self {
        self.turn = Turn::Each;
        self
    }

    /// Applies a fault to the frame.
    #[expect(clippy::must_use_candidate, reason = "the fault is the point of it")]
    pub fn then(self, fault: Fault) -> Injection {
        let rules = &self.shared.rules;
        rules.add(self.pattern, self.turn, Act::Fault(fault))
    }

    /// Holds the frame, and all that follow it, until the gate is released.
    pub fn hold(self) -> Gate {
        let state = Arc::new(GateState::default());
        let act = Act::Hold(Arc::clone(&state));
        drop(self.shared.rules.add(self.pattern, self.turn, act));
        Gate { state }
    }

    /// Waits until the frame was dealt with, and returns it. Returns at once if it is in the log,
    /// and counts from the beginning of the log.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn seen(self) -> Frame {
        let n = match self.turn {
            Turn::Each => 1,
            Turn::Nth(n) => n,
        };
        self.shared.journal.nth(&self.pattern, n).await
    }

    /// Returns how many such frames are in the log.
    #[must_use]
    pub fn count(self) -> usize {
        self.shared.journal.count(&self.pattern)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
