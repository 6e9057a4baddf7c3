//! Nodes, as Curator's client reads and changes them.

use std::time::Duration;

use super::wire::Command;
use super::{CuratorPeer, MAIN, PeerError, millis};

/// What the server knows of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerStat {
    /// Transaction that created the node.
    pub czxid: i64,
    /// Session that the node is deleted with, 0 for none.
    pub ephemeral_owner: i64,
    /// Number of creations and deletions of children.
    pub cversion: i32,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl CuratorPeer {
    /// Creates a node, and its parents, and returns its path.
    ///
    /// `mode` is a name of Java's `CreateMode` in either case, as in `ephemeral_sequential`.
    pub async fn create(
        &self,
        client: &str,
        path: &str,
        mode: &str,
        data: &[u8],
    ) -> Result<String, PeerError> {
        let create = Command::new(MAIN, "create")
            .word(client)
            .word(path)
            .word(mode);
        self.process.ask(create.word(data)).await?.text()
    }

    /// Reads the node's data.
    pub async fn data(&self, client: &str, path: &str) -> Result<Vec<u8>, PeerError> {
        self.process
            .ask(Command::new(MAIN, "get").word(client).word(path))
            .await?
            .bytes()
    }

    /// Replaces the node's data, whatever its version.
    pub async fn set_data(&self, client: &str, path: &str, data: &[u8]) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "set").word(client).word(path).word(data))
            .await
    }

    /// Deletes the node, whatever its version.
    pub async fn delete(&self, client: &str, path: &str) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "delete").word(client).word(path))
            .await
    }

    /// Returns the names of the node's children, in no order.
    pub async fn children(&self, client: &str, path: &str) -> Result<Vec<String>, PeerError> {
        self.process
            .ask(Command::new(MAIN, "children").word(client).word(path))
            .await?
            .texts()
    }

    /// Waits until the node has exactly `count` children; false if it does not in time.
    ///
    /// A node that does not exist has none.
    pub async fn await_children(
        &self,
        client: &str,
        path: &str,
        count: u32,
        timeout: Duration,
    ) -> Result<bool, PeerError> {
        let children = Command::new(MAIN, "awaitchildren")
            .word(client)
            .word(path)
            .number(count);
        self.process
            .ask_within(children.number(millis(timeout)), timeout)
            .await?
            .parsed()
    }

    /// Returns what the server knows of the node, if it exists.
    pub async fn stat(&self, client: &str, path: &str) -> Result<Option<PeerStat>, PeerError> {
        let mut values = self
            .process
            .ask(Command::new(MAIN, "stat").word(client).word(path))
            .await?;
        if values.is_empty() {
            return Ok(None);
        }
        Ok(Some(PeerStat {
            czxid: values.parsed()?,
            ephemeral_owner: values.hexadecimal()?,
            cversion: values.parsed()?,
        }))
    }

    /// Returns the node's access list, each entry in the form `world:anyone:cdrwa`.
    pub async fn acl(&self, client: &str, path: &str) -> Result<Vec<String>, PeerError> {
        self.process
            .ask(Command::new(MAIN, "acl").word(client).word(path))
            .await?
            .texts()
    }
}
