//! Real Curator in a JVM of its own, and the locks of other languages in processes of theirs, so
//! that tests can contend with them.
//!
//! | file | noun |
//! |---|---|
//! | `foreign` | the locks of Go and Python |
//! | `redisson` | Redisson's locks |
//! | `etcd` | etcd's own locks, of Go and of `etcdctl` |
//! | `election` | Curator's leader latch and leader selector |
//! | `nodes` | nodes, as Curator's client reads and changes them |
//! | `contention`, `grants` | many Java threads that share a lock, and whether their grants are in order |
//! | `verbs` | the commands that all peers know |
//! | `process`, `wire` | the peer's process, and the lines to and from it |

mod contention;
mod election;
mod error;
#[cfg(unix)]
mod etcd;
mod foreign;
mod grants;
mod nodes;
mod process;
mod redisson;
mod verbs;
mod wire;

use std::future::Future;
use std::time::{Duration, SystemTime};

pub use contention::ReadWriteMix;
pub use election::CandidateKind;
pub use error::PeerError;
#[cfg(unix)]
pub use etcd::{EtcdPeer, EtcdctlPeer};
pub use foreign::{ForeignPeer, Naming};
pub use grants::{Disorder, Grant, GrantKind, ReadWriteGrants, check_grants};
pub use nodes::PeerStat;
pub use redisson::RedissonPeer;

use process::Process;
use wire::Command;

/// The thread whose commands run at once and concurrently.
const MAIN: &str = "main";

/// A JVM that runs the recipes of Apache Curator on request.
///
/// The test names clients, locks and threads. A *thread* is a Java thread: it owns the locks that
/// it acquires, as everywhere in Curator, and runs its commands in order.
///
/// It runs on the machine's clock. With a paused tokio clock every answer would come too late.
///
/// # Guarantees
///
/// Commands of one thread reach Curator in the order in which they were made. Dropping the peer
/// kills the JVM: its sessions end at their timeout, as after a crash. [`CuratorPeer::exit`]
/// closes them.
///
/// # Cancel safety
///
/// Dropping the future of a command drops its answer; the command goes on in the JVM.
///
/// # Errors
///
/// All methods fail alike. [`PeerError::Refused`] carries the Java exception. [`PeerError::Exited`]
/// means that the JVM ended. [`PeerError::NoAnswer`] means that it did not answer within a minute,
/// unless the command waits for a lock. A command to a thread that waits in an acquire also ends
/// so, because a thread runs its commands in order.
#[derive(Debug)]
pub struct CuratorPeer {
    process: Process,
    curator_version: String,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl CuratorPeer {
    /// Builds the peer if its sources changed, and starts it.
    ///
    /// Needs the repository of this crate, a JDK, and the jars of Curator: Debian's
    /// `libcurator-recipes-java`, or those that `CURATOR_CLASSPATH` names. Where they are missing
    /// the error is [`PeerError::Missing`].
    pub async fn start() -> Result<Self, PeerError> {
        let class_path = process::build("build").await?;
        // A small heap and only the quick compiler, because tests run several of these at the same
        // time.
        let mut java = tokio::process::Command::new("java");
        java.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-cp", &class_path, "CuratorPeer"]);
        let process = Process::start(java)?;
        let curator_version = process.version().await?;
        Ok(Self {
            process,
            curator_version,
        })
    }

    /// Returns the version of Curator, as in `5.4.0`.
    #[must_use]
    pub fn curator_version(&self) -> &str {
        &self.curator_version
    }

    /// Returns the process id of the JVM, for tests that pause it.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Closes all sessions and ends the JVM.
    pub async fn exit(self) -> Result<(), PeerError> {
        self.process.exit().await
    }

    /// Kills the JVM: the server learns of it only when the sessions time out.
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

    /// Connects a new client all of whose paths are below `/{namespace}`; returns its session id.
    pub async fn open_in_namespace(
        &self,
        client: &str,
        connect_string: &str,
        session_timeout: Duration,
        namespace: &str,
    ) -> Result<i64, PeerError> {
        let open = verbs::open(client, connect_string, session_timeout);
        self.process.open(open.word(namespace)).await
    }

    /// Connects a new client that retries each request for this long. Other clients give up after
    /// five tries in some seconds. Returns its session id.
    pub async fn open_with_patience(
        &self,
        client: &str,
        connect_string: &str,
        session_timeout: Duration,
        patience: Duration,
    ) -> Result<i64, PeerError> {
        let open = verbs::open(client, connect_string, session_timeout);
        let open = open.word("").number(millis(patience));
        self.process.open(open).await
    }

    /// Returns the id of the client's present session. Curator opens a new one after an expiry.
    pub async fn session(&self, client: &str) -> Result<i64, PeerError> {
        self.process.session(client).await
    }

    /// Returns the last state that Curator reported to the client's listeners: a name of Java's
    /// `ConnectionState`, as in `LOST`.
    pub async fn state(&self, client: &str) -> Result<String, PeerError> {
        self.state_since(client).await.map(|(state, _)| state)
    }

    /// Returns the last state, and when Curator reported it. The epoch if it was never more than connected.
    pub async fn state_since(&self, client: &str) -> Result<(String, SystemTime), PeerError> {
        let state = Command::new(MAIN, "state").word(client);
        let mut told = self.process.ask(state).await?;
        let (state, at) = (told.text()?, Duration::from_millis(told.parsed()?));
        Ok((state, SystemTime::UNIX_EPOCH + at))
    }

    /// Ends the client's session at the server, and returns its id.
    ///
    /// The client learns of it only at its next ping, up to a third of the session timeout later.
    pub async fn expire_session(&self, client: &str) -> Result<i64, PeerError> {
        self.process
            .ask(Command::new(MAIN, "kill").word(client))
            .await?
            .hexadecimal()
    }

    /// Closes the client and its session.
    pub async fn close(&self, client: &str) -> Result<(), PeerError> {
        self.process.close(client).await
    }

    /// Makes an `InterProcessMutex` named `lock`.
    pub async fn mutex(&self, lock: &str, client: &str, path: &str) -> Result<(), PeerError> {
        self.process
            .tell(
                Command::new(MAIN, "mutex")
                    .word(lock)
                    .word(client)
                    .word(path),
            )
            .await
    }

    /// Makes an `InterProcessReadWriteLock`, as two locks named `{lock}.read` and `{lock}.write`.
    pub async fn read_write_lock(
        &self,
        lock: &str,
        client: &str,
        path: &str,
    ) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "rw").word(lock).word(client).word(path))
            .await
    }

    /// Makes an `InterProcessSemaphoreV2` named `lock`, of which each acquire takes one permit.
    pub async fn semaphore(
        &self,
        lock: &str,
        client: &str,
        path: &str,
        permits: u32,
    ) -> Result<(), PeerError> {
        self.semaphore_of_many(lock, client, path, permits, 1).await
    }

    /// Makes an `InterProcessSemaphoreV2` named `lock`, of which each acquire takes so many permits at
    /// a time, and a release gives as many back.
    pub async fn semaphore_of_many(
        &self,
        lock: &str,
        client: &str,
        path: &str,
        permits: u32,
        taken: u32,
    ) -> Result<(), PeerError> {
        let semaphore = Command::new(MAIN, "semaphore").word(lock).word(client);
        let semaphore = semaphore.word(path).number(permits).number(taken);
        self.process.tell(semaphore).await
    }

    /// Makes an `InterProcessSemaphoreMutex` named `lock`.
    pub async fn semaphore_mutex(
        &self,
        lock: &str,
        client: &str,
        path: &str,
    ) -> Result<(), PeerError> {
        let mutex = Command::new(MAIN, "semaphoremutex").word(lock);
        self.process.tell(mutex.word(client).word(path)).await
    }

    /// Makes an `InterProcessMultiLock` named `lock` over existing locks, in this order.
    pub async fn multi_lock(&self, lock: &str, members: &[&str]) -> Result<(), PeerError> {
        let multi = Command::new(MAIN, "multi").word(lock);
        self.process
            .tell(members.iter().fold(multi, Command::word))
            .await
    }

    /// Acquires the lock for the thread. Returns whether it was granted within the timeout; `None`
    /// waits without end.
    ///
    /// The command is sent by this call, not when the future is polled. So a test can make the
    /// call, wait until the node is in the queue ([`CuratorPeer::await_children`]), and await the
    /// answer later.
    pub fn acquire(
        &self,
        thread: &str,
        lock: &str,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<bool, PeerError>> + Send + use<> {
        self.process.acquire(thread, lock, timeout)
    }

    /// Releases the thread's lock.
    pub async fn release(&self, thread: &str, lock: &str) -> Result<(), PeerError> {
        self.process.release(thread, lock).await
    }

    /// Interrupts the thread: an acquire in which it waits fails with `InterruptedException`.
    pub async fn interrupt(&self, thread: &str) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "interrupt").word(thread))
            .await
    }

    /// Returns the node by which the thread holds the lock, if it does.
    pub async fn lock_path(&self, thread: &str, lock: &str) -> Result<Option<String>, PeerError> {
        self.process.lock_path(thread, lock).await
    }

    /// Returns `isAcquiredInThisProcess`, which is Curator's belief and not the server's.
    pub async fn held(&self, lock: &str) -> Result<bool, PeerError> {
        self.process
            .ask(Command::new(MAIN, "held").word(lock))
            .await?
            .parsed()
    }

    /// Returns `getParticipantNodes`: the full paths of the nodes in the queue, in its order.
    pub async fn participants(&self, lock: &str) -> Result<Vec<String>, PeerError> {
        self.process
            .ask(Command::new(MAIN, "participants").word(lock))
            .await?
            .texts()
    }

    /// Makes the lock revocable from its next acquire on, until it is released.
    pub async fn make_revocable(&self, lock: &str) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "revocable").word(lock))
            .await
    }

    /// Waits for a request to give the lock up, and consumes it. False if none came in time.
    pub async fn revocation_requested(
        &self,
        lock: &str,
        timeout: Duration,
    ) -> Result<bool, PeerError> {
        let revoked = Command::new(MAIN, "revoked")
            .word(lock)
            .number(millis(timeout));
        self.process.ask_within(revoked, timeout).await?.parsed()
    }

    /// Asks the holder of the lock node to give the lock up.
    pub async fn revoke(&self, client: &str, node: &str) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "revoke").word(client).word(node))
            .await
    }
}

/// As Java's `int`. A longer time is as good as for ever.
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis())
        .unwrap_or(u32::MAX)
        .min(i32::MAX.unsigned_abs())
}
