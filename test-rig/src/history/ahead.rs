//! Which nodes were ahead of a node, and for how long, according to the server's log.

use std::collections::BTreeMap;

use recipes_core::LockKind;

use crate::txn_log::{Life, LockNodes, Removal, directory, sequence};

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

/// A place in the queue. Leases that were made in one transaction differ by their sequence only.
type Rank<'a> = (i64, &'a str);

fn rank<'a>(path: &'a str, life: &Life) -> Rank<'a> {
    let sequence = match life.kind {
        LockKind::Permit => sequence(path).unwrap_or_default(),
        _ => "",
    };
    (life.place, sequence)
}

/// Among the nodes up to a rank, the exclusive one that is deleted last, and the last of all.
#[derive(Clone, Copy, Debug)]
struct UpTo<'a> {
    rank: Rank<'a>,
    exclusive: Option<Last<'a>>,
    /// Of a semaphore with n permits, the n-th last: while it is there, all permits are taken.
    all: Option<Last<'a>>,
}

#[derive(Debug, Default)]
struct Queue<'a> {
    up_to: Vec<UpTo<'a>>,
    /// Those of all so far that are deleted last, as many as there are permits. The last first.
    latest: Vec<Last<'a>>,
}

/// The queues of all lock directories.
#[derive(Debug)]
pub(super) struct Queues<'a>(BTreeMap<&'a str, Queue<'a>>);

impl<'a> Queues<'a> {
    /// `permits_of` says how many permits a directory has; 1 if it is not a semaphore's.
    pub(super) fn new(nodes: &'a LockNodes, permits_of: impl Fn(&str) -> usize) -> Self {
        let mut lives: Vec<_> = nodes.iter().collect();
        lives.sort_by_key(|(path, life)| (rank(path, life), life.czxid));
        let mut queues: BTreeMap<&str, Queue<'_>> = BTreeMap::new();
        for (path, life) in lives {
            let directory = directory(path);
            let queue = queues.entry(directory).or_default();
            queue.push(path, life, permits_of(directory));
        }
        Self(queues)
    }

    /// Among the nodes that this node has to wait for, the one that is deleted last. For a permit,
    /// the one whose deletion leaves fewer than all permits taken.
    pub(super) fn ahead(&self, path: &str, life: &Life) -> Option<Last<'a>> {
        let queue = self.0.get(directory(path))?;
        let rank = rank(path, life);
        let count = queue.up_to.partition_point(|up_to| up_to.rank < rank);
        let up_to = queue.up_to.get(count.checked_sub(1)?)?;
        match life.kind {
            LockKind::Read => up_to.exclusive,
            LockKind::Mutex | LockKind::Write | LockKind::Permit | LockKind::Latch => up_to.all,
        }
    }
}

impl<'a> Queue<'a> {
    fn push(&mut self, path: &'a str, life: &'a Life, permits: usize) {
        let before = self.up_to.last().and_then(|it| it.exclusive);
        let own = Last {
            path,
            removed: life.removed,
        };
        let place = self.latest.partition_point(|it| it.gone() > own.gone());
        self.latest.insert(place, own);
        self.latest.truncate(permits);
        self.up_to.push(UpTo {
            rank: rank(path, life),
            exclusive: match life.kind {
                LockKind::Read => before,
                _ => later(before, Some(own)),
            },
            all: self.latest.get(permits.saturating_sub(1)).copied(),
        });
    }
}

fn later<'a>(one: Option<Last<'a>>, other: Option<Last<'a>>) -> Option<Last<'a>> {
    one.into_iter().chain(other).max_by_key(Last::gone)
}
