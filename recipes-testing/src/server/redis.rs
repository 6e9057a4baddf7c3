//! One Redis server.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue, RedisResult, cmd};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::error::ServerError;
use super::ports::{self, Port};
use super::process::{Launch, Process};
use super::redis_builder::RedisServerBuilder;
use super::slot::Slot;

/// Starting takes milliseconds, unless the machine is busy.
const READY_MAX: Duration = Duration::from_secs(60);
/// How often a server that starts is asked.
const READY_POLL: Duration = Duration::from_millis(5);
/// A server that listens answers within milliseconds, unless the machine is busy.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Whoever polls a server that starts asks it again after so long: it, or who has its port, may never answer.
const POLL_MAX: Duration = Duration::from_secs(10);
/// The end of the log that an error quotes.
const LOG_TAIL_BYTES: usize = 4096;

/// A real Redis server on loopback, in a process of its own.
///
/// It needs `redis-server`, for example of Debian's package, or the program that the environment variable
/// `REDIS_SERVER` names, such as `valkey-server`. Dropping it kills the process, waits
/// for its end, and removes its data. If the test process itself is killed, a watcher does the same.
///
/// All methods take `&self` and may be called from several tasks. It runs in real time.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::RedisServer;
///
/// let server = RedisServer::start().await?;
/// let answer: String = server.command(&["PING"]).await?;
/// assert_eq!(answer, "PONG");
/// # Ok(())
/// # }
/// ```
pub struct RedisServer {
    /// None while stopped. Declared before the folder, so that the process ends first.
    process: Slot,
    /// Held while the process is started or ended.
    change: tokio::sync::Mutex<()>,
    folder: TempDir,
    port: Port,
    /// On which it speaks to the other servers of its cluster.
    _bus: Option<Port>,
    program: PathBuf,
    is_sentinel: bool,
    operator: Client,
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer")
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}

impl RedisServer {
    /// Starts a server with the defaults of [`RedisServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`RedisServerBuilder::start`].
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Sets options before starting.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    pub(super) fn new(program: &Path, options: &RedisServerBuilder) -> Result<Self, ServerError> {
        let settings = &options.settings;
        let is_clustered = settings
            .get("cluster-enabled")
            .is_some_and(|it| it == "yes");
        let ports = ports::free(1 + usize::from(is_clustered));
        let mut ports = ports.map_err(ServerError::io("find a free port"))?;
        let bus = if is_clustered { ports.pop() } else { None };
        let port = ports.pop().ok_or_else(|| {
            ServerError::io("find a free port")(io::ErrorKind::AddrNotAvailable.into())
        })?;
        let mut builder = tempfile::Builder::new();
        builder.prefix("redis-");
        // Memory rather than disk: no file outlives the test.
        let folder = builder
            .tempdir_in("/dev/shm")
            .or_else(|_| builder.tempdir());
        let folder = folder.map_err(ServerError::io("make the server's folder"))?;
        let mut lines = format!("port {}\ndir {}\n", port.number(), folder.path().display());
        if let Some(bus) = &bus {
            lines.push_str(&format!("cluster-port {}\n", bus.number()));
        }
        // A Sentinel must know its primary before it is told more of it.
        let (first, rest): (Vec<_>, Vec<_>) = settings
            .iter()
            .partition(|(name, _)| name.starts_with("sentinel monitor"));
        for (name, value) in first.into_iter().chain(rest) {
            lines.push_str(&format!("{name} {value}\n"));
        }
        std::fs::write(folder.path().join("redis.conf"), lines)
            .map_err(ServerError::io("write the server's configuration"))?;
        let password = settings.get("requirepass");
        let secret = password.map(|it| format!(":{it}@")).unwrap_or_default();
        let url = format!("redis://{secret}127.0.0.1:{}/", port.number());
        let operator = Client::open(url).map_err(|source| ServerError::Redis {
            port: port.number(),
            command: "connect".to_owned(),
            source,
        })?;
        Ok(Self {
            process: Slot::default(),
            change: tokio::sync::Mutex::new(()),
            folder,
            port,
            _bus: bus,
            program: program.to_owned(),
            is_sentinel: options.is_sentinel,
            operator,
        })
    }

    /// Where clients connect: `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The port for clients, which stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id, or `None` if it is not running.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.running().as_ref().map(Process::id)
    }

    /// The folder with the server's data, which is removed when the server is dropped.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Carries out a command, over a connection of its own, as an operator would.
    ///
    /// # Errors
    ///
    /// [`ServerError::Redis`] if the server refuses it or does not answer within a minute.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, ServerError> {
        let carried_out = async {
            let mut connection = self.connection().await?;
            let (name, arguments) = words.split_first().unwrap_or((&"", &[]));
            let mut command = cmd(name);
            for argument in arguments {
                command.arg(*argument);
            }
            command.query_async(&mut connection).await
        };
        let answer: RedisResult<T> = match timeout(ANSWER_MAX, carried_out).await {
            Ok(answer) => answer,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        answer.map_err(|source| ServerError::Redis {
            port: self.port(),
            command: words.join(" "),
            source,
        })
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        // The defaults are a second and less. The caller has a limit for both together.
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let operator = &self.operator;
        operator
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// Kills the process as `kill -9` does. Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if the operating system refuses; the server then still runs.
    pub async fn kill(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.process
            .end(Process::kill, |what, waited| self.timed_out(what, waited))
            .await
    }

    /// Requests the server to end and waits until it has. Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if it does not end; it is then killed.
    pub async fn stop(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.process
            .end(Process::terminate, |what, waited| {
                self.timed_out(what, waited)
            })
            .await
    }

    /// Starts the server again, with the same port and what it has kept of its data. Does nothing
    /// if it is running.
    ///
    /// # Errors
    ///
    /// As [`RedisServerBuilder::start`].
    pub async fn start_again(&self) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
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

    pub(super) fn spawn(&self) -> Result<(), ServerError> {
        self.process.fill(|| {
            let mut arguments = vec![OsString::from(self.folder.path().join("redis.conf"))];
            if self.is_sentinel {
                arguments.push(OsString::from("--sentinel"));
            }
            Process::spawn(Launch {
                program: &self.program,
                arguments: &arguments,
                folder: self.folder.path(),
                log: &self.log(),
                account: None,
                has_children: false,
            })
        })
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_else(|error| error.to_string());
        let from = log.len().saturating_sub(LOG_TAIL_BYTES);
        let from = (from..log.len()).find(|at| log.is_char_boundary(*at));
        from.and_then(|from| log.get(from..))
            .unwrap_or(&log)
            .to_owned()
    }

    /// Waits until this very server answers, with its data loaded.
    pub(super) async fn ready(&self) -> Result<(), ServerError> {
        let attempts = async {
            loop {
                if self.serves().await {
                    return Ok(());
                }
                if self.pid().is_none() {
                    return Err(ServerError::Ended {
                        port: self.port(),
                        log: self.log_tail(),
                    });
                }
                sleep(READY_POLL).await;
            }
        };
        match timeout(READY_MAX, attempts).await {
            Ok(ready) => ready,
            Err(_) => Err(self.timed_out("readiness", READY_MAX)),
        }
    }

    /// Whether this very server answers. Another process may have taken the port first.
    async fn serves(&self) -> bool {
        let info = timeout(POLL_MAX, self.command::<String>(&["INFO"])).await;
        let info = info.ok().and_then(Result::ok);
        let config = self.folder.path().join("redis.conf").display().to_string();
        let is_this = |info: &String| info.lines().any(|line| line.ends_with(&config));
        // It answers this already while it loads its data.
        info.is_some_and(|info| is_this(&info) && !info.contains("loading:1"))
    }

    fn timed_out(&self, what: &'static str, waited: Duration) -> ServerError {
        ServerError::TimedOut {
            port: self.port(),
            what,
            waited,
            log: self.log_tail(),
        }
    }
}
