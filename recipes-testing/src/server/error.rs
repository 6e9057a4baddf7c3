//! Errors of real servers.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a real server could not do what was requested.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// No Java runtime.
    #[error(
        "no `java` in JAVA_HOME or PATH: install one (Debian: apt-get install \
         openjdk-17-jdk-headless) or set JAVA_HOME"
    )]
    JavaMissing,
    /// No ZooKeeper jars.
    #[error(
        "no ZooKeeper server in {}: install it (Debian: apt-get install zookeeper) or set \
         ZOOKEEPER_HOME to an unpacked Apache ZooKeeper release", .looked_in.display()
    )]
    ServerMissing {
        /// The folder or jar that was expected.
        looked_in: PathBuf,
    },
    /// No Redis server.
    #[error(
        "no `redis-server` in PATH, or no program REDIS_SERVER: install it (Debian: apt-get install redis-server)"
    )]
    RedisMissing,
    /// No PostgreSQL server.
    #[error(
        "no `postgres`, `initdb`, `pg_basebackup` and `psql` in one folder of PATH or in \
         /usr/lib/postgresql/*/bin: install them (Debian: apt-get install postgresql)"
    )]
    PostgresMissing,
    /// No MariaDB server, or no client.
    #[error(
        "no `{program}` in PATH or /usr/sbin: install it (Debian: apt-get install \
         mariadb-server-core mariadb-client-core)"
    )]
    MariaDbMissing {
        /// What was looked for.
        program: &'static str,
    },
    /// No etcd, or no client next to it.
    #[error(
        "no `{program}` in PATH, or none next to the program ETCD: install it (Debian: apt-get install \
         etcd-server etcd-client)"
    )]
    EtcdMissing {
        /// What was looked for.
        program: &'static str,
    },
    /// The program that makes a server's data folder failed.
    #[error("{program} made no data folder; its output ends with:\n{log}")]
    NoData {
        /// The program.
        program: &'static str,
        /// The last lines that it printed.
        log: String,
    },
    /// The process ended before the server was ready. Its data folder was removed with it.
    #[error("server on port {port} ended before it was ready; its log ends with:\n{log}")]
    Ended {
        /// The client port.
        port: u16,
        /// The last lines of the server's log.
        log: String,
    },
    /// Something that should take well under a second did not happen.
    #[error("server on port {port}: no {what} within {waited:?}; its log ends with:\n{log}")]
    TimedOut {
        /// The client port.
        port: u16,
        /// What was awaited.
        what: &'static str,
        /// For how long.
        waited: Duration,
        /// The last lines of the server's log.
        log: String,
    },
    /// The server was stopped or killed, or ended by itself.
    #[error("server on port {port} is not running")]
    NotRunning {
        /// The client port.
        port: u16,
    },
    /// The server does not know the session. It has ended, or belongs to another ensemble.
    #[error("server on port {port} knows no session {session_id:#x}")]
    NoSession {
        /// The client port.
        port: u16,
        /// The session that was to be ended.
        session_id: i64,
    },
    /// The server answered something that this library does not understand.
    #[error("server on port {port} answered {command} with {reply:?}")]
    Reply {
        /// The client port.
        port: u16,
        /// The request.
        command: String,
        /// The answer.
        reply: String,
    },
    /// An ensemble of no servers, or of more than nine.
    #[error("an ensemble has 1 to 9 servers, not {0}")]
    Size(usize),
    /// The operating system refused something with a file, a socket or a process.
    #[error("could not {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The client could not connect.
    #[cfg(feature = "zookeeper-server")]
    #[error("could not connect a client")]
    Client(#[from] zookeeper_client::Error),
    /// The server did not carry out a statement, or what etcd's client was to do.
    #[error("server on port {port} refused {request:?}: {answer}")]
    Refused {
        /// Where it listens.
        port: u16,
        /// The statement, or the words.
        request: String,
        /// What the client printed as the error.
        answer: String,
    },
    /// The Redis server did not carry out a command.
    #[cfg(feature = "redis-server")]
    #[error("server on port {port} refused {command}")]
    Redis {
        /// Where it listens.
        port: u16,
        /// The command.
        command: String,
        /// What it answered.
        source: redis::RedisError,
    },
}

impl ServerError {
    /// Adds what was tried to an error of the operating system.
    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
