//! What a test can ask of one server: its reports, and where its log is.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tokio::time::timeout;

use super::error::ServerError;
use super::four_letter::{self, Mode, Silence};
use super::single::ZooKeeperServer;

/// Whoever polls a role asks again after so long: a server that accepts a connection while it starts may never
/// answer it.
const ROLE_MAX: Duration = Duration::from_secs(5);

impl ZooKeeperServer {
    /// Sends a four-letter word, such as `wchs` or `mntr`, and returns the reply.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if there is no reply within 30 s, as when the server is paused;
    /// [`ServerError::NotRunning`], or [`ServerError::Io`] if the connection fails.
    pub async fn four_letter(&self, command: &str) -> Result<String, ServerError> {
        if self.pid().is_none() {
            return Err(self.not_running());
        }
        match four_letter::ask(self.port(), command).await {
            Ok(reply) => Ok(reply),
            Err(Silence::TimedOut) => {
                Err(self.timed_out("reply to a four-letter word", four_letter::REPLY_MAX))
            }
            Err(Silence::Io(source)) => Err(ServerError::io("ask a four-letter word")(source)),
        }
    }

    /// Returns the number of the last transaction, which rises with each write and each session.
    ///
    /// # Errors
    ///
    /// As [`four_letter`](Self::four_letter), and [`ServerError::Reply`] if the server has no
    /// quorum.
    pub async fn zxid(&self) -> Result<i64, ServerError> {
        self.read("srvr", four_letter::zxid).await
    }

    /// Returns how many watches clients have set on this server.
    ///
    /// # Errors
    ///
    /// As [`four_letter`](Self::four_letter), and [`ServerError::Reply`] if the server has no
    /// quorum.
    pub async fn watch_count(&self) -> Result<usize, ServerError> {
        self.read("wchs", four_letter::watch_count).await
    }

    /// The folder with the server's own log of all that it has done.
    #[doc(hidden)]
    #[must_use]
    pub fn log_folder(&self) -> PathBuf {
        self.home.log_folder()
    }

    /// Runs a class of the server's jars.
    #[doc(hidden)]
    #[must_use]
    pub fn tool(&self, class: &str) -> Command {
        let mut tool = Command::new(&self.installation.java);
        tool.arg("-cp")
            .arg(&self.installation.class_path)
            .arg(class);
        tool
    }

    /// Returns the server's role, if it serves.
    pub(super) async fn mode(&self) -> Option<Mode> {
        let said = timeout(ROLE_MAX, self.four_letter("srvr")).await;
        four_letter::mode(&said.ok()?.ok()?)
    }

    async fn read<T>(
        &self,
        command: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ServerError> {
        let reply = self.four_letter(command).await?;
        let (port, command) = (self.port(), command.to_owned());
        parse(&reply).ok_or(ServerError::Reply {
            port,
            command,
            reply,
        })
    }
}
