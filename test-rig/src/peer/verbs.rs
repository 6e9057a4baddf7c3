//! The commands that all peers know.

use std::future::Future;
use std::time::Duration;

use super::process::{ANSWER_MAX, Process};
use super::wire::{Command, Values};
use super::{MAIN, PeerError, millis};

/// The command that connects a new client.
pub(super) fn open(client: &str, connect_string: &str, session_timeout: Duration) -> Command {
    let open = Command::new(MAIN, "open").word(client).word(connect_string);
    open.number(millis(session_timeout))
}

impl Process {
    pub(super) async fn ask(&self, command: Command) -> Result<Values, PeerError> {
        self.ask_within(command, Duration::ZERO).await
    }

    /// Sends a command that may take `wait` longer than a plain one.
    pub(super) async fn ask_within(
        &self,
        command: Command,
        wait: Duration,
    ) -> Result<Values, PeerError> {
        let pending = self.send(command);
        pending.values_within(ANSWER_MAX.saturating_add(wait)).await
    }

    pub(super) async fn tell(&self, command: Command) -> Result<(), PeerError> {
        self.ask(command).await.map(drop)
    }

    /// The version of the client that the peer runs.
    pub(super) async fn version(&self) -> Result<String, PeerError> {
        self.ask(Command::new(MAIN, "version")).await?.text()
    }

    pub(super) async fn exit(self) -> Result<(), PeerError> {
        self.tell(Command::new(MAIN, "exit")).await?;
        self.wait().await
    }

    /// Connects a new client, and returns its session id.
    pub(super) async fn open(&self, open: Command) -> Result<i64, PeerError> {
        self.ask(open).await?.hexadecimal()
    }

    pub(super) async fn session(&self, client: &str) -> Result<i64, PeerError> {
        let session = Command::new(MAIN, "session").word(client);
        self.ask(session).await?.hexadecimal()
    }

    pub(super) async fn close(&self, client: &str) -> Result<(), PeerError> {
        self.tell(Command::new(MAIN, "close").word(client)).await
    }

    /// The command is sent by this call, not when the future is polled.
    pub(super) fn acquire(
        &self,
        thread: &str,
        lock: &str,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<bool, PeerError>> + Send + use<> {
        let acquire = Command::new(thread, "acquire").word(lock);
        let pending = self.send(match timeout {
            Some(timeout) => acquire.number(millis(timeout)),
            None => acquire,
        });
        async move { pending.values().await?.parsed() }
    }

    pub(super) async fn release(&self, thread: &str, lock: &str) -> Result<(), PeerError> {
        self.tell(Command::new(thread, "release").word(lock)).await
    }

    pub(super) async fn lock_path(
        &self,
        thread: &str,
        lock: &str,
    ) -> Result<Option<String>, PeerError> {
        let lock_path = Command::new(thread, "lockpath").word(lock);
        let mut values = self.ask(lock_path).await?;
        match values.is_empty() {
            true => Ok(None),
            false => values.text().map(Some),
        }
    }
}
