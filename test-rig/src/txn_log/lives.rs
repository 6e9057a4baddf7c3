//! The lives of lock nodes: from which transaction to which each existed.

use std::collections::BTreeMap;

use recipes_core::LockKind;

use super::{Change, LogRecord, TransactionLog};

/// Lock nodes of a log by their paths.
#[derive(Clone, Debug, Default)]
pub struct LockNodes(BTreeMap<String, Life>);

/// The life of one lock node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The kind in its name.
    pub kind: LockKind,
    /// The transaction that created it.
    pub czxid: i64,
    /// Its place in the queue: its own number, or that of the writer next to it.
    pub place: i64,
    /// The session that it belongs to.
    pub session: i64,
    /// Its end, if it has come.
    pub removed: Option<Removal>,
}

/// The end of a lock node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The transaction that deleted it.
    pub zxid: i64,
    /// When the server took the deletion up: milliseconds of its wall clock, rounded down.
    pub at_ms: i64,
    /// The session that requested it.
    pub by: i64,
    /// Whether the node was deleted with its session.
    pub with_session: bool,
}

impl TransactionLog {
    /// Follows all ephemeral nodes that have the name of a lock node.
    #[must_use]
    pub fn lock_nodes(&self) -> LockNodes {
        let mut nodes = LockNodes::default();
        for record in self.records() {
            nodes.apply(record, &record.change, &[]);
        }
        nodes
    }
}

impl LockNodes {
    /// The life of a node.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Life> {
        self.0.get(path)
    }

    /// All nodes, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Life)> {
        self.0.iter().map(|(path, life)| (path.as_str(), life))
    }

    fn apply(&mut self, record: &LogRecord, change: &Change, together: &[Change]) {
        let removal = |with_session| Removal {
            zxid: record.zxid,
            at_ms: record.at_ms,
            by: record.session,
            with_session,
        };
        match change {
            Change::Create {
                path,
                ephemeral: true,
            } => {
                if let Some(kind) = kind(path) {
                    let beside = self.beside(path, kind, together);
                    let life = Life {
                        kind,
                        czxid: record.zxid,
                        place: beside.unwrap_or(record.zxid),
                        session: record.session,
                        removed: None,
                    };
                    self.0.insert(path.clone(), life);
                }
            }
            Change::Delete { path } => {
                if let Some(life) = self.0.get_mut(path) {
                    life.removed.get_or_insert(removal(false));
                }
            }
            Change::CloseSession => {
                let lives = self.0.values_mut();
                let its = lives.filter(|it| it.session == record.session);
                its.for_each(|life| {
                    life.removed.get_or_insert(removal(true));
                });
            }
            Change::Multi(parts) => {
                parts
                    .iter()
                    .for_each(|part| self.apply(record, part, parts));
            }
            _ => {}
        }
    }

    /// The place of the writer that a reader's transaction checks, and next to which it goes.
    fn beside(&self, path: &str, kind: LockKind, together: &[Change]) -> Option<i64> {
        let writer = together.iter().find_map(|part| match part {
            Change::Check { path } => Some(path.as_str()),
            _ => None,
        })?;
        let is_beside = directory(writer) == directory(path) && sequence(writer) == sequence(path);
        let life = self.0.get(writer).filter(|it| it.kind == LockKind::Write)?;
        (kind == LockKind::Read && is_beside).then_some(life.place)
    }
}

/// The directory that a node is in.
pub(crate) fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The number at the end of a node's name.
pub(crate) fn sequence(path: &str) -> Option<&str> {
    path.get(path.len().checked_sub(10)?..)
}

/// Our names start with the mark of Curator's protection.
fn kind(path: &str) -> Option<LockKind> {
    let (_, name) = path.rsplit_once('/')?;
    let rest = name.strip_prefix("_c_")?;
    let kinds = [
        ("__WRIT__", LockKind::Write),
        ("__READ__", LockKind::Read),
        ("-lease-", LockKind::Permit),
        ("-latch-", LockKind::Latch),
        ("-lock-", LockKind::Mutex),
    ];
    let mut kinds = kinds.into_iter().filter(|(mark, _)| rest.contains(mark));
    kinds.next().map(|(_, kind)| kind)
}
