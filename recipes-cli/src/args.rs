//! The arguments of the command line, and its help.

#[cfg(target_os = "linux")]
mod acl;
#[cfg(test)]
mod packaged;
mod values;

#[cfg(target_os = "linux")]
use std::env;
#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(target_os = "linux")]
use clap::ValueEnum;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use recipes_core::internal::without_secrets;
#[cfg(target_os = "linux")]
use recipes_leader::ElectionLayout;
#[cfg(target_os = "linux")]
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::Targets;

#[cfg(target_os = "linux")]
pub(crate) use acl::acl;
pub(crate) use values::auth;
#[cfg(target_os = "linux")]
use values::mode;
use values::{duration, interval, log_filter, session_timeout};

/// The variable with the credentials.
pub(crate) const AUTH_VARIABLE: &str = "LOCKCTL_AUTH";
/// Where the store is, and perhaps a password.
const CONNECT_VARIABLE: &str = "LOCKCTL_CONNECT";

/// The variables of this process that a command must not see. Other commands may want to know the store.
#[cfg(target_os = "linux")]
pub(crate) fn secret_variables() -> impl Iterator<Item = &'static str> {
    let connect = env::var(CONNECT_VARIABLE).unwrap_or_default();
    let has_secret = without_secrets(&connect) != connect;
    let connect = has_secret.then_some(CONNECT_VARIABLE);
    [AUTH_VARIABLE].into_iter().chain(connect)
}

/// Locks that lock-recipes and Apache Curator share.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    /// Print JSON; `run` itself prints nothing
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log to standard error: error, warn, info, debug, trace, or by target, such as
    /// lock_recipes=debug,zookeeper_client=info
    #[arg(
        long,
        global = true,
        env = "LOCKCTL_LOG",
        value_name = "LEVEL",
        value_parser = log_filter
    )]
    pub(crate) log: Option<Targets>,
    #[command(subcommand)]
    pub(crate) command: Task,
}

/// Where the locks are, and how to connect.
#[derive(Args, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArguments {
    /// Servers of ZooKeeper, and the node below which all paths are: host:port,host:port/chroot.
    /// Or etcd: etcd://user:password@host:port,host:port/prefix, etcds:// over TLS.
    /// Or Redis: redis://user:password@host:port/database?prefix=locks, rediss:// over TLS,
    /// redis+sentinel://host:port,host:port/name, redis+cluster://host:port,host:port, redis+unix:///path.
    /// Or a database: postgres://user:password@host/database, postgres:///database?host=/path of a socket's folder,
    /// mysql://user:password@host/database. An address with a password is better passed in the environment,
    /// where `run` hides it from the command
    #[arg(
        long,
        short,
        global = true,
        env = CONNECT_VARIABLE,
        hide_env_values = true,
        value_name = "SERVERS"
    )]
    pub(crate) connect: Option<String>,
    /// How long the store keeps the locks of a process that sends no heartbeats
    #[arg(long, global = true, env = "LOCKCTL_SESSION_TIMEOUT", value_name = "DURATION",
        default_value = "12s", value_parser = session_timeout)]
    pub(crate) session_timeout: Duration,
    /// How long to wait for the store's answer
    #[arg(long, global = true, env = "LOCKCTL_CONNECT_TIMEOUT", value_name = "DURATION",
        default_value = "15s", value_parser = duration)]
    pub(crate) connect_timeout: Duration,
    /// Credentials, such as digest:user:password; better passed in the environment, where other
    /// users do not see them, and where `run` hides them from the command
    // Parsed later, because clap prints a value that it refuses.
    #[arg(
        long,
        global = true,
        env = AUTH_VARIABLE,
        hide_env_values = true,
        value_name = "SCHEME:CREDENTIALS"
    )]
    pub(crate) auth: Option<String>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: TlsArguments,
}

impl StoreArguments {
    /// The store for messages, without its password.
    pub(crate) fn address(&self) -> String {
        let servers = self.connect.as_deref().unwrap_or_default();
        without_secrets(servers)
    }

    /// Whether an option of TLS was given.
    pub(crate) fn encrypts(&self) -> bool {
        #[cfg(feature = "tls")]
        let encrypts = self.tls.is_asked_for();
        #[cfg(not(feature = "tls"))]
        let encrypts = false;
        encrypts
    }

    /// Whether the store knows who this is.
    #[cfg(target_os = "linux")]
    pub(crate) fn authenticates(&self) -> bool {
        #[cfg(feature = "tls")]
        let has_certificate = self.tls.tls_cert.is_some();
        #[cfg(not(feature = "tls"))]
        let has_certificate = false;
        self.auth.is_some() || has_certificate
    }
}

/// How connections are encrypted.
#[cfg(feature = "tls")]
#[derive(Args, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct TlsArguments {
    /// Encrypt connections; implied by the other TLS options
    #[arg(long, global = true, env = "LOCKCTL_TLS")]
    pub(crate) tls: bool,
    /// Certificates of the authorities that sign the servers' certificates, as PEM; no others are
    /// trusted
    #[arg(long, global = true, env = "LOCKCTL_TLS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate of this client, as PEM
    #[arg(long, global = true, env = "LOCKCTL_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of this client, as PEM
    #[arg(long, global = true, env = "LOCKCTL_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[cfg(feature = "tls")]
impl TlsArguments {
    /// Whether connections are encrypted. Any TLS option turns encryption on.
    pub(crate) fn is_asked_for(&self) -> bool {
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        self.tls || files.iter().any(|it| it.is_some())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Run a command while a lock is held
    #[cfg(target_os = "linux")]
    Run(RunArguments),
    /// List the locks that are held or waited for
    ///
    /// AGE is the time since the first holder queued: no store records when it was
    /// granted.
    Ls {
        /// The node below which to look for locks
        #[arg(default_value = "/")]
        root: String,
    },
    /// Show who holds a lock, who waits, and for whom
    Inspect {
        /// Lock directory
        path: String,
    },
    /// Ask the holders of a lock to give it up, as Curator's Revoker does
    Revoke {
        /// Lock directory, or one node of its queue
        path: String,
    },
    /// Take a lock from its holders, by deleting their nodes
    Break(BreakArguments),
    /// Find contenders that wait for each other
    Deadlocks(DeadlocksArguments),
    /// Serve a live page of locks, queues and deadlocks
    Serve(ServeArguments),
    /// Print the statements that create the tables and functions of a database
    ///
    /// For a user who may create them, where the services may not. Their names are those that
    /// sessions at the URL would use. Nothing is sent.
    Schema,
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    Man {
        /// The folder to write them to, such as /usr/local/share/man/man1
        folder: PathBuf,
    },
}

#[cfg(target_os = "linux")]
#[derive(Args, Debug)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArguments {
    /// How the locks are held: mutex, read or write (exclusively, shared with other readers, or as the
    /// writer of a read/write lock), semaphore:N (one of N permits), leader or leader-latch (as the
    /// leader of an election, with the nodes of Curator's LeaderSelector or LeaderLatch). A semaphore
    /// and an election have one path
    #[arg(long, default_value = "mutex", value_parser = mode, value_name = "MODE")]
    pub(crate) mode: Mode,
    /// Give up after this time without the lock (such as 500ms, 30s, 5m), the time to connect
    /// included; 0s takes only a free lock. Without it, wait as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// What happens to the command when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// What happens to the command on a request to give the lock up, as by `lockctl revoke`
    #[arg(long, value_enum, default_value_t = OnRevoke::Tell)]
    pub(crate) on_revoke: OnRevoke,
    /// What the lock is held for, shown to people who inspect it; up to 256 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) purpose: Option<String>,
    /// The id of the candidate in an election, which tells others who leads. Without it, the
    /// candidate is called by the command, the host, the process and the purpose
    #[arg(long, value_name = "TEXT", conflicts_with = "purpose")]
    pub(crate) id: Option<String>,
    /// Who may use the nodes that are created: `open` (everybody), `creator` (the credentials of this
    /// run), or SCHEME:ID:PERMISSIONS, several with commas, such as
    /// digest:ops:HASH:cdrwa,world:anyone:r
    // Parsed later, because clap prints a value that it refuses.
    #[arg(
        long,
        env = "LOCKCTL_ACL",
        value_name = "ACL",
        default_value = "open",
        hide_env_values = true
    )]
    pub(crate) acl: String,
    /// Lock directories; several are held together or not at all
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct BreakArguments {
    /// Lock directory, or one node of its queue
    pub(crate) path: String,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
#[command(after_help = DEADLOCKS_HELP)]
pub(crate) struct DeadlocksArguments {
    /// The node below which to look for locks
    #[arg(default_value = "/")]
    pub(crate) root: String,
    /// Print the graph of all waiting contenders, for Graphviz
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    /// The node below which to look for locks
    #[arg(default_value = "/")]
    pub(crate) root: String,
    /// The address of the page; everyone who can reach it may read the page
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// A host name that browsers may use for the page, in addition to localhost and IP addresses
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
    /// How often to look at the locks while the page is open
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub(crate) every: Duration,
}

// Help is wrapped to the terminal, so paragraphs have no line breaks of their own.

const DEADLOCKS_HELP: &str = "Exit codes: 0 no deadlock; 80 a deadlock; 81 possible deadlocks only, \
as some of their contenders are known by their sessions and not by their owners; otherwise as of all \
commands.";

#[cfg(target_os = "linux")]
const RUN_HELP: &str = "\
Ctrl-C reaches the command once. Ctrl-Z keeps the lock: a process outside the job holds it until \
the job goes on.

The command finds LOCKCTL_PATHS and LOCKCTL_TOKENS in its environment, one a line in the same \
order. A store that refuses tokens lower than it has seen is safe from whoever is late, whatever \
happens. LOCKCTL_OWNER names this run to the runs in the command, so that `lockctl deadlocks` sees \
that they belong together; it lets none of them enter a lock that this run holds.

Exit codes: the command's own (128 and the number of a signal that ended it); 64 usage, or nodes \
of another recipe; 66 no such chroot; 69 no connection; 70 internal; 75 others had the lock all \
the time; 76 lost while the command ran, or about to; 77 no permission. 126 and 127: the command \
cannot be run, or is not found. A command that itself ends with one of these cannot be told from \
lockctl by the code: let it use others. (lockctl also says why, on stderr.)";

/// How a lock is held.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Exclusively.
    Mutex,
    /// Shared with other readers of a read/write lock.
    Read,
    /// Exclusively, as the writer of a read/write lock.
    Write,
    /// One of so many permits.
    Semaphore(usize),
    /// As the leader of an election.
    Leader(ElectionLayout),
}

/// What happens to the command when the lock is lost.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnLost {
    /// SIGTERM a sixth of the session timeout before the loss, SIGKILL just before it
    Term,
    /// SIGKILL at the loss
    Kill,
    /// It goes on without the lock; the exit code reports the loss
    Ignore,
}

/// What happens to the command on a request to give the lock up.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnRevoke {
    /// It goes on; lockctl reports the request on stderr
    Tell,
    /// SIGTERM; it may take as long as it needs
    Term,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Arguments;

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
