//! Redisson's locks, in a JVM of their own.

use std::future::Future;
use std::io;
use std::time::Duration;

use super::process::{self, Process};
use super::wire::Command;
use super::{MAIN, PeerError, millis};

/// A process that runs Redisson's locks on request.
///
/// The test names clients, locks and threads, as with [`CuratorPeer`](super::CuratorPeer). A
/// *thread* owns the locks that it acquires.
///
/// # Guarantees
///
/// Dropping the peer kills its process, as a crash does.
///
/// # Cancel safety
///
/// Dropping the future of a command drops its answer; the command goes on in the peer.
///
/// # Errors
///
/// All methods fail alike, as those of [`CuratorPeer`](super::CuratorPeer).
#[derive(Debug)]
pub struct RedissonPeer {
    process: Process,
    version: String,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl RedissonPeer {
    /// Starts the peer. Compiles it first if its source changed.
    ///
    /// Needs the repository of this crate, a JDK and Maven, which fetches Redisson the first time.
    pub async fn start() -> Result<Self, PeerError> {
        let class_path = process::build("redisson/build").await?;
        let mut java = tokio::process::Command::new("java");
        java.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-cp", &class_path, "RedissonPeer"]);
        let process = Process::start(java)?;
        let version = process.version().await?;
        Ok(Self { process, version })
    }

    /// Returns the version of Redisson, as in `4.7.0`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Connects a new client to a server, or to the primary among several. Locks that it holds go
    /// after the timeout of its watchdog, which renews them until then.
    pub async fn open(
        &self,
        client: &str,
        urls: &[String],
        watchdog: Duration,
    ) -> Result<(), PeerError> {
        let open = Command::new(MAIN, "open").word(client).word(urls.join(","));
        self.process.tell(open.number(millis(watchdog))).await
    }

    /// Makes a lock named `lock`: an `RLock`, or an `RFencedLock`.
    pub async fn lock(
        &self,
        lock: &str,
        client: &str,
        key: &str,
        is_fenced: bool,
    ) -> Result<(), PeerError> {
        let make = Command::new(MAIN, "lock").word(lock).word(client).word(key);
        let kind = if is_fenced { "RFencedLock" } else { "RLock" };
        self.process.tell(make.word(kind)).await
    }

    /// Acquires the lock. Returns whether it was granted within the timeout; `None` waits without
    /// end.
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

    /// Asks the server whether this thread holds the lock.
    pub async fn held(&self, thread: &str, lock: &str) -> Result<bool, PeerError> {
        let held = Command::new(thread, "held").word(lock);
        self.process.ask(held).await?.parsed()
    }

    /// The token with which an `RFencedLock` was granted last.
    pub async fn token(&self, thread: &str, lock: &str) -> Result<i64, PeerError> {
        let token = Command::new(thread, "token").word(lock);
        self.process.ask(token).await?.parsed()
    }

    /// Writes data, as the holder of a lock does.
    pub async fn set(
        &self,
        thread: &str,
        client: &str,
        key: &str,
        data: &str,
    ) -> Result<(), PeerError> {
        let set = Command::new(thread, "set").word(client).word(key);
        self.process.tell(set.word(data)).await
    }

    /// Halts the process (SIGSTOP).
    #[cfg(unix)]
    pub fn pause(&self) -> io::Result<()> {
        self.process.signal(rustix::process::Signal::STOP)
    }

    /// Lets a halted process go on (SIGCONT).
    #[cfg(unix)]
    pub fn resume(&self) -> io::Result<()> {
        self.process.signal(rustix::process::Signal::CONT)
    }
}
