//! Pairs numbers of one world with those of the other.

use std::collections::BTreeMap;

use recipes_core::{Created, NodeOpDone, NodeStat};

use crate::seen::{Answer, Leaf};

/// Transactions of the two worlds in pairs, in the same order in both; sessions in pairs.
#[derive(Debug, Default)]
pub(crate) struct Renaming {
    zxids: BTreeMap<i64, i64>,
    sessions: BTreeMap<i64, i64>,
    /// The time of each transaction, by the clock of each world.
    times: BTreeMap<i64, (i64, i64)>,
    /// The second world does not number the deletion of a child: see `differences_served`.
    ignores_pzxid: bool,
    /// There directories have no numbers, and several requests have one: see `differences_etcd`.
    is_etcd: bool,
}

impl Renaming {
    pub(crate) fn new(ignores_pzxid: bool, is_etcd: bool) -> Self {
        Self {
            ignores_pzxid,
            is_etcd,
            ..Self::default()
        }
    }

    pub(crate) fn session(&mut self, memory: i64, real: i64) {
        self.sessions.insert(memory, real);
    }

    /// Whether the transactions can be the same, given all earlier pairs.
    pub(crate) fn zxid(&mut self, memory: i64, real: i64) -> bool {
        let before = self.zxids.range(..memory).next_back();
        let after = self.zxids.range(memory + 1..).next();
        let is_apart = |it: i64| self.is_etcd || it != real;
        let fits = before.is_none_or(|(_, it)| *it <= real && is_apart(*it))
            && after.is_none_or(|(_, it)| *it >= real && is_apart(*it));
        fits && *self.zxids.entry(memory).or_insert(real) == real
    }

    fn owner(&self, memory: i64, real: i64) -> bool {
        match memory {
            0 => real == 0,
            memory => self.sessions.get(&memory) == Some(&real),
        }
    }

    /// Whether both clocks stood still during a transaction.
    fn time(&mut self, zxid: i64, memory: i64, real: i64) -> bool {
        *self.times.entry(zxid).or_insert((memory, real)) == (memory, real)
    }

    fn stat(&mut self, memory: &NodeStat, real: &NodeStat) -> bool {
        self.zxid(memory.czxid, real.czxid)
            && self.zxid(memory.mzxid, real.mzxid)
            && self.owner(memory.ephemeral_owner, real.ephemeral_owner)
            && self.time(memory.czxid, memory.ctime_ms, real.ctime_ms)
            && memory.version == real.version
            && (self.is_etcd
                || (memory.children, memory.cversion) == (real.children, real.cversion))
            && (self.ignores_pzxid || self.zxid(memory.pzxid, real.pzxid))
    }

    /// `None` if a server did not return it.
    fn told(&mut self, memory: Option<i64>, real: Option<i64>) -> bool {
        match (memory, real) {
            (None, None) => true,
            (Some(memory), Some(real)) => self.zxid(memory, real),
            _ => false,
        }
    }

    pub(crate) fn answer(&mut self, memory: &Answer, real: &Answer) -> bool {
        match (memory, real) {
            (
                Answer::Created { path, czxid },
                Answer::Created {
                    path: real_path,
                    czxid: real_czxid,
                },
            ) => path == real_path && self.told(*czxid, *real_czxid),
            (Answer::Node(Some((data, stat))), Answer::Node(Some((real_data, real_stat))))
            | (
                Answer::Watched(Some((data, stat))),
                Answer::Watched(Some((real_data, real_stat))),
            ) => data == real_data && self.stat(stat, real_stat),
            (Answer::Done(done), Answer::Done(real)) => {
                let mut pairs = done.iter().zip(real);
                done.len() == real.len() && pairs.all(|(memory, real)| self.done(memory, real))
            }
            // These contain no number of a world.
            (memory, real) => memory == real,
        }
    }

    fn done(&mut self, memory: &NodeOpDone, real: &NodeOpDone) -> bool {
        match (memory, real) {
            (NodeOpDone::Created(memory), NodeOpDone::Created(real)) => self.created(memory, real),
            (NodeOpDone::Set(memory), NodeOpDone::Set(real)) => self.stat(memory, real),
            (memory, real) => memory == real,
        }
    }

    fn created(&mut self, memory: &Created, real: &Created) -> bool {
        memory.path == real.path && self.told(memory.czxid, real.czxid)
    }

    pub(crate) fn leaf(&mut self, memory: &Leaf, real: &Leaf) -> bool {
        (&memory.path, &memory.data) == (&real.path, &real.data)
            && memory.version == real.version
            && (self.is_etcd || memory.cversion == real.cversion)
            && self.zxid(memory.czxid, real.czxid)
            && self.zxid(memory.mzxid, real.mzxid)
            && (self.ignores_pzxid || self.zxid(memory.pzxid, real.pzxid))
            && self.owner(memory.owner, real.owner)
    }
}
