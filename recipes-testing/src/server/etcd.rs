//! One etcd server, alone or as a member of a cluster.

mod builder;
mod cluster;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub use builder::EtcdServerBuilder;
pub use cluster::EtcdCluster;

use super::command_line;
use super::daemon::Daemon;
use super::error::ServerError;
use super::ports::Port;

/// A server that runs answers in milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A real etcd server on loopback, in a process of its own.
///
/// It needs `etcd` and `etcdctl`, for example of Debian's packages `etcd-server` and `etcd-client`, or the
/// program that the environment variable `ETCD` names, with `etcdctl` next to it. Dropping it kills the process,
/// waits for its end, and removes its data. If the test process itself is killed, a watcher does the same.
///
/// All methods take `&self` and may be called from several tasks. It runs in real time.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::EtcdServer;
///
/// let server = EtcdServer::start().await?;
/// server.command(&["put", "answer", "42"]).await?;
/// let value = server.command(&["get", "answer", "--print-value-only"]).await?;
/// assert_eq!(value, "42\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdServer {
    daemon: Daemon,
    client: PathBuf,
    /// On which it listens to the other members.
    peer: Port,
    /// Under which they reach it.
    peer_url: String,
    has_tls: bool,
    /// How it is started, but for whether its cluster is new.
    arguments: Vec<String>,
}

/// What a member says of its cluster.
#[derive(Clone, Copy, Debug)]
struct Status {
    id: u64,
    /// Zero if it knows none.
    leader: u64,
}

impl EtcdServer {
    /// Starts a server with the defaults of [`EtcdServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`EtcdServerBuilder::start`].
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Sets options before starting.
    pub fn builder() -> EtcdServerBuilder {
        EtcdServerBuilder::default()
    }

    /// Where clients connect: `etcd://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// The same without a scheme: `127.0.0.1:<port>`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    fn client_url(&self) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address())
    }

    /// The port for clients, which stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.daemon.port()
    }

    /// The process id, or `None` if it is not running.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.daemon.pid()
    }

    /// The folder with the server's data, which is removed when the server is dropped.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.daemon.folder.path()
    }

    /// What the server has logged since it was last started.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Carries out a command of `etcdctl`, and returns what it prints.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Refused`] if the server refuses it or does not answer
    /// within 10 s.
    pub async fn command(&self, words: &[&str]) -> Result<String, ServerError> {
        if self.pid().is_none() {
            return Err(ServerError::NotRunning { port: self.port() });
        }
        let mut client = command_line::client(&self.client);
        if self.has_tls {
            client.args(["--insecure-transport=false", "--insecure-skip-tls-verify"]);
        }
        client
            .arg(format!("--endpoints={}", self.client_url()))
            .args(["--dial-timeout=30s", "--command-timeout=30s"])
            .args(words);
        let printed = command_line::run(client, "").await;
        printed.map_err(|answer| ServerError::Refused {
            port: self.port(),
            request: words.join(" "),
            answer,
        })
    }

    /// Adds up all metrics whose lines begin so, as `grpc_server_started_total{grpc_method="Txn"`.
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if it does not answer, as a server with TLS does not.
    pub async fn metric(&self, name: &str) -> Result<f64, ServerError> {
        let answer = self.metrics().await?;
        let lines = answer.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// All metrics, as text.
    ///
    /// # Errors
    ///
    /// As [`metric`](Self::metric).
    pub async fn metrics(&self) -> Result<String, ServerError> {
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port())).await?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        let answer = match timeout(ANSWER_MAX, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        answer.map_err(ServerError::io("read the server's metrics"))
    }

    /// The program `etcdctl`.
    #[doc(hidden)]
    #[must_use]
    pub fn client(&self) -> &Path {
        &self.client
    }

    /// Kills the process as `kill -9` does. Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if the operating system refuses; the server then still runs.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.daemon.kill().await
    }

    /// Requests the server to end and waits until it has. A leader hands its office on first. Does nothing
    /// if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if it does not end; it is then killed.
    pub async fn stop(&self) -> Result<(), ServerError> {
        self.daemon.stop().await
    }

    /// Starts the server again, with the same port and its data. Does nothing if it is running.
    ///
    /// # Errors
    ///
    /// As [`EtcdServerBuilder::start`]. A member that reaches no majority is not ready before it does: see
    /// [`EtcdCluster::start_again`].
    pub async fn start_again(&self) -> Result<(), ServerError> {
        self.daemon.start(serves).await
    }

    /// Halts the process (SIGSTOP): connections stay, and no request is answered. Idempotent.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the operating system refuses.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.daemon.pause()
    }

    /// Lets a paused process go on (SIGCONT). Idempotent.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the operating system refuses.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.daemon.resume()
    }

    /// What it says now, if it can answer. It needs no majority for that.
    async fn status(&self) -> Option<Status> {
        if !self.daemon.is_active() {
            return None;
        }
        // A member that finds no majority at its start does not listen yet.
        let words = "endpoint status --write-out=fields --dial-timeout=2s --command-timeout=2s";
        let words: Vec<_> = words.split(' ').collect();
        let printed = self.command(&words).await.ok()?;
        Some(Status {
            id: field(&printed, "MemberID")?,
            leader: field(&printed, "Leader")?,
        })
    }

    fn configure(&self, is_new: bool) {
        let state = if is_new { "new" } else { "existing" };
        let state = format!("--initial-cluster-state={state}");
        let arguments = self.arguments.iter().cloned().chain([state]);
        self.daemon
            .set_arguments(arguments.map(Into::into).collect());
    }
}

/// A number that `etcdctl` prints on a line of its own.
fn field(printed: &str, name: &str) -> Option<u64> {
    let name = format!("\"{name}\" : ");
    printed
        .lines()
        .find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

/// Whether it serves clients, so that it has found a leader. It says so in its own log, so that no other server
/// is taken for it.
fn serves(daemon: &Daemon) -> bool {
    daemon.log().contains("ready to serve client requests")
}
