//! What a configuration is, and how one knows that it is whole.

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

/// Data of the node that says what the others must be; written after them.
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

/// Why there is nothing to be served in the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unusable {
    /// Nobody has written yet.
    #[error("no configuration yet")]
    Absent,
    /// Nobody writes under a read lock: whoever began has not ended, and never will.
    #[error("configuration incomplete, last writer died: checksum {found}, not {expected}")]
    Incomplete { found: String, expected: String },
}

impl Config {
    /// Makes up what an operator would edit; the writer is named in it, since two may try to write
    /// the same version, where the first dies.
    pub(crate) fn made_up(version: u64, writer: u32) -> Self {
        let value = |name| format!("{name} of version {version} by process {writer}");
        let values = NAMES.map(|name| (name.to_owned(), value(name)));
        let values = BTreeMap::from(values);
        Self { version, values }
    }

    /// FNV-1a, of 64 bits: finds accidents, not forgeries.
    pub(crate) fn checksum(&self) -> String {
        let version = self.version.to_string();
        let values = self.values.iter().flat_map(|(name, value)| [name, value]);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for text in std::iter::once(&version).chain(values) {
            // UTF-8 has no byte 0xff, so that it tells where a text ends.
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
    /// Tells whether it is a whole configuration, by a checksum of its own.
    pub(crate) fn judge(self) -> Result<Config, Unusable> {
        let manifest = self.manifest.as_deref();
        if manifest.is_none() && self.values.values().all(Option::is_none) {
            return Err(Unusable::Absent);
        }
        let manifest = manifest.and_then(|data| serde_json::from_slice::<Manifest>(data).ok());
        let present = self.values.into_iter().filter_map(|(name, data)| {
            // Nothing of ours has other bytes: the checksum shall differ.
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
