//! The judge: finds violations from the tree, the request log and what guards claim, not from the
//! lock's code.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lock_recipes::{FencingToken, LockKind, Session};
use recipes_testing::{MemoryEnsemble, Request};
use tokio::time::Instant;

use crate::lifelines::{Lifelines, Removal};
use crate::plan::Plan;
use crate::worker::{Held, token_path};
use crate::world::OWNERS;

mod record;

/// Requests for each worker in one second of virtual time, in addition to those of grants.
const REQUESTS_MAX: usize = 500;
/// The same limit in worlds where sessions end a hundred times a second, and leave nodes to search
/// for.
const REQUESTS_ROUGH_MAX: usize = 5000;
/// Requests that a lock may need to be granted and released in a queue.
const REQUESTS_OF_A_GRANT: usize = 10;

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

/// One lock node that was granted.
struct Grant {
    node: String,
    kind: LockKind,
    sequence: i64,
    token: FencingToken,
    party: u64,
    at: Instant,
}

pub(crate) struct Judge {
    ensemble: MemoryEnsemble,
    pub(crate) lifelines: Lifelines,
    asks_always: bool,
    asks_soon: bool,
    requests_max: usize,
    handoffs_max: u32,
    start: Instant,
    holds: Vec<Hold>,
    grants: BTreeMap<String, Vec<Grant>>,
    removed: BTreeMap<String, Removal>,
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
            start: Instant::now(),
            holds: Vec::new(),
            grants: BTreeMap::new(),
            removed: BTreeMap::new(),
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
            let data = self.ensemble.data(&token_path(path)).unwrap_or_default();
            let token = String::from_utf8_lossy(&data).parse().unwrap_or(-1);
            if token < *highest && self.failure.is_none() {
                let highest = *highest;
                self.failure = Some(format!("{path}: token {token} written after {highest}"));
            }
            *highest = token;
        }
    }

    fn check_holds(&mut self) {
        self.holds.retain(|hold| hold.guard.strong_count() > 0);
        let mut wrong = None;
        let mut valid: Vec<&Hold> = Vec::new();
        for hold in &mut self.holds {
            if !is_valid(hold) {
                hold.was_lost = true;
                continue;
            }
            if hold.was_lost || hold.lapsed {
                wrong.get_or_insert(format!("{} is valid again or too long", hold.node));
            }
            if let Some(removal) = self.removed.get(&hold.node) {
                let (session, granted) = (hold.session, hold.granted);
                if !self
                    .lifelines
                    .is_unheard_by_holder(*removal, session, granted)
                {
                    wrong.get_or_insert(format!(
                        "{} was deleted, its holder was not told",
                        hold.node
                    ));
                }
                continue;
            }
            if !self.ensemble.exists(&hold.node) {
                wrong.get_or_insert(format!("{} is held and does not exist", hold.node));
            }
            valid.push(hold);
        }
        for (index, one) in valid.iter().enumerate() {
            let mut others = valid.iter().skip(index + 1);
            if let Some(other) = others.find(|other| conflict(one, other)) {
                wrong.get_or_insert(format!("{} and {} are both held", one.node, other.node));
            }
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// Notes that a worker has a guard.
    pub(crate) fn granted(&mut self, held: &Arc<Held>, session: &Session, party: u64) {
        self.asks_soon = true;
        let members = held.guard().members();
        let expected = members.len() * REQUESTS_OF_A_GRANT;
        self.second.1 = self.second.1.saturating_sub(expected);
        // The requests on which the grant rests may have been made in this moment.
        self.drain();
        for member in members {
            let (kind, sequence) = parse(&member.node_path);
            let stat = self.ensemble.stat(&member.node_path);
            if stat.is_some() {
                // The same attempt created it again, in a directory that was re-created and counts
                // from the start.
                self.removed.remove(&member.node_path);
            }
            let id = stat
                .map(|stat| stat.ephemeral_owner)
                .or_else(|| session.session_id());
            let grant = Grant {
                node: member.node_path.clone(),
                kind,
                sequence,
                token: member.fencing_token,
                party,
                at: Instant::now(),
            };
            // An ended session has no node left to lose.
            let session_id = id.unwrap_or_default();
            self.tell(|| format!("{party} granted {} of {session_id:#x}", grant.node));
            if held.guard().is_valid() && id != session.session_id() {
                self.fail(format!("{} belongs to another session", grant.node));
            }
            let before = self.grants.get(&member.path).into_iter().flatten();
            let before = before.filter(|it| it.node == grant.node).map(|it| it.at);
            self.holds.push(Hold {
                granted: before.min().unwrap_or(grant.at),
                guard: Arc::downgrade(held),
                path: member.path.clone(),
                node: member.node_path.clone(),
                kind,
                session: session_id,
                party,
                was_lost: false,
                lapsed: false,
            });
            // The news may arrive only now. The guard then reports the loss.
            let is_valid = held.guard().is_valid();
            self.judge_removed(&grant, session_id, is_valid);
            self.judge_grant(&member.path, grant, stat.map(|stat| stat.czxid), is_valid);
        }
    }

    /// No grant rests on evidence from after the removal of its node.
    fn judge_removed(&mut self, grant: &Grant, session: i64, is_valid: bool) {
        let Some(removal) = self.removed.get(&grant.node).filter(|_| is_valid) else {
            return;
        };
        let earlier = self.grants.values().flatten();
        let mut same = earlier.filter(|it| it.node == grant.node);
        // Another guard of the same holder is not a new grant.
        let is_again = same.any(|it| it.token == grant.token && it.party == grant.party);
        if !is_again && !self.lifelines.is_unheard(*removal, session) {
            self.fail(format!("{} was granted after it was deleted", grant.node));
        } else if self.lifelines.is_over(session) {
            self.fail(format!("{} was granted when its time was up", grant.node));
        }
    }

    fn judge_grant(&mut self, path: &str, grant: Grant, czxid: Option<i64>, is_valid: bool) {
        let earlier = self.grants.entry(path.to_owned()).or_default();
        let is_shared = grant.party < OWNERS as u64;
        let mut wrong = None;
        let same_node = earlier.iter().rev().find(|it| it.node == grant.node);
        if grant.token.handoff() > self.handoffs_max {
            wrong = Some(format!("{} was handed on too often", grant.node));
        } else if let Some(same) = same_node.filter(|it| it.token >= grant.token) {
            if same.token != grant.token || same.party != grant.party {
                wrong = Some(format!("{} was granted otherwise before", grant.node));
            }
        } else if !self.removed.contains_key(&grant.node) {
            // Sequences start again if the directory was reaped.
            let ensemble = &self.ensemble;
            let was_there = |it: &Grant| it.token == grant.token || ensemble.exists(&it.node);
            let is_own = |it: &Grant| {
                let is_beside = match (grant.kind, it.kind) {
                    (LockKind::Read, LockKind::Write) => was_there(it),
                    // Another worker of the owner reads already, and is noted first.
                    (LockKind::Write, LockKind::Read) => it.token == grant.token,
                    _ => false,
                };
                is_beside && it.party == grant.party && it.sequence == grant.sequence
            };
            let beside = earlier.iter().rev().find(|it| is_own(it));
            // Another worker of this owner may be granted the writer's lock in this moment.
            let may_share = beside.is_none() && grant.kind == LockKind::Read && is_shared;
            let is_unheard = may_share && czxid.is_some_and(|it| grant.token.as_i64() < it);
            let is_right = match (beside, czxid) {
                (Some(writer), _) => grant.token == writer.token,
                (None, Some(czxid)) => grant.token.as_i64() == czxid,
                (None, None) => true,
            };
            if !is_right && !is_unheard {
                wrong = Some(format!("{} has token {}", grant.node, grant.token));
            }
            let late = earlier.iter().find(|it| {
                kinds_conflict(it.kind, grant.kind) && it.token >= grant.token && !is_own(it)
            });
            if let Some(late) = late.filter(|_| is_valid) {
                wrong = Some(format!("{} was granted after {}", grant.node, late.node));
            }
            let ahead = self.ensemble.children(path).into_iter().find(|name| {
                let (kind, sequence) = parse(name);
                let is_beside = kind == LockKind::Write && sequence == grant.sequence;
                let is_ahead = sequence < grant.sequence;
                kinds_conflict(kind, grant.kind)
                    && (is_ahead || is_beside && beside.is_none() && !is_unheard)
                    && !grant.node.ends_with(name)
            });
            if let Some(ahead) = ahead {
                wrong = Some(format!("{} was granted while {ahead} is ahead", grant.node));
            }
            earlier.push(grant);
        } else {
            // Granted before the news of its removal could arrive: to be entered again.
            earlier.push(grant);
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

/// The kind and the sequence in the name of a node.
fn parse(node: &str) -> (LockKind, i64) {
    let kind = if node.contains("__WRIT__") {
        LockKind::Write
    } else if node.contains("__READ__") {
        LockKind::Read
    } else {
        LockKind::Mutex
    };
    let digits = node.len().saturating_sub(10);
    (
        kind,
        node.get(digits..)
            .and_then(|it| it.parse().ok())
            .unwrap_or(-1),
    )
}
