//! The configuration, and the check that it is complete.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Names of the nodes that belong together, in the order in which they are written.
pub(crate) const NAMES: [&str; 5] = ["database", "cache", "limits", "features", "routes"];

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) version: u64,
    pub(crate) values: BTreeMap<String, String>,
}

/// Data of the manifest node, which describes the other nodes. It is written after them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u64,
    pub(crate) checksum: String,
}

/// Data of all nodes as they were read; `None` for a node that does not exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) manifest: Option<Vec<u8>>,
    pub(crate) values: BTreeMap<String, Option<Vec<u8>>>,
}

/// Why the nodes contain no configuration that can be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unusable {
    /// No configuration was written yet.
    #[error("no configuration yet")]
    Absent,
    /// No writer is active under a read lock, so one that began has died and will never finish.
    #[error("configuration incomplete, last writer died: checksum {found}, not {expected}")]
    Incomplete { found: String, expected: String },
}

impl Config {
    /// Invents what an operator would edit. It contains the writer's id, because two writers may
    /// write the same version if the first dies.
    pub(crate) fn made_up(version: u64, writer: u32) -> Self {
        let value = |name| format!("{name} of version {version} by process {writer}");
        let values = NAMES.map(|name| (name.to_owned(), value(name)));
        let values = BTreeMap::from(values);
        Self { version, values }
    }

    /// FNV-1a of 64 bits. It detects accidents, not forgeries.
    pub(crate) fn checksum(&self) -> String {
        let version = self.version.to_string();
        let values = self.values.iter().flat_map(|(name, value)| [name, value]);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for text in std::iter::once(&version).chain(values) {
            // UTF-8 has no byte 0xff, so it marks the end of each text.
            for byte in text.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        format!("{hash:016x}")
    }

    pub(crate) fn manifest(&self) -> Manifest {
        let (version, checksum) = (self.version, self.checksum());
        Manifest { version, checksum }
    }
}

impl Nodes {
    /// Checks with a checksum of its own whether these nodes are a complete configuration.
    pub(crate) fn judge(self) -> Result<Config, Unusable> {
        let manifest = self.manifest.as_deref();
        if manifest.is_none() && self.values.values().all(Option::is_none) {
            return Err(Unusable::Absent);
        }
        let manifest = manifest.and_then(|data| serde_json::from_slice::<Manifest>(data).ok());
        let present = self.values.into_iter().filter_map(|(name, data)| {
            // Our own data is always UTF-8. Other bytes are replaced, so the checksum differs.
            Some((name, String::from_utf8_lossy(&data?).into_owned()))
        });
        let config = Config {
            version: manifest.as_ref().map_or(0, |it| it.version),
            values: present.collect(),
        };
        match manifest {
            Some(manifest) if manifest == config.manifest() => Ok(config),
            manifest => Err(Unusable::Incomplete {
                found: config.checksum(),
                expected: manifest.map_or("in any manifest".to_owned(), |it| it.checksum),
            }),
        }
    }
}
