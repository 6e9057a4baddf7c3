//! The latest changes of directories, which a replica that lags may not have applied yet.

use std::collections::{BTreeSet, VecDeque};

use super::node_path::NodePath;

/// Enough for any lag that a test can distinguish. Bounds the memory of long runs.
const CHANGES_MAX: usize = 1024;

/// A child came or went.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) zxid: i64,
    pub(crate) directory: NodePath,
    pub(crate) name: String,
    pub(crate) created: bool,
}

/// Changes, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lag {
    changes: VecDeque<Change>,
    /// States before this transaction cannot be shown.
    floor: i64,
}

impl Lag {
    pub(crate) fn record(&mut self, changes: Vec<Change>) {
        self.changes.extend(changes);
        while self.changes.len() > CHANGES_MAX {
            self.floor = self
                .changes
                .pop_front()
                .map_or(self.floor, |change| change.zxid);
        }
    }

    /// The states of a directory, except the latest, that a replica may show once it has applied
    /// `floor`. Each is named by the last transaction that the replica has applied.
    pub(crate) fn views_since(&self, directory: &NodePath, floor: i64) -> Vec<i64> {
        let floor = floor.max(self.floor);
        let newer: BTreeSet<i64> = self
            .changes
            .iter()
            .filter(|change| change.zxid > floor && change.directory == *directory)
            .map(|change| change.zxid)
            .collect();
        newer.into_iter().map(|zxid| zxid - 1).collect()
    }

    /// Whether no child has come or gone after a transaction.
    pub(crate) fn is_latest(&self, zxid: i64) -> bool {
        self.changes.back().is_none_or(|change| change.zxid <= zxid)
    }

    /// Undoes the changes of a directory after a transaction.
    pub(crate) fn rewind(&self, directory: &NodePath, zxid: i64, names: &mut BTreeSet<String>) {
        for change in self
            .changes
            .iter()
            .rev()
            .take_while(|change| change.zxid > zxid)
        {
            if change.directory != *directory {
                continue;
            }
            if change.created {
                names.remove(&change.name);
            } else {
                names.insert(change.name.clone());
            }
        }
    }
}
