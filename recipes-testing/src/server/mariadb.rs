//! One MariaDB server.

mod builder;
mod installation;

use std::fmt;
use std::path::Path;

pub use builder::MariaDbServerBuilder;

use super::command_line;
use super::daemon::Daemon;
use super::error::ServerError;
use installation::Installation;

/// Separates what the client sends at a time, and is in no statement. So a procedure may have
/// semicolons in it, and nobody needs to say `DELIMITER`.
const DELIMITER: &str = "$$END$$";

/// A real MariaDB server on loopback, in a process of its own.
///
/// It needs `mariadbd`, `mariadb-install-db` and `mariadb`, for example of Debian's packages
/// `mariadb-server-core` and `mariadb-client-core`. If the environment variable `MYSQLD` names the
/// program `mysqld` of MySQL 8.4 or later, beside which its client `mysql` stands, that is started
/// instead. Whoever connects from this machine as `root`
/// without a password is let in. Dropping it kills the process, waits for its end, and removes its
/// data. If the test process itself is killed, a watcher does the same.
///
/// All methods take `&self` and may be called from several tasks. It runs in real time.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::MariaDbServer;
///
/// let server = MariaDbServer::start().await?;
/// let rows = server.sql("SELECT 6 * 7, 'days'").await?;
/// assert_eq!(rows, [["42", "days"]]);
/// # Ok(())
/// # }
/// ```
pub struct MariaDbServer {
    daemon: Daemon,
    installation: Installation,
}

impl fmt::Debug for MariaDbServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MariaDbServer")
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}

impl MariaDbServer {
    /// Starts a server with the defaults of [`MariaDbServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`MariaDbServerBuilder::start`].
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// Sets options before starting.
    pub fn builder() -> MariaDbServerBuilder {
        MariaDbServerBuilder::default()
    }

    /// Where clients connect, as the user with all rights: `mysql://root@127.0.0.1:<port>/locks`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(&format!("127.0.0.1:{}", self.port()))
    }

    /// The same over another address, `host:port`, such as that of a
    /// proxy.
    #[must_use]
    pub fn url_at(&self, address: &str) -> String {
        format!("mysql://root@{address}/locks")
    }

    /// Where clients connect as another user.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        let port = self.port();
        format!("mysql://{user}:{password}@127.0.0.1:{port}/locks")
    }

    /// Whether it is MySQL, which the environment variable `MYSQLD` names.
    #[must_use]
    pub fn is_mysql(&self) -> bool {
        self.installation.is_mysql()
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

    /// Carries out SQL, over a connection of its own and as `root`, in the database `locks`.
    /// Returns the rows of all statements, as text: a null is `NULL`, a truth is `1` or `0`.
    ///
    /// A procedure may be created as one is written, without `DELIMITER`. It may write on a server
    /// that is read-only.
    ///
    /// # Errors
    ///
    /// [`ServerError::Refused`] if the server refuses a statement, after which none is carried out, or
    /// does not answer within a minute.
    pub async fn sql(&self, statements: &str) -> Result<Vec<Vec<String>>, ServerError> {
        let mut client = command_line::client(self.installation.client());
        client
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .args(["--protocol=tcp", "--host=127.0.0.1", "--user=root"])
            .arg(format!("--port={}", self.port()))
            .arg(format!("--delimiter={DELIMITER}"))
            .arg("--default-character-set=utf8mb4")
            .arg("locks");
        let printed = command_line::run(client, statements).await;
        let printed = printed.map_err(|answer| ServerError::Refused {
            port: self.port(),
            request: statements.to_owned(),
            answer,
        })?;
        Ok(command_line::rows_of_batch(&printed))
    }

    /// Sets a global variable, which those have who connect afterwards. It is forgotten with the
    /// end of the process.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn set(&self, name: &str, value: &str) -> Result<(), ServerError> {
        let statement = format!("SET GLOBAL {name} = {value}");
        self.sql(&statement).await.map(drop)
    }

    /// Refuses writes of all users but `root` (`read_only`), or ends that.
    ///
    /// # Errors
    ///
    /// As [`sql`](Self::sql).
    pub async fn set_read_only(&self, is_read_only: bool) -> Result<(), ServerError> {
        let value = if is_read_only { "ON" } else { "OFF" };
        self.set("read_only", value).await
    }

    /// Kills the process as `kill -9` does. Does nothing if it is not running.
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
    /// As [`MariaDbServerBuilder::start`].
    pub async fn start_again(&self) -> Result<(), ServerError> {
        self.daemon.start(serves).await
    }

    /// Halts the process (SIGSTOP): connections stay, new ones are accepted by the operating
    /// system, and nothing is answered. Idempotent.
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
}

/// Whether it accepts statements. It says so in its own log, so that no other server is taken for
/// it.
fn serves(daemon: &Daemon) -> bool {
    daemon.log().contains("ready for connections")
}
