//! One PostgreSQL server.

mod builder;
mod identity;
mod installation;
mod replica;

use std::fmt;
use std::path::Path;

pub use builder::PostgresServerBuilder;

use super::command_line;
use super::daemon::Daemon;
use super::error::ServerError;
use installation::Installation;

/// The line of `postmaster.pid` that says how far the server is.
const STATUS_LINE: usize = 7;

/// A real PostgreSQL server on loopback, in processes of its own.
///
/// It needs PostgreSQL's programs, for example of Debian's package `postgresql`, whose own server
/// is left alone. PostgreSQL refuses to run as root: if the tests do, the server runs as the user
/// `postgres`, or `nobody`.
///
/// Whoever connects from this machine without a password is let in, except users of
/// [`user`](PostgresServerBuilder::user). Dropping it kills all its processes, waits for their end,
/// and removes its data. If the test process itself is killed, a watcher does the same.
///
/// Servers of one test process are copies of one that was made once, but for their
/// `system_identifier`.
///
/// All methods take `&self` and may be called from several tasks. It runs in real time.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::PostgresServer;
///
/// let server = PostgresServer::start().await?;
/// let rows = server.sql("SELECT 6 * 7, 'days'").await?;
/// assert_eq!(rows, [["42", "days"]]);
/// # Ok(())
/// # }
/// ```
pub struct PostgresServer {
    daemon: Daemon,
    installation: Installation,
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresServer")
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}

impl PostgresServer {
    /// Starts a server with the defaults of [`PostgresServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`PostgresServerBuilder::start`].
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Sets options before starting.
    pub fn builder() -> PostgresServerBuilder {
        PostgresServerBuilder::default()
    }

    /// Where clients connect, as the superuser: `postgres://postgres@127.0.0.1:<port>/postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(&format!("127.0.0.1:{}", self.port()))
    }

    /// The same over another address, `host:port`, such as that of a
    /// proxy.
    #[must_use]
    pub fn url_at(&self, address: &str) -> String {
        format!("postgres://postgres@{address}/postgres")
    }

    /// Where clients connect as another user.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        let port = self.port();
        format!("postgres://{user}:{password}@127.0.0.1:{port}/postgres")
    }

    /// The port for clients, which stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.daemon.port()
    }

    /// The process id of the postmaster, or `None` if it is not running.
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

    /// Carries out SQL, over a connection of its own and as the superuser. Returns the rows of all
    /// statements, as text: a null is `NULL`, a truth is `t` or `f`.
    ///
    /// Each statement is a transaction, unless the text says `BEGIN`. It may write on a server that
    /// is read-only, but not on a replica.
    ///
    /// # Errors
    ///
    /// [`ServerError::Refused`] if the server refuses a statement, after which none is carried out, or
    /// does not answer within a minute.
    pub async fn sql(&self, statements: &str) -> Result<Vec<Vec<String>>, ServerError> {
        let mut client = command_line::client(&self.installation.program("psql"));
        client
            .args(["--no-psqlrc", "--quiet", "--csv", "--tuples-only"])
            .args(["--set", "ON_ERROR_STOP=1", "--pset", "null=NULL"])
            .args(["--username", "postgres", "--dbname", "postgres"])
            .args(["--host", "127.0.0.1", "--port"])
            .arg(self.port().to_string())
            .env("PGOPTIONS", "-c default_transaction_read_only=off");
        let printed = command_line::run(client, statements).await;
        let printed = printed.map_err(|answer| ServerError::Refused {
            port: self.port(),
            request: statements.to_owned(),
            answer,
        })?;
        Ok(command_line::rows_of_csv(&printed))
    }

    /// Has the server take another setting, and waits until it says so. Those that are only read at
    /// the start need a restart. `None` is the value from the start.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn set(&self, name: &str, value: Option<&str>) -> Result<(), ServerError> {
        let loaded = "SELECT pg_conf_load_time()";
        let before = self.sql(loaded).await?;
        let change = match value {
            Some(value) => format!("SET {name} = '{}'", value.replace('\'', "''")),
            None => format!("RESET {name}"),
        };
        self.sql(&format!("ALTER SYSTEM {change}; SELECT pg_reload_conf();"))
            .await?;
        // A connection that is accepted afterwards has it. Others take it before their next
        // statement.
        self.until(
            "new setting",
            async || Ok(self.sql(loaded).await? != before),
        )
        .await
    }

    /// Makes all transactions read-only unless they say otherwise, or ends that.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn set_read_only(&self, is_read_only: bool) -> Result<(), ServerError> {
        let value = if is_read_only { "on" } else { "off" };
        self.set("default_transaction_read_only", Some(value)).await
    }

    /// Kills all processes of the server as `kill -9` does. Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if the operating system refuses; the server then still runs.
    pub async fn kill(&self) -> Result<(), ServerError> {
        self.daemon.kill().await
    }

    /// Requests the server to end and waits until it has; open transactions are rolled back. Does
    /// nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if it does not end; it is then killed.
    pub async fn stop(&self) -> Result<(), ServerError> {
        self.daemon.stop().await
    }

    /// Starts the server again, with the same port and what it has kept of its data. Does nothing
    /// if it is running.
    ///
    /// # Errors
    ///
    /// As [`PostgresServerBuilder::start`].
    pub async fn start_again(&self) -> Result<(), ServerError> {
        self.daemon.start(serves).await
    }

    /// Halts all processes of the server (SIGSTOP): connections stay, new ones are accepted by the
    /// operating system, and nothing is answered. Idempotent.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the operating system refuses.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.daemon.pause()
    }

    /// Lets a paused server go on (SIGCONT). Idempotent.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the operating system refuses.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.daemon.resume()
    }
}

/// Whether it accepts statements. It says so in a file of its own folder, so that no other server
/// is taken for it. A replica is as far as it gets when it is a standby.
fn serves(daemon: &Daemon) -> bool {
    let status = std::fs::read_to_string(daemon.folder.data().join("postmaster.pid"));
    let status = status.as_deref().unwrap_or_default();
    let is_ours = status.lines().next() == daemon.pid().map(|it| it.to_string()).as_deref();
    let is_ready = |it: &str| ["ready", "standby"].contains(&it.trim());
    is_ours && status.lines().nth(STATUS_LINE).is_some_and(is_ready)
}
