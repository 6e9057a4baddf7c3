//! One server.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::future::Future;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::debug;
use zookeeper_client::Client;

use super::builder::ServerBuilder;
use super::config::Membership;
use super::error::ServerError;
use super::home::Home;
use super::installation::Installation;
use super::ports::Port;
use super::process::{Launch, Process};
use super::raw_session::{self, Ended};
use super::slot::Slot;

/// The session timeout of clients for tests. With a shorter one, such as the client's own six
/// seconds, a busy machine breaks connections.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(40);
/// Starting takes a second. Five JVMs on a machine that has much else to do have taken more than a minute.
const READY_MAX: Duration = Duration::from_secs(300);
/// Taking a session over and closing it are two requests; many may be in progress.
const EXPIRE_MAX: Duration = Duration::from_secs(60);
/// A server that listens answers within milliseconds, or will not answer this connection at all.
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// A server that starts cannot notify its parent, so it is polled this often.
const READY_POLL: Duration = Duration::from_millis(20);

/// Connects a client for a test.
pub(super) async fn connect(servers: &str) -> Result<Client, ServerError> {
    let connector = Client::connector().with_session_timeout(CLIENT_TIMEOUT);
    Ok(connector.connect(servers).await?)
}

/// A real ZooKeeper server on loopback, in a process of its own.
///
/// It needs Java and either `ZOOKEEPER_HOME` or Debian's package `zookeeper`. Dropping it kills the
/// process, waits for its end, and removes its data. If the test process itself is killed, a
/// watcher does the same.
///
/// All methods take `&self` and may be called from several tasks. It runs in real time: do not use
/// it in a test with a paused clock, whose deadlines would all fire at once.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::ZooKeeperServer;
///
/// let server = ZooKeeperServer::start().await?;
/// let client = server.client().await?;
/// assert!(client.check_stat("/zookeeper").await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeperServer {
    /// None while stopped. Declared before the home, so that the process ends first.
    process: Slot,
    /// Held while the process is started or ended.
    change: tokio::sync::Mutex<()>,
    pub(super) home: Home,
    membership: Membership,
    /// All ports of the ensemble. Nobody else takes them while the server is down.
    _ports: Arc<Vec<Port>>,
    pub(super) installation: Installation,
    arguments: Vec<OsString>,
}

impl ZooKeeperServer {
    /// Starts a server with the defaults of [`ServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::start`].
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Sets options before starting.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Prepares the files of a server that is not running yet.
    pub(super) fn new(
        options: &ServerBuilder,
        installation: Installation,
        membership: Membership,
        ports: Arc<Vec<Port>>,
    ) -> Result<Self, ServerError> {
        let home =
            Home::new(options, &membership).map_err(ServerError::io("write the server's files"))?;
        let arguments = installation.arguments(options, &home.config());
        Ok(Self {
            process: Slot::default(),
            change: tokio::sync::Mutex::new(()),
            home,
            membership,
            _ports: ports,
            installation,
            arguments,
        })
    }

    /// Returns where clients connect: `127.0.0.1:<port>`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The address for `connect`, `lockctl` and options: `zk://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}", self.connect_string())
    }

    /// Returns the port for clients, which stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.membership.client_port()
    }

    /// Returns the process id of the JVM, or `None` if it is not running.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.running().as_ref().map(Process::id)
    }

    /// Returns the file with everything that the server has printed. It is removed when the server
    /// is dropped.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.home.log()
    }

    /// Connects a client, with a session timeout of 40 s, which a busy machine does not exceed.
    ///
    /// # Errors
    ///
    /// [`ServerError::Client`] if no session could be established.
    pub async fn client(&self) -> Result<Client, ServerError> {
        connect(&self.connect_string()).await
    }

    /// Kills the process as `kill -9` does. Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if the operating system refuses; the server then still runs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future still kills the process.
    pub async fn kill(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.process
            .end(Process::kill, |what, waited| self.timed_out(what, waited))
            .await
    }

    /// Requests the server to end and waits until it has. Does nothing if it is not running.
    ///
    /// A paused server is resumed first.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if it does not end within 20 s; it is then killed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the process.
    pub async fn stop(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.process
            .end(Process::terminate, |what, waited| {
                self.timed_out(what, waited)
            })
            .await
    }

    /// Starts the server again after [`kill`](Self::kill) or [`stop`](Self::stop), with the same
    /// port and data. Does nothing if it is running.
    ///
    /// Sessions survive if their timeout has not passed. The server counts it again from its start.
    ///
    /// # Errors
    ///
    /// [`ServerError::Ended`] or [`ServerError::TimedOut`] with the server's log: for example if
    /// another process took the port, or if a member of an ensemble finds no quorum within 60 s
    /// (see [`ZooKeeperEnsemble::start_again`](crate::ZooKeeperEnsemble::start_again)).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server starting; call it again to wait for it.
    pub async fn start_again(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.spawn()?;
        self.ready().await
    }

    /// Sets a line of `zoo.cfg`, such as `maxSessionTimeout`, for when the server starts next.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn configure(&self, key: &str, value: &str) -> io::Result<()> {
        // Of two lines with one key the last counts.
        let mut file = OpenOptions::new().append(true).open(self.home.config())?;
        writeln!(file, "{key}={value}")
    }

    /// Stops the server and starts it again.
    ///
    /// # Errors
    ///
    /// As [`stop`](Self::stop) and [`start_again`](Self::start_again).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server stopped or starting.
    pub async fn restart(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.process
            .end(Process::terminate, |what, waited| {
                self.timed_out(what, waited)
            })
            .await?;
        self.spawn()?;
        self.ready().await
    }

    /// Halts the process (SIGSTOP): connections stay, and no request is answered. Idempotent.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the operating system refuses.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.process
            .signal(self.port(), "pause the server", Process::pause)
    }

    /// Lets a paused process go on (SIGCONT). Idempotent.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the operating system refuses.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.process
            .signal(self.port(), "resume the server", Process::resume)
    }

    /// Ends a session as if it had expired, and returns after its ephemeral nodes are deleted.
    ///
    /// The id of a session is the `ephemeral_owner` of the nodes that it created.
    ///
    /// This takes the session over on a connection of its own and closes it. No password is
    /// needed: the server derives it from the id. The takeover makes the server close the client's
    /// connection, so the client reconnects and learns the end of its session at once; seldom, it
    /// is back before the close, and learns it when it misses the reply to its next heartbeat.
    ///
    /// # Errors
    ///
    /// [`ServerError::NoSession`] if the session is over already, [`ServerError::TimedOut`] after
    /// 10 s, as when the server is paused, [`ServerError::NotRunning`], or [`ServerError::Io`].
    /// After a timeout or an I/O error the session may be over.
    pub async fn expire(&self, session_id: i64) -> Result<(), ServerError> {
        if self.pid().is_none() {
            return Err(self.not_running());
        }
        match timeout(EXPIRE_MAX, raw_session::end(self.port(), session_id)).await {
            Ok(Ok(Ended::Closed)) => Ok(()),
            Ok(Ok(Ended::Unknown)) => Err(ServerError::NoSession {
                port: self.port(),
                session_id,
            }),
            Ok(Err(source)) => Err(ServerError::io("end the session")(source)),
            Err(_) => Err(self.timed_out("end of the session", EXPIRE_MAX)),
        }
    }

    /// Whether it can answer: it is running and not paused.
    pub(super) fn is_active(&self) -> bool {
        self.process.is_active()
    }

    /// Starts the process unless it runs.
    pub(super) fn spawn(&self) -> Result<(), ServerError> {
        self.process.fill(|| {
            let started = Process::spawn(Launch {
                program: &self.installation.java,
                arguments: &self.arguments,
                folder: self.home.path(),
                log: &self.home.log(),
                account: None,
                has_children: false,
            })?;
            debug!(
                port = self.port(),
                pid = started.id(),
                "server process started"
            );
            Ok(started)
        })
    }

    /// Waits until the server serves clients.
    pub(super) async fn ready(&self) -> Result<(), ServerError> {
        self.until("readiness", || self.serves()).await
    }

    /// Waits until the server listens, with or without a quorum.
    pub(super) async fn listening(&self) -> Result<(), ServerError> {
        self.until("answer", || async {
            self.four_letter("ruok").await.is_ok_and(|r| r == "imok")
        })
        .await
    }

    async fn until<F>(&self, what: &'static str, done: impl Fn() -> F) -> Result<(), ServerError>
    where
        F: Future<Output = bool>,
    {
        let attempts = async {
            // A server that accepts a connection while it starts may never answer it, so try again.
            while timeout(ANSWER_MAX, done()).await != Ok(true) {
                if self.pid().is_none() {
                    return Err(ServerError::Ended {
                        port: self.port(),
                        log: self.home.log_tail(),
                    });
                }
                sleep(READY_POLL).await;
            }
            Ok(())
        };
        match timeout(READY_MAX, attempts).await {
            Ok(ended) => ended,
            Err(_) => Err(self.timed_out(what, READY_MAX)),
        }
    }

    /// Whether this very server answers. Another process may have taken the port first.
    async fn serves(&self) -> bool {
        if self.mode().await.is_none() {
            return false;
        }
        let data = self.home.path().display().to_string();
        self.four_letter("conf")
            .await
            .is_ok_and(|conf| conf.contains(&data))
    }

    pub(super) fn not_running(&self) -> ServerError {
        ServerError::NotRunning { port: self.port() }
    }

    pub(super) fn timed_out(&self, what: &'static str, waited: Duration) -> ServerError {
        ServerError::TimedOut {
            port: self.port(),
            what,
            waited,
            log: self.home.log_tail(),
        }
    }
}
