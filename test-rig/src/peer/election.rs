//! Curator's leader latch and leader selector.

use std::time::Duration;

use super::wire::Command;
use super::{CuratorPeer, MAIN, PeerError, millis};

/// Which of Curator's recipes elects a leader. Their nodes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateKind {
    /// `LeaderLatch`.
    Latch,
    /// `LeaderSelector`, whose listener leads until it is to resign.
    Selector,
}

impl CandidateKind {
    fn word(self) -> &'static str {
        match self {
            Self::Latch => "latch",
            Self::Selector => "selector",
        }
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the type's documentation says"
)]
impl CuratorPeer {
    /// Starts a candidate named `name`, with this id.
    pub async fn candidate(
        &self,
        name: &str,
        kind: CandidateKind,
        client: &str,
        path: &str,
        id: &str,
    ) -> Result<(), PeerError> {
        let candidate = Command::new(MAIN, "candidate").word(name).word(kind.word());
        let candidate = candidate.word(client).word(path).word(id);
        self.process.tell(candidate).await
    }

    /// Waits until the candidate leads; false if it does not in time.
    pub async fn leads_within(&self, name: &str, timeout: Duration) -> Result<bool, PeerError> {
        let leads = Command::new(MAIN, "leads").word(name);
        let leads = leads.number(millis(timeout));
        self.process.ask_within(leads, timeout).await?.parsed()
    }

    /// Returns `hasLeadership`, which is Curator's belief and not the server's.
    pub async fn leads(&self, name: &str) -> Result<bool, PeerError> {
        let leads = Command::new(MAIN, "leads").word(name);
        self.process.ask(leads).await?.parsed()
    }

    /// Resigns if the candidate leads, and stops it.
    pub async fn resign(&self, name: &str) -> Result<(), PeerError> {
        self.process
            .tell(Command::new(MAIN, "resign").word(name))
            .await
    }

    /// Returns the id of the leader, empty if there is none: `getLeader`.
    pub async fn leader(&self, name: &str) -> Result<String, PeerError> {
        let leader = Command::new(MAIN, "leader").word(name);
        self.process.ask(leader).await?.text()
    }

    /// Returns the ids of the candidates in queue order, each with whether it leads:
    /// `getParticipants`.
    pub async fn candidates(&self, name: &str) -> Result<Vec<(String, bool)>, PeerError> {
        let candidates = Command::new(MAIN, "candidates").word(name);
        let mut values = self.process.ask(candidates).await?;
        let mut ids = Vec::new();
        for word in values.texts()? {
            let leads = word.starts_with('+');
            let id = word.strip_prefix(['+', '-']);
            ids.push((id.ok_or_else(|| values.malformed())?.to_owned(), leads));
        }
        Ok(ids)
    }
}
