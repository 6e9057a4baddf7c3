//! Which nodes were ahead of a node, and for how long, according to the server's log.

use std::collections::BTreeMap;

use recipes_core::LockKind;

use crate::txn_log::{Life, LockNodes, Removal, directory};

/// The node of a group that is deleted last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last<'a> {
    pub(super) path: &'a str,
    pub(super) removed: Option<Removal>,
}

impl Last<'_> {
    fn gone(&self) -> i64 {
        self.removed.map_or(i64::MAX, |removal| removal.zxid)
    }
}

/// Among the nodes up to a place, the exclusive one that is deleted last, and the last of all.
#[derive(Clone, Copy, Debug)]
struct UpTo<'a> {
    place: i64,
    exclusive: Option<Last<'a>>,
    all: Option<Last<'a>>,
}

/// The queues of all lock directories.
#[derive(Debug)]
pub(super) struct Queues<'a>(BTreeMap<&'a str, Vec<UpTo<'a>>>);

impl<'a> Queues<'a> {
    pub(super) fn new(nodes: &'a LockNodes) -> Self {
        let mut lives: Vec<_> = nodes.iter().collect();
        lives.sort_by_key(|(_, life)| (life.place, life.czxid));
        let mut queues: BTreeMap<&str, Vec<UpTo<'_>>> = BTreeMap::new();
        for (path, life) in lives {
            let queue = queues.entry(directory(path)).or_default();
            let before = queue.last();
            let (exclusive, all) = before.map_or((None, None), |it| (it.exclusive, it.all));
            let own = Some(Last {
                path,
                removed: life.removed,
            });
            let is_shared = life.kind == LockKind::Read;
            queue.push(UpTo {
                place: life.place,
                exclusive: if is_shared {
                    exclusive
                } else {
                    later(exclusive, own)
                },
                all: later(all, own),
            });
        }
        Self(queues)
    }

    /// Among the nodes that this node has to wait for, the one that is deleted last.
    pub(super) fn ahead(&self, path: &str, life: &Life) -> Option<Last<'a>> {
        let queue = self.0.get(directory(path))?;
        let count = queue.partition_point(|up_to| up_to.place < life.place);
        let up_to = queue.get(count.checked_sub(1)?)?;
        match life.kind {
            LockKind::Read => up_to.exclusive,
            LockKind::Mutex | LockKind::Write => up_to.all,
        }
    }
}

fn later<'a>(one: Option<Last<'a>>, other: Option<Last<'a>>) -> Option<Last<'a>> {
    one.into_iter().chain(other).max_by_key(Last::gone)
}
