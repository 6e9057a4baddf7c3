//! How a Redis server is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::error::ServerError;
use super::redis::RedisServer;

/// Losing a race for a port so often means another problem.
const ATTEMPTS_MAX: usize = 5;

/// Options of a [`RedisServer`]; the defaults suit short tests.
#[derive(Clone, Debug)]
#[must_use = "call `start` to get a server"]
pub struct RedisServerBuilder {
    pub(super) settings: BTreeMap<String, String>,
    pub(super) is_sentinel: bool,
}

impl Default for RedisServerBuilder {
    /// Keeps its data in a log, which it writes before it answers and flushes once a second.
    fn default() -> Self {
        let settings = [
            ("bind", "127.0.0.1"),
            ("save", "\"\""),
            ("appendonly", "yes"),
            ("appendfsync", "everysec"),
            ("auto-aof-rewrite-percentage", "0"),
            ("repl-diskless-sync-delay", "0"),
            ("enable-debug-command", "yes"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            settings: settings.into(),
            is_sentinel: false,
        }
    }
}

impl RedisServerBuilder {
    /// Sets a line of the server's configuration.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Makes it a replica of another server.
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        self.setting("replicaof", &format!("127.0.0.1 {}", primary.port()))
    }

    /// Makes it a Sentinel, which watches over a primary by this name and decides alone.
    pub fn sentinel(mut self, name: &str, primary: &RedisServer) -> Self {
        self.settings.clear();
        self.is_sentinel = true;
        let watched = format!("127.0.0.1 {} 1", primary.port());
        self.setting("bind", "127.0.0.1")
            .setting(&format!("sentinel monitor {name}"), &watched)
            .setting(&format!("sentinel down-after-milliseconds {name}"), "2000")
            .setting(&format!("sentinel failover-timeout {name}"), "10000")
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`ServerError::RedisMissing`], [`ServerError::Ended`] or [`ServerError::TimedOut`] with the
    /// server's log, or [`ServerError::Io`].
    pub async fn start(self) -> Result<RedisServer, ServerError> {
        let program = find().ok_or(ServerError::RedisMissing)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let server = RedisServer::new(&program, &self)?;
            server.spawn()?;
            match server.ready().await {
                Ok(()) => return Ok(server),
                Err(error) if attempts >= ATTEMPTS_MAX || !lost_port(&error) => return Err(error),
                Err(_) => {}
            }
        }
    }
}

fn lost_port(error: &ServerError) -> bool {
    matches!(error, ServerError::Ended { log, .. } if log.contains("Address already in use"))
}

fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("REDIS_SERVER") {
        return Some(PathBuf::from(named)).filter(|program| program.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("redis-server"));
    programs.find(|program| program.is_file())
}
