//! The locks of Go and Python, each in a process of its own.

use std::future::Future;
use std::time::Duration;

use super::grants::{self, Grant};
use super::process::{self, Process};
use super::verbs;
use super::wire::Command;
use super::{MAIN, PeerError};

/// By which names a peer of another language contends, and which names it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Naming {
    /// What the client does by itself. Go's lock knows no other.
    Own,
    /// kazoo's `Lock` with `extra_lock_patterns=["-lock-"]`: its own names, and it counts those of
    /// Curator too.
    Counting,
    /// kazoo's `ReadLock`.
    OwnRead,
    /// kazoo's `WriteLock`.
    OwnWrite,
    /// kazoo's `Lock` under the names of Curator's mutex.
    Curator,
    /// kazoo's `Lock` under the names of Curator's readers.
    CuratorRead,
    /// kazoo's `Lock` under the names of Curator's writers.
    CuratorWrite,
}

impl Naming {
    fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Counting => "counting",
            Self::OwnRead => "own.read",
            Self::OwnWrite => "own.write",
            Self::Curator => "curator",
            Self::CuratorRead => "curator.read",
            Self::CuratorWrite => "curator.write",
        }
    }
}

/// A process that runs the lock of a client for Go or Python on request.
///
/// The test names clients, locks and threads, as with [`CuratorPeer`](super::CuratorPeer). The
/// locks of these clients belong to no thread: a *thread* only runs its commands in order.
///
/// # Guarantees
///
/// Dropping the peer kills its process: its sessions end at their timeout, as after a crash.
/// [`ForeignPeer::exit`] closes them.
///
/// # Cancel safety
///
/// Dropping the future of a command drops its answer; the command goes on in the peer.
///
/// # Errors
///
/// All methods fail alike, as those of [`CuratorPeer`](super::CuratorPeer).
#[derive(Debug)]
pub struct ForeignPeer {
    process: Process,
    version: String,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl ForeignPeer {
    /// Starts the lock of `github.com/go-zookeeper/zk`. Compiles it first if its source changed.
    ///
    /// Needs the repository of this crate, Go (Debian's `golang-go`), and when it is compiled for
    /// the first time the Go module proxy.
    pub async fn go() -> Result<Self, PeerError> {
        let program = process::build("go/build").await?;
        Self::start(tokio::process::Command::new(program)).await
    }

    /// Starts the locks of kazoo. Installs it first, unless it is there.
    ///
    /// Needs the repository of this crate, Python (Debian's `python3-venv`), and when kazoo is
    /// installed PyPI.
    pub async fn kazoo() -> Result<Self, PeerError> {
        let python = process::build("kazoo/build").await?;
        let mut python = tokio::process::Command::new(python);
        python.arg(process::source("kazoo/peer.py"));
        Self::start(python).await
    }

    async fn start(program: tokio::process::Command) -> Result<Self, PeerError> {
        let process = Process::start(program)?;
        let version = process.version().await?;
        Ok(Self { process, version })
    }

    /// Returns the version of the client, as in `1.0.4`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Closes all sessions and ends the process.
    pub async fn exit(self) -> Result<(), PeerError> {
        self.process.exit().await
    }

    /// Kills the process: the server learns of it only when the sessions time out.
    pub async fn kill(self) -> Result<(), PeerError> {
        self.process.kill().await
    }

    /// Connects a new client and returns its session id.
    pub async fn open(
        &self,
        client: &str,
        connect_string: &str,
        session_timeout: Duration,
    ) -> Result<i64, PeerError> {
        let open = verbs::open(client, connect_string, session_timeout);
        self.process.open(open).await
    }

    /// Returns the id of the client's present session.
    pub async fn session(&self, client: &str) -> Result<i64, PeerError> {
        self.process.session(client).await
    }

    /// Closes the client and its session.
    pub async fn close(&self, client: &str) -> Result<(), PeerError> {
        self.process.close(client).await
    }

    /// Makes a lock named `lock`.
    pub async fn lock(
        &self,
        lock: &str,
        client: &str,
        path: &str,
        naming: Naming,
    ) -> Result<(), PeerError> {
        let make = Command::new(MAIN, "lock").word(lock).word(client);
        self.process
            .tell(make.word(path).word(naming.as_str()))
            .await
    }

    /// Acquires the lock. Returns whether it was granted within the timeout; `None` waits without
    /// end. Go's lock has no timeout and waits without end.
    ///
    /// The command is sent by this call, not when the future is polled.
    pub fn acquire(
        &self,
        thread: &str,
        lock: &str,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<bool, PeerError>> + Send + use<> {
        self.process.acquire(thread, lock, timeout)
    }

    /// Releases the lock.
    pub async fn release(&self, thread: &str, lock: &str) -> Result<(), PeerError> {
        self.process.release(thread, lock).await
    }

    /// Returns the node by which the lock is held or waited for, as far as the client knows it.
    pub async fn lock_path(&self, thread: &str, lock: &str) -> Result<Option<String>, PeerError> {
        self.process.lock_path(thread, lock).await
    }

    /// Lets `threads` threads share `rounds` grants of the mutex at `path`, as
    /// [`CuratorPeer::contend`](super::CuratorPeer::contend) does.
    pub fn contend(
        &self,
        client: &str,
        path: &str,
        counter: &str,
        (rounds, threads): (u32, u16),
        naming: Naming,
    ) -> impl Future<Output = Result<Vec<Grant>, PeerError>> + Send + use<> {
        let contend = Command::new(MAIN, "contend").word(client).word(path);
        let contend = contend.word(counter).number(rounds).number(threads);
        let pending = self.process.send(contend.word(naming.as_str()));
        async move { grants::parse(&mut pending.values().await?) }
    }
}
