//! The judge: finds violations from the tree, the request log and what guards claim, not from the
//! lock's code.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lock_recipes::LockKind;
use recipes_testing::{MemoryEnsemble, Request};
use tokio::time::Instant;

use crate::lifelines::{Lifelines, Removal};
use crate::plan::Plan;
use crate::worker::{Held, token_path};

mod forgetting;
mod grants;
mod record;

use grants::Grant;

/// Requests for each worker in one second of virtual time, in addition to those of grants.
const REQUESTS_MAX: usize = 500;
/// The same limit in worlds where sessions end a hundred times a second, and leave nodes to search
/// for.
const REQUESTS_ROUGH_MAX: usize = 5000;

/// One member of a guard that a worker holds.
struct Hold {
    guard: Weak<Held>,
    path: String,
    node: String,
    kind: LockKind,
    session: i64,
    party: u64,
    granted: Instant,
    was_lost: bool,
    /// It has been unknown for some time whether the session lives.
    lapsed: bool,
}

pub(crate) struct Judge {
    ensemble: MemoryEnsemble,
    pub(crate) lifelines: Lifelines,
    asks_always: bool,
    asks_soon: bool,
    requests_max: usize,
    handoffs_max: u32,
    /// Whether the readers of a session share nodes.
    shares_reads: bool,
    start: Instant,
    holds: Vec<Hold>,
    grants: BTreeMap<String, Vec<Grant>>,
    removed: BTreeMap<String, Removal>,
    /// Nodes that the store has forgotten, whose holders need not know it yet.
    forgotten: BTreeMap<String, Removal>,
    forgot_at: Option<Instant>,
    requests: Vec<(Duration, Request)>,
    second: (u64, usize),
    tokens: BTreeMap<String, i128>,
    story: Option<Vec<String>>,
    failure: Option<String>,
}

impl Judge {
    pub(crate) fn new(plan: &Plan, ensemble: MemoryEnsemble, tells: bool) -> Self {
        let requests_max = if plan.is_rough() {
            REQUESTS_ROUGH_MAX
        } else {
            REQUESTS_MAX
        };
        let tokens = plan.paths.iter().map(|path| ((*path).to_owned(), 0));
        Self {
            lifelines: Lifelines::new(plan, ensemble.clone()),
            ensemble,
            asks_always: plan.asks_always,
            asks_soon: false,
            requests_max: requests_max * plan.workers,
            handoffs_max: plan.local_handoffs,
            shares_reads: !plan.shared_reads.is_zero(),
            start: Instant::now(),
            holds: Vec::new(),
            grants: BTreeMap::new(),
            removed: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            forgot_at: None,
            requests: Vec::new(),
            second: (0, 0),
            tokens: tokens.collect(),
            story: tells.then(Vec::new),
            failure: None,
        }
    }

    /// Judges a moment, after everything that could happen in it has happened.
    pub(crate) fn step(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.drain();
        self.note_lapses();
        self.check_tokens();
        if mem::take(&mut self.asks_soon) || self.asks_always {
            self.check_holds();
        }
    }

    /// A lease that the ensemble may have ended unnoticed is over for good, even if it is not
    /// checked.
    fn note_lapses(&mut self) {
        for hold in &mut self.holds {
            hold.lapsed |= self.lifelines.is_over(hold.session);
        }
    }

    /// Checks the data written under a lock: no older holder writes after a newer one.
    pub(crate) fn check_tokens(&mut self) {
        for (path, highest) in &mut self.tokens {
            let token = Self::token_in(&self.ensemble, path);
            if token < *highest && self.failure.is_none() {
                let highest = *highest;
                self.failure = Some(format!("{path}: token {token} written after {highest}"));
            }
            *highest = token;
        }
    }

    fn token_in(ensemble: &MemoryEnsemble, path: &str) -> i128 {
        let data = ensemble.data(&token_path(path)).unwrap_or_default();
        String::from_utf8_lossy(&data).parse().unwrap_or(-1)
    }

    fn check_holds(&mut self) {
        self.holds.retain(|hold| hold.guard.strong_count() > 0);
        let mut wrong = None;
        let mut valid: Vec<&Hold> = Vec::new();
        let mut swept = Vec::new();
        for hold in &mut self.holds {
            if !is_valid(hold) {
                hold.was_lost = true;
                continue;
            }
            if hold.was_lost || hold.lapsed {
                wrong.get_or_insert(format!("{} is valid again or too long", hold.node));
            }
            let (deleted, forgotten) = (&self.removed, &self.forgotten);
            let deleted = deleted.get(&hold.node).map(|it| (it, "deleted"));
            let gone = deleted.or_else(|| Some((forgotten.get(&hold.node)?, "forgotten")));
            if let Some((removal, how)) = gone {
                let (session, granted) = (hold.session, hold.granted);
                if !self
                    .lifelines
                    .is_unheard_by_holder(*removal, session, granted)
                {
                    let node = &hold.node;
                    wrong.get_or_insert(format!("{node} was {how}, its holder was not told"));
                }
                // An operator may let another in. A store that forgets may not.
                if deleted.is_some() {
                    continue;
                }
            } else if !self.ensemble.exists(&hold.node) {
                match self.lifelines.may_be_swept(hold.session, self.forgot_at) {
                    true => swept.push((hold.node.clone(), hold.session)),
                    false => {
                        let node = &hold.node;
                        wrong.get_or_insert(format!("{node} is held and does not exist"));
                    }
                }
            }
            valid.push(hold);
        }
        for (index, one) in valid.iter().enumerate() {
            let mut others = valid.iter().skip(index + 1);
            if let Some(other) = others.find(|other| conflict(one, other)) {
                wrong.get_or_insert(format!("{} and {} are both held", one.node, other.node));
            }
        }
        for (node, session) in swept {
            let removal = self.lifelines.removal(session);
            self.forgotten.insert(node, removal);
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// Notes that a transaction under these nodes was carried out. It was the last to write this
    /// data.
    pub(crate) fn committed(&mut self, path: &str, node: &str, token: i128) {
        self.check_tokens();
        let path = token_path(path);
        let is_ours = self.ensemble.data(&path) == Some(token.to_string().into_bytes());
        let (Some(stat), Some(removal)) = (self.ensemble.stat(&path), self.removed.get(node))
        else {
            return;
        };
        // A re-entered guard may have committed the same token earlier, never later.
        if is_ours && stat.mzxid > removal.zxid {
            self.fail(format!("committed without {node}"));
        }
    }

    /// Notes that a worker is about to give up a guard.
    pub(crate) fn leaving(&mut self, held: &Arc<Held>) {
        self.drain();
        self.note_lapses();
        let mut its = self
            .holds
            .iter()
            .filter(|it| it.guard.as_ptr() == Arc::as_ptr(held));
        let late = its.find(|hold| (hold.was_lost || hold.lapsed) && is_valid(hold));
        if let Some(node) = late.map(|hold| hold.node.clone()) {
            self.fail(format!("{node} is valid again or too long"));
        }
    }

    /// Notes that the last guard of this node was released in good order.
    pub(crate) fn released(&mut self, node: &str) {
        if self.ensemble.exists(node) {
            self.fail(format!("{node} is released and exists"));
        }
    }

    /// Call before a session without contact is expired as early as an ensemble may do it.
    pub(crate) fn starved(&mut self, session: i64, since: Duration) {
        if self.last_answered(session) != since || !self.lifelines.is_cut(session) {
            return;
        }
        self.may_be_expired(session);
    }

    /// Call before a session is expired by an ensemble that it has no contact with.
    pub(crate) fn may_be_expired(&mut self, session: i64) {
        let held = self
            .holds
            .iter()
            .find(|hold| hold.session == session && is_valid(hold));
        if let Some(node) = held.map(|hold| hold.node.clone()) {
            self.fail(format!("{node} is held by a session that may be expired"));
        }
    }
}

fn is_valid(hold: &Hold) -> bool {
    hold.guard
        .upgrade()
        .is_some_and(|held| held.guard().is_valid())
}

fn conflict(one: &Hold, other: &Hold) -> bool {
    let is_same = one.session == other.session && one.party == other.party;
    let is_together = is_same && (one.node == other.node || one.kind != other.kind);
    one.path == other.path && kinds_conflict(one.kind, other.kind) && !is_together
}

fn kinds_conflict(one: LockKind, other: LockKind) -> bool {
    (one, other) != (LockKind::Read, LockKind::Read)
}
