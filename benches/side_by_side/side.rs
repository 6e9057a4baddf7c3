//! The sides that are compared.

use std::fmt;
use std::path::Path;

use tokio::process::Command;

use super::client::{BuiltIn, Raw};
use super::herd::Herd;
use super::ours::Ours;
use super::peer::Peer;
use super::work::{Order, Place, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Curator,
    BuiltIn,
    Kazoo,
    Raw,
    /// Only counted.
    Herd,
}

impl Kind {
    /// Those with a column in the tables of times.
    pub(crate) const ALL: [Self; 5] = [
        Self::Ours,
        Self::Curator,
        Self::BuiltIn,
        Self::Kazoo,
        Self::Raw,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Curator => "Curator",
            Self::BuiltIn => "zookeeper-client's lock",
            Self::Kazoo => "kazoo",
            Self::Raw => "raw create, delete",
            Self::Herd => "one node that all watch",
        })
    }
}

pub(crate) struct Sides {
    ours: Ours,
    built_in: BuiltIn,
    raw: Raw,
    herd: Herd,
    curator: Peer,
    /// `Err` has the reason why it is left out.
    kazoo: Result<Peer, String>,
    pub(crate) curator_version: String,
    /// `Err` has the reason why it is left out.
    pub(crate) kazoo_version: Result<String, String>,
}

impl Sides {
    pub(crate) async fn start() -> Self {
        let mut curator = curator().await.expect("no Curator");
        let mut kazoo = kazoo();
        let kazoo_version = match &mut kazoo {
            Ok(peer) => peer.version().await,
            Err(reason) => Err(reason.clone()),
        };
        Self {
            curator_version: curator.version().await.expect("no Curator"),
            ours: Ours::default(),
            built_in: BuiltIn::default(),
            raw: Raw::default(),
            herd: Herd::default(),
            curator,
            kazoo,
            kazoo_version,
        }
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        kind != Kind::Kazoo || self.kazoo_version.is_ok()
    }

    /// Panics if a side fails, because work that was not done cannot be compared.
    pub(crate) async fn perform(&mut self, kind: Kind, work: Work, place: &Place) -> Vec<u64> {
        let peer = match kind {
            Kind::Ours => return self.ours.perform(work, place).await,
            Kind::BuiltIn => return self.built_in.perform(work, place).await,
            Kind::Raw => return self.raw.perform(work, place).await,
            Kind::Herd => return self.herd.perform(work, place).await,
            Kind::Curator => &mut self.curator,
            Kind::Kazoo => self.kazoo.as_mut().expect("kazoo is left out"),
        };
        let performed = peer.perform(&Order(work, place).to_string()).await;
        performed.unwrap_or_else(|error| panic!("{kind}: {error}"))
    }

    pub(crate) async fn close(self) {
        self.ours.close().await;
        self.curator.close().await;
        if let Ok(kazoo) = self.kazoo {
            kazoo.close().await;
        }
    }
}

/// Curator in a JVM.
async fn curator() -> Result<Peer, String> {
    let build = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/peers/build");
    let built = Command::new(build).output().await;
    let built = built.map_err(|error| error.to_string())?;
    if !built.status.success() {
        return Err(String::from_utf8_lossy(&built.stderr).into_owned());
    }
    let class_path = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-cp", &class_path, "CuratorBench"]);
    Peer::start(java)
}

/// kazoo, with the Python that has it; `scripts/bench` sets `KAZOO_PYTHON`.
fn kazoo() -> Result<Peer, String> {
    let python = std::env::var("KAZOO_PYTHON");
    let python = python.map_err(|_| "KAZOO_PYTHON names no Python that has it".to_owned())?;
    let program =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/peers/kazoo/bench.py");
    let mut command = Command::new(python);
    command.arg(program);
    Peer::start(command)
}
