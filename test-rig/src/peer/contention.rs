//! Many Java threads that share a lock.

use std::future::Future;

use super::grants::{self, Grant, ReadWriteGrants};
use super::wire::Command;
use super::{CuratorPeer, MAIN, PeerError};

/// The load of [`CuratorPeer::contend_read_write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWriteMix {
    /// Grants over all threads together.
    pub rounds: u32,
    /// Java threads, each with its own lock object.
    pub threads: u16,
    /// Share of the rounds that write, 0 to 100.
    pub write_percent: u8,
    /// Seed of the choice between reading and writing.
    pub seed: u16,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl CuratorPeer {
    /// Lets `threads` Java threads share `rounds` grants of the mutex at `path`.
    ///
    /// While it holds the lock, each thread reads the decimal number in the node `counter`, which
    /// must exist, and writes it back plus one, without a version. Judge the grants with
    /// [`check_grants`](crate::check_grants). The command is sent by this call, as in
    /// [`CuratorPeer::acquire`]. An acquire of over a minute is an error.
    pub fn contend(
        &self,
        client: &str,
        path: &str,
        counter: &str,
        rounds: u32,
        threads: u16,
    ) -> impl Future<Output = Result<Vec<Grant>, PeerError>> + Send + use<> {
        let contend = Command::new(MAIN, "contend")
            .word(client)
            .word(path)
            .word(counter);
        let pending = self.process.send(contend.number(rounds).number(threads));
        async move { grants::parse(&mut pending.values().await?) }
    }

    /// Lets Java threads read and write under the read-write lock at `path`.
    ///
    /// Writers raise the decimal number in each of the two `counters`. A reader or writer that
    /// finds them different fails with `IllegalStateException`. Otherwise it works as
    /// [`CuratorPeer::contend`].
    pub fn contend_read_write(
        &self,
        client: &str,
        path: &str,
        counters: [&str; 2],
        mix: ReadWriteMix,
    ) -> impl Future<Output = Result<ReadWriteGrants, PeerError>> + Send + use<> {
        let contend = Command::new(MAIN, "contendrw").word(client).word(path);
        let contend = counters.iter().fold(contend, Command::word);
        let contend = contend.number(mix.rounds).number(mix.threads);
        let pending = self
            .process
            .send(contend.number(mix.write_percent).number(mix.seed));
        async move {
            let mut values = pending.values().await?;
            let readers_max = values.parsed()?;
            Ok(ReadWriteGrants {
                readers_max,
                grants: grants::parse(&mut values)?,
            })
        }
    }
}
