//! Compares a history with the server's own log.

use std::collections::BTreeMap;
use std::time::Duration;

use recipes_core::LockKind;

use super::ahead::Queues;
use super::attempt::{Attempt, Granted, History};
use super::check::{Rule, Violation, as_signed};
use super::journal::wall_ahead;
use crate::txn_log::{Change, Life, LockNodes, Removal, TransactionLog, directory};

/// What the log of the server confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Confirmed {
    /// Grants whose node, token and place in the queue agree with the log.
    pub grants: usize,
    /// Writes under a lock that happened while its node lived, with no node ahead.
    pub writes: usize,
    /// Nodes; all of them are gone.
    pub nodes: usize,
    /// For each holder, how long before the server took up the expiry of its session it was
    /// notified. Processes that were paused are left out.
    pub told_before: Vec<Duration>,
}

impl History {
    /// Compares the grants with the log of the server that gave them. Call it after the end of the
    /// history.
    ///
    /// The clocks of the log and of the history must be those of one machine, and must not be set
    /// in between. The call takes the place of each node from the log, so make it before
    /// [`check`](Self::check).
    ///
    /// # Errors
    /// All violations:
    ///
    /// - a grant without a node or with another node's token
    /// - a grant before the deletion of an older conflicting node was even requested; of a permit,
    ///   while as many older leases were there as there are permits
    /// - a guard that outlived its node
    /// - a write under a lock while its node did not live or was not the first
    /// - a node that is left
    pub fn confirm(&mut self, log: &TransactionLog) -> Result<Confirmed, Vec<Violation>> {
        self.confirm_at(log, wall_ahead())
    }

    /// Lets the guards of these processes count until their sessions end in the log, as for
    /// sessions that are ended from outside. Use it for holders that are not notified of the loss,
    /// and call it before [`confirm`](Self::confirm).
    pub fn end_with_sessions(&mut self, is_one: impl Fn(u32) -> bool, log: &TransactionLog) {
        self.end_with_sessions_at(is_one, log, wall_ahead());
    }

    /// [`end_with_sessions`](Self::end_with_sessions) with a given lead of the wall clock, in ns.
    pub(super) fn end_with_sessions_at(
        &mut self,
        is_one: impl Fn(u32) -> bool,
        log: &TransactionLog,
        wall_ahead: i64,
    ) {
        let nodes = log.lock_nodes();
        let theirs = self
            .grants()
            .filter(|(attempt, _)| is_one(attempt.id.worker));
        let lives = theirs.filter_map(|(_, granted)| nodes.get(&granted.node));
        let ends = lives.filter_map(|life| {
            let removal = life.removed.filter(|it| it.with_session)?;
            let at = u64::try_from(removal.at_ms * 1_000_000 - wall_ahead).ok()?;
            Some((life.session, at))
        });
        let ends: Vec<_> = ends.collect();
        self.evictions.extend(ends);
    }

    /// [`confirm`](Self::confirm) with a given lead of the wall clock, in nanoseconds.
    pub(super) fn confirm_at(
        &mut self,
        log: &TransactionLog,
        wall_ahead: i64,
    ) -> Result<Confirmed, Vec<Violation>> {
        let nodes = log.lock_nodes();
        self.learn(|node| nodes.get(node).map(|life| (life.place, life.session)));
        let semaphores = self.semaphores();
        let permits_of = |directory: &str| semaphores.get(directory).copied().unwrap_or(1);
        let queues = Queues::new(&nodes, permits_of);
        let mut oracle = Oracle {
            history: self,
            nodes: &nodes,
            queues,
            wall_ahead,
            violations: Vec::new(),
            confirmed: Confirmed::default(),
        };
        oracle.grants();
        oracle.writes(log);
        oracle.nodes_are_gone();
        match oracle.violations.is_empty() {
            true => Ok(oracle.confirmed),
            false => Err(oracle.violations),
        }
    }
}

struct Oracle<'a> {
    history: &'a History,
    nodes: &'a LockNodes,
    queues: Queues<'a>,
    /// Nanoseconds by which the wall clock is ahead of the history's.
    wall_ahead: i64,
    violations: Vec<Violation>,
    confirmed: Confirmed,
}

impl<'a> Oracle<'a> {
    fn grants(&mut self) {
        let history = self.history;
        for (attempt, granted) in history.grants() {
            let Some(life) = self.nodes.get(&granted.node) else {
                self.wrong(
                    Rule::Order,
                    attempt,
                    "its node is not in the server's log".to_owned(),
                );
                continue;
            };
            if granted.token != life.place {
                let (token, place) = (granted.token, life.place);
                let detail = format!("token {token}, and the server's log says {place}");
                self.wrong(Rule::Token, attempt, detail);
            }
            self.is_first(attempt, granted, life);
            if let Some(removal) = life.removed {
                self.outlives(attempt, granted, life, removal);
            }
            self.confirmed.grants += 1;
        }
    }

    /// Checks that the deletion of all nodes ahead had been requested.
    fn is_first(&mut self, attempt: &Attempt, granted: &Granted, life: &Life) {
        let now_ms = self.wall_ms(granted.at);
        let ahead = self.queues.ahead(&granted.node, life);
        let is_there = |removed: Option<Removal>| removed.is_none_or(|it| it.at_ms > now_ms);
        if let Some(ahead) = ahead.filter(|it| is_there(it.removed)) {
            let detail = format!("ahead at {now_ms} ms: {ahead:?}");
            self.wrong(Rule::Order, attempt, detail);
        }
    }

    /// Checks that the guard was not valid after its own session had lost the node.
    fn outlives(&mut self, attempt: &Attempt, granted: &Granted, life: &Life, removal: Removal) {
        // Another session may have deleted it. The holder cannot know of that before the others do.
        if removal.by != life.session {
            return;
        }
        let (valid_ms, gone_ms) = (self.wall_ms(granted.valid_until), removal.at_ms);
        if valid_ms > gone_ms {
            let detail = format!("valid at {valid_ms} ms, its node gone at {gone_ms} ms");
            self.wrong(Rule::Exclusion, attempt, detail);
        }
        let Some(told) = granted.told else {
            return;
        };
        let worker = attempt.id.worker;
        let was_paused = self.history.was_paused(worker, granted.at, told);
        if !granted.is_lost || !removal.with_session || was_paused {
            return;
        }
        let told_ms = self.wall_ms(told);
        match u64::try_from(gone_ms - told_ms) {
            Ok(before) => self
                .confirmed
                .told_before
                .push(Duration::from_millis(before)),
            Err(_) => {
                let detail = format!("told at {told_ms} ms, its node gone at {gone_ms} ms");
                self.wrong(Rule::Told, attempt, detail);
            }
        }
    }

    /// Checks writes in transactions that check a lock node: it lives, no node is ahead, places
    /// rise.
    fn writes(&mut self, log: &'a TransactionLog) {
        let nodes = self.nodes;
        let mut written: BTreeMap<(&str, &str), (i64, &str)> = BTreeMap::new();
        for record in log.records() {
            let Change::Multi(parts) = &record.change else {
                continue;
            };
            let targets = parts.iter().filter_map(|part| match part {
                Change::Set { path, .. } => Some(path.as_str()),
                _ => None,
            });
            for (node, life) in parts.iter().filter_map(|part| checked(nodes, part)) {
                for target in targets.clone() {
                    let wrong = self.write_is_wrong(node, life, record.zxid);
                    let before = written.insert((target, directory(node)), (life.place, node));
                    let late = before.filter(|(place, _)| *place > life.place);
                    let late = late.map(|(_, other)| format!("after one under {other}"));
                    if let Some(how) = wrong.or(late) {
                        self.violations.push(Violation {
                            rule: Rule::Token,
                            path: target.to_owned(),
                            attempts: Vec::new(),
                            detail: format!("{:#x} under {node} was committed {how}", record.zxid),
                        });
                    }
                    self.confirmed.writes += 1;
                }
            }
        }
    }

    fn write_is_wrong(&self, node: &str, life: &Life, zxid: i64) -> Option<String> {
        if life.removed.is_some_and(|removal| removal.zxid < zxid) {
            return Some("after the end of its node".to_owned());
        }
        let ahead = self.queues.ahead(node, life)?;
        let is_there = ahead.removed.is_none_or(|removal| removal.zxid > zxid);
        is_there.then(|| format!("while {} was ahead", ahead.path))
    }

    fn nodes_are_gone(&mut self) {
        for (path, life) in self.nodes.iter() {
            self.confirmed.nodes += 1;
            if life.removed.is_none() {
                self.violations.push(Violation {
                    rule: Rule::Orphan,
                    path: path.to_owned(),
                    attempts: Vec::new(),
                    detail: format!("session {:#x} lives, and nobody deleted it", life.session),
                });
            }
        }
    }

    fn wall_ms(&self, at: u64) -> i64 {
        (as_signed(at) + self.wall_ahead) / 1_000_000
    }

    fn wrong(&mut self, rule: Rule, attempt: &Attempt, detail: String) {
        self.violations.push(Violation {
            rule,
            path: attempt.path.clone(),
            attempts: vec![attempt.id],
            detail,
        });
    }
}

/// The lock node that a part of a transaction checks. Readers and holders of permits are left out:
/// they write in any order.
fn checked<'a>(nodes: &'a LockNodes, part: &'a Change) -> Option<(&'a str, &'a Life)> {
    match part {
        Change::Check { path } => {
            let life = nodes.get(path)?;
            let is_shared = matches!(life.kind, LockKind::Read | LockKind::Permit);
            (!is_shared).then_some((path, life))
        }
        _ => None,
    }
}
