//! The sides that are compared.

use std::fmt;
use std::path::Path;

use tokio::process::Command;

use super::hash::{HashLocks, Waiting};
use super::ours::Ours;
use super::peer::Peer;
use super::work::{Order, Place, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    /// A hash, and clients that poll.
    Polled,
    /// A hash, and clients that each release wakes.
    Woken,
    /// Redisson's `RLock`, and its sets and pairs of it.
    Redisson,
    /// Redisson's `RFairLock`.
    RedissonFair,
    /// The crate `rslock`.
    Rslock,
}

impl Kind {
    /// The columns of the tables.
    pub(crate) const ALL: [Self; 6] = [
        Self::Ours,
        Self::Polled,
        Self::Woken,
        Self::Redisson,
        Self::RedissonFair,
        Self::Rslock,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Polled => "hash, polled",
            Self::Woken => "hash, all woken",
            Self::Redisson => "Redisson",
            Self::RedissonFair => "Redisson, fair",
            Self::Rslock => "rslock",
        })
    }
}

/// A peer with its version, or the reason why it is left out.
pub(crate) struct Foreign(Result<(Peer, String), String>);

impl Foreign {
    /// Builds and starts a peer of `tests/peers`.
    async fn start(name: &str, run: impl FnOnce(&str) -> Command) -> Self {
        Self(Self::try_start(name, run).await)
    }

    async fn try_start(
        name: &str,
        run: impl FnOnce(&str) -> Command,
    ) -> Result<(Peer, String), String> {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        let built = Command::new(peers.join(name).join("build")).output().await;
        let built = built.map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).trim().to_owned());
        }
        let built = String::from_utf8_lossy(&built.stdout);
        let mut peer = Peer::start(run(built.trim()))?;
        let version = peer.version().await?;
        Ok((peer, version))
    }

    /// The version, or why there is none.
    pub(crate) fn version(&self) -> String {
        match &self.0 {
            Ok((_, version)) => version.clone(),
            Err(reason) => format!("left out: {reason}"),
        }
    }

    async fn perform(&mut self, order: Order<'_>) -> Vec<u64> {
        let order = order.to_string();
        let (peer, _) = self.0.as_mut().expect("it is left out");
        let performed = peer.perform(&order).await;
        performed.unwrap_or_else(|error| panic!("{order}: {error}"))
    }

    async fn close(self) {
        if let Ok((peer, _)) = self.0 {
            peer.close().await;
        }
    }
}

pub(crate) struct Sides {
    ours: Ours,
    polled: HashLocks,
    woken: HashLocks,
    pub(crate) redisson: Foreign,
    pub(crate) rslock: Foreign,
}

impl Sides {
    pub(crate) async fn start() -> Self {
        let java = |class_path: &str| {
            let mut java = Command::new("java");
            java.args(["-Xmx512m", "-cp", class_path, "RedissonBench"]);
            java
        };
        Self {
            ours: Ours::default(),
            polled: HashLocks::new(Waiting::Polls),
            woken: HashLocks::new(Waiting::IsWoken),
            redisson: Foreign::start("redisson", java).await,
            rslock: Foreign::start("rslock", |program| Command::new(program)).await,
        }
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Ours | Kind::Polled | Kind::Woken => true,
            Kind::Redisson | Kind::RedissonFair => self.redisson.0.is_ok(),
            Kind::Rslock => self.rslock.0.is_ok(),
        }
    }

    /// Panics if a side fails, because work that was not done cannot be compared.
    pub(crate) async fn perform(&mut self, kind: Kind, work: Work, place: &Place) -> Vec<u64> {
        match kind {
            Kind::Ours => self.ours.perform(work, place).await,
            Kind::Polled => self.polled.perform(work, place).await,
            Kind::Woken => self.woken.perform(work, place).await,
            Kind::Redisson => self.redisson.perform(Order("RLock", work, place)).await,
            Kind::RedissonFair => self.redisson.perform(Order("RFairLock", work, place)).await,
            Kind::Rslock => self.rslock.perform(Order("rslock", work, place)).await,
        }
    }

    pub(crate) async fn close(self) {
        self.ours.close().await;
        self.redisson.close().await;
        self.rslock.close().await;
    }
}
