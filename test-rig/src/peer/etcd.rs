//! etcd's own locks and elections: those of Go's package `concurrency`, and the commands of `etcdctl`.

use std::future::Future;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use recipes_testing::EtcdServer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::grants::{self, Grant};
use super::process::{self, Process};
use super::verbs;
use super::wire::Command;
use super::{MAIN, PeerError, millis};

/// A process that runs the mutex and the election of `go.etcd.io/etcd/client/v3/concurrency` on request.
///
/// The test names clients, locks, candidates and threads. A client has one session, which owns what is acquired: two
/// locks of one client on the same prefix are one lock. A *thread* only runs its commands in order.
///
/// # Guarantees
///
/// Dropping the peer kills its process: its leases end at their timeout, as after a crash.
///
/// # Cancel safety
///
/// Dropping the future of a command drops its answer; the command goes on in the peer.
///
/// # Errors
///
/// All methods fail alike, as those of [`CuratorPeer`](super::CuratorPeer).
#[derive(Debug)]
pub struct EtcdPeer {
    process: Process,
    version: String,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl EtcdPeer {
    /// Starts the peer. Compiles it first if its source changed.
    ///
    /// Needs the repository of this crate, Go (Debian's `golang-go`), and when it is compiled for the first time the Go
    /// module proxy.
    pub async fn start() -> Result<Self, PeerError> {
        let program = process::build("go/etcd/build").await?;
        let process = Process::start(tokio::process::Command::new(program))?;
        let version = process.version().await?;
        Ok(Self { process, version })
    }

    /// Returns the version of Go's client, as in `3.5.9`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Ends all sessions and the process.
    pub async fn exit(self) -> Result<(), PeerError> {
        self.process.exit().await
    }

    /// Kills the process: the servers learn of it only when the leases end.
    pub async fn kill(self) -> Result<(), PeerError> {
        self.process.kill().await
    }

    /// Halts the process (SIGSTOP).
    pub fn pause(&self) -> io::Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Lets a halted process go on (SIGCONT).
    pub fn resume(&self) -> io::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Connects a new client to `host:port,host:port,...`, with a session. Its lease has whole seconds: returns the id.
    pub async fn open(
        &self,
        client: &str,
        endpoints: &str,
        session_timeout: Duration,
    ) -> Result<i64, PeerError> {
        let open = verbs::open(client, endpoints, session_timeout);
        self.process.open(open).await
    }

    /// Returns the id of the client's lease.
    pub async fn session(&self, client: &str) -> Result<i64, PeerError> {
        self.process.session(client).await
    }

    /// Waits for the end of the session (`Session.Done`). False if it goes on until then.
    pub async fn lost(&self, client: &str, timeout: Duration) -> Result<bool, PeerError> {
        let lost = Command::new(MAIN, "lost").word(client);
        let lost = lost.number(millis(timeout));
        self.process.ask_within(lost, timeout).await?.parsed()
    }

    /// Ends the session, with its lease, and closes the client.
    pub async fn close(&self, client: &str) -> Result<(), PeerError> {
        self.process.close(client).await
    }

    /// Makes a `Mutex` named `lock`.
    pub async fn lock(&self, lock: &str, client: &str, prefix: &str) -> Result<(), PeerError> {
        let make = Command::new(MAIN, "lock").word(lock).word(client);
        self.process.tell(make.word(prefix)).await
    }

    /// Acquires the lock (`Lock`). Returns whether it was granted within the timeout; `None` waits without end.
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

    /// Acquires the lock unless another session has it (`TryLock`).
    pub async fn try_acquire(&self, thread: &str, lock: &str) -> Result<bool, PeerError> {
        let try_lock = Command::new(thread, "try").word(lock);
        self.process.ask(try_lock).await?.parsed()
    }

    /// Releases the lock (`Unlock`), whether it is held or not.
    pub async fn release(&self, thread: &str, lock: &str) -> Result<(), PeerError> {
        self.process.release(thread, lock).await
    }

    /// Returns the key by which the lock is held or waited for, as far as the client knows it.
    pub async fn lock_path(&self, thread: &str, lock: &str) -> Result<Option<String>, PeerError> {
        self.process.lock_path(thread, lock).await
    }

    /// Returns the revision that made this key; negative if there is none.
    pub async fn revision(&self, thread: &str, lock: &str) -> Result<i64, PeerError> {
        let revision = Command::new(thread, "revision").word(lock);
        self.process.ask(revision).await?.parsed()
    }

    /// Lets `threads` sessions of their own share `rounds` grants of the mutex at `prefix`.
    ///
    /// While it holds the lock, each reads the decimal number at the key `counter`, which must exist, and writes it back
    /// plus one, without a condition. Judge the grants with [`check_grants`](crate::check_grants). A journal and the
    /// worker's number in it have each step written down, to be judged as a [`History`](crate::history::History).
    /// The command is sent by this call.
    pub fn contend(
        &self,
        client: &str,
        prefix: &str,
        counter: &str,
        (rounds, threads): (u32, u16),
        journal: Option<(&Path, u32)>,
    ) -> impl Future<Output = Result<Vec<Grant>, PeerError>> + Send + use<> {
        let contend = Command::new(MAIN, "contend").word(client).word(prefix);
        let contend = contend.word(counter).number(rounds).number(threads);
        let pending = self.process.send(match journal {
            Some((path, worker)) => contend
                .word(path.as_os_str().as_encoded_bytes())
                .number(worker),
            None => contend,
        });
        async move { grants::parse(&mut pending.values().await?) }
    }

    /// Makes an `Election` named `name`.
    pub async fn candidate(&self, name: &str, client: &str, prefix: &str) -> Result<(), PeerError> {
        let make = Command::new(MAIN, "candidate").word(name).word(client);
        self.process.tell(make.word(prefix)).await
    }

    /// Campaigns with a value. Returns whether the candidate leads within the timeout; `None` waits without end.
    ///
    /// The command is sent by this call, not when the future is polled.
    pub fn campaign(
        &self,
        thread: &str,
        name: &str,
        value: &str,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<bool, PeerError>> + Send + use<> {
        let campaign = Command::new(thread, "campaign").word(name).word(value);
        let pending = self.process.send(match timeout {
            Some(timeout) => campaign.number(millis(timeout)),
            None => campaign,
        });
        async move { pending.values().await?.parsed() }
    }

    /// Has the leader announce another value.
    pub async fn proclaim(&self, name: &str, value: &str) -> Result<(), PeerError> {
        let proclaim = Command::new(MAIN, "proclaim").word(name).word(value);
        self.process.tell(proclaim).await
    }

    /// Resigns if the candidate leads.
    pub async fn resign(&self, name: &str) -> Result<(), PeerError> {
        let resign = Command::new(MAIN, "resign").word(name);
        self.process.tell(resign).await
    }

    /// Returns the candidate's key and the revision that made it.
    pub async fn term(&self, name: &str) -> Result<(String, i64), PeerError> {
        let mut values = self
            .process
            .ask(Command::new(MAIN, "term").word(name))
            .await?;
        Ok((values.text()?, values.parsed()?))
    }

    /// Returns the leader's value, if there is a leader.
    pub async fn leader(&self, name: &str) -> Result<Option<String>, PeerError> {
        let leader = Command::new(MAIN, "leader").word(name);
        Ok(self.process.ask(leader).await?.texts()?.pop())
    }

    /// Observes the election until so many values have come, or for so long. The command is sent by this call.
    pub fn observe(
        &self,
        name: &str,
        count: u16,
        timeout: Duration,
    ) -> impl Future<Output = Result<Vec<String>, PeerError>> + Send + use<> {
        let observe = Command::new(MAIN, "observe").word(name).number(count);
        let pending = self.process.send(observe.number(millis(timeout)));
        async move { pending.values().await?.texts() }
    }
}

/// `etcdctl lock` or `etcdctl elect`, which contends until it ends.
///
/// Dropping it kills the process, as a crash does.
#[derive(Debug)]
pub struct EtcdctlPeer {
    process: Child,
    printed: Lines<BufReader<ChildStdout>>,
}

impl EtcdctlPeer {
    /// Starts the command, as `["lock", "--ttl=2", "name"]`, `["lock", "name", "program", ...]` or
    /// `["elect", "name", "proposal"]`, next to the program of a server, for `host:port,host:port,...`.
    ///
    /// # Errors
    /// [`PeerError::Start`].
    pub fn start(server: &EtcdServer, endpoints: &str, words: &[&str]) -> Result<Self, PeerError> {
        let client = server.client();
        let failed = |source| PeerError::Start {
            program: client.display().to_string(),
            source,
        };
        let mut process = tokio::process::Command::new(client)
            .arg(format!("--endpoints={endpoints}"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let printed = process.stdout.take();
        let printed = printed.ok_or_else(|| failed(io::Error::other("the pipe is gone")))?;
        Ok(Self {
            process,
            printed: BufReader::new(printed).lines(),
        })
    }

    /// The next line that it prints, if it does not end: first its key, once that is granted, or what the program
    /// prints that holds the lock; then what it proposes.
    ///
    /// # Errors
    /// Those of the pipe.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        self.printed.next_line().await
    }

    /// Has it give up what it holds or waits for, and waits for its end.
    ///
    /// # Errors
    /// Those of the operating system.
    pub async fn release(mut self) -> io::Result<()> {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT)?;
        }
        self.ended().await
    }

    /// Waits for its end, such as that of the program that holds the lock.
    ///
    /// # Errors
    /// Those of the operating system.
    pub async fn ended(&mut self) -> io::Result<()> {
        self.process.wait().await.map(drop)
    }
}
