//! Says what is wrong, from the tree, the request log and what guards claim: not from the lock's code.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use recipes_testing::{MemoryEnsemble, Operation, Request};
use tokio::time::Instant;
use zookeeper_recipes::{FencingToken, LockKind, Session};

use crate::plan::{Plan, Trouble};
use crate::worker::{Held, token_path};
use crate::world::{OWNERS, Run};

/// How long a holder may take to learn that its node was deleted: the grace before it watches the
/// node, and two round trips of the slowest world.
const LEARNS_WITHIN: Duration = Duration::from_secs(1);
/// The same where replies are lost, one after the other if it must be.
const LEARNS_LATE: Duration = Duration::from_secs(10);
/// Requests for each worker in one second of virtual time, beside those of grants.
const REQUESTS_MAX: usize = 500;
/// The same where sessions end a hundred times in it, and each leaves nodes behind to look for.
const REQUESTS_ROUGH_MAX: usize = 5000;
/// What a lock may ask for to be granted and released in a queue.
const REQUESTS_OF_A_GRANT: usize = 10;

/// One member of a guard that a worker has.
struct Hold {
    guard: Weak<Held>,
    path: String,
    node: String,
    kind: LockKind,
    session: i64,
    party: u64,
    was_lost: bool,
    /// Nobody can know since some time whether the session lives.
    lapsed: bool,
}

/// One lock node that was granted.
struct Grant {
    node: String,
    kind: LockKind,
    sequence: i64,
    token: FencingToken,
    party: u64,
}

struct Removal {
    at: Instant,
    zxid: i64,
}

/// The judge of one world.
pub(crate) struct Judge {
    ensemble: MemoryEnsemble,
    lease_time: Option<Duration>,
    learns_within: Duration,
    asks_always: bool,
    asks_soon: bool,
    requests_max: usize,
    handoffs_max: u32,
    start: Instant,
    holds: Vec<Hold>,
    grants: BTreeMap<String, Vec<Grant>>,
    removed: BTreeMap<String, Removal>,
    /// When a connection last came or went.
    disturbed: Instant,
    stopped: bool,
    cut: BTreeSet<i64>,
    /// When each session last sent what passes through the leader; and what waits for a connection.
    sent: BTreeMap<i64, Instant>,
    queued: BTreeMap<i64, Instant>,
    requests: Vec<(Duration, Request)>,
    second: (u64, usize),
    tokens: BTreeMap<String, i128>,
    story: Option<Vec<String>>,
    failure: Option<String>,
}

/// The rules.
impl Judge {
    pub(crate) fn new(plan: &Plan, ensemble: MemoryEnsemble, tells: bool) -> Self {
        let loses = plan.faults.lost_before_per_mille + plan.faults.lost_after_per_mille > 0;
        let is_lossy = loses || plan.troubles.contains(&Trouble::LoseReply);
        let requests_max = if plan.is_rough() {
            REQUESTS_ROUGH_MAX
        } else {
            REQUESTS_MAX
        };
        let tokens = plan.paths.iter().map(|path| ((*path).to_owned(), 0));
        Self {
            ensemble,
            lease_time: plan.session_timeout.map(|timeout| timeout / 2),
            learns_within: if is_lossy { LEARNS_LATE } else { LEARNS_WITHIN },
            asks_always: plan.asks_always,
            asks_soon: false,
            requests_max: requests_max * plan.workers,
            handoffs_max: plan.local_handoffs,
            start: Instant::now(),
            holds: Vec::new(),
            grants: BTreeMap::new(),
            removed: BTreeMap::new(),
            disturbed: Instant::now(),
            stopped: false,
            cut: BTreeSet::new(),
            sent: BTreeMap::new(),
            queued: BTreeMap::new(),
            requests: Vec::new(),
            second: (0, 0),
            tokens: tokens.collect(),
            story: tells.then(Vec::new),
            failure: None,
        }
    }

    /// Judges the moment; all that could happen in it has happened.
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

    /// A lease that the ensemble may have ended unnoticed is over for good, asked or not.
    fn note_lapses(&mut self) {
        let Some(lease_time) = self.lease_time else {
            return;
        };
        let now = Instant::now();
        for hold in &mut self.holds {
            let sent = self.sent.get(&hold.session);
            hold.lapsed |= sent.is_some_and(|sent| *sent + lease_time <= now);
        }
    }

    /// What the data says that is written under a lock: no older holder comes after a newer one.
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
        let now = Instant::now();
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
                let is_cut = self.stopped || self.cut.contains(&hold.session);
                let since = removal.at.max(self.disturbed);
                if !is_cut && now > since + self.learns_within {
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

    /// A worker has a guard.
    pub(crate) fn granted(&mut self, held: &Arc<Held>, session: &Session, party: u64) {
        self.asks_soon = true;
        for member in held.guard().members() {
            self.second.1 = self.second.1.saturating_sub(REQUESTS_OF_A_GRANT);
            let (kind, sequence) = parse(&member.node_path);
            let stat = self.ensemble.stat(&member.node_path);
            let id = stat
                .map(|stat| stat.ephemeral_owner)
                .or_else(|| session.session_id());
            let grant = Grant {
                node: member.node_path.clone(),
                kind,
                sequence,
                token: member.fencing_token,
                party,
            };
            // An ended session has no node that anybody could lose.
            let session_id = id.unwrap_or_default();
            self.tell(|| format!("{party} granted {} of {session_id:#x}", grant.node));
            if held.guard().is_valid() && id != session.session_id() {
                self.fail(format!("{} belongs to another session", grant.node));
            }
            self.holds.push(Hold {
                guard: Arc::downgrade(held),
                path: member.path.clone(),
                node: member.node_path.clone(),
                kind,
                session: session_id,
                party,
                was_lost: false,
                lapsed: false,
            });
            // News may come when all is over; then they are told as such.
            let is_valid = held.guard().is_valid();
            self.judge_grant(&member.path, grant, stat.map(|stat| stat.czxid), is_valid);
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
            // Sequences begin again where the directory was reaped.
            let ensemble = &self.ensemble;
            let was_there = |it: &Grant| it.token == grant.token || ensemble.exists(&it.node);
            let is_own = |it: &Grant| {
                let is_beside = grant.kind == LockKind::Read && it.kind == LockKind::Write;
                let is_same = it.party == grant.party && it.sequence == grant.sequence;
                is_beside && is_same && was_there(it)
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
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// A transaction under these nodes was carried out, the last one to write this data.
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

    /// A worker is about to let go of a guard.
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

    /// The last guard of this node was released in good order.
    pub(crate) fn released(&mut self, node: &str) {
        if self.ensemble.exists(node) {
            self.fail(format!("{node} is released and exists"));
        }
    }

    /// Before a session is expired as early as an ensemble may that has not heard of it.
    pub(crate) fn starved(&mut self, session: i64, since: Instant) {
        if self.last_sent(session) != since || !self.cut.contains(&session) {
            return;
        }
        let held = self
            .holds
            .iter()
            .find(|hold| hold.session == session && is_valid(hold));
        if let Some(node) = held.map(|hold| hold.node.clone()) {
            self.fail(format!("{node} is held by a session that may be expired"));
        }
    }
}

/// What the judge is told, and what it tells.
impl Judge {
    /// Reads the request log.
    pub(crate) fn drain(&mut self) {
        let requests = self.ensemble.requests();
        if requests.is_empty() {
            return;
        }
        self.ensemble.reset_requests();
        let now = Instant::now();
        let elapsed = now - self.start;
        if self.second.0 != elapsed.as_secs() {
            self.second = (elapsed.as_secs(), 0);
        }
        self.second.1 += requests.len();
        if self.second.1 > self.requests_max {
            self.fail(format!("{} requests in a second", self.second.1));
        }
        for request in requests {
            let by_leader = !matches!(
                request.operation,
                Operation::List
                    | Operation::ListAll
                    | Operation::Read
                    | Operation::Stat
                    | Operation::Watch
            );
            if by_leader {
                let is_cut = self.stopped || self.cut.contains(&request.session);
                let sent = if is_cut {
                    &mut self.queued
                } else {
                    &mut self.sent
                };
                sent.insert(request.session, now);
            }
            self.requests.push((elapsed, request));
        }
    }

    pub(crate) fn last_sent(&mut self, session: i64) -> Instant {
        self.drain();
        self.sent
            .get(&session)
            .copied()
            .unwrap_or_else(Instant::now)
    }

    pub(crate) fn disconnected(&mut self, session: i64) {
        self.drain();
        self.disturbed = Instant::now();
        self.cut.insert(session);
        self.tell(|| format!("{session:#x} cut off"));
    }

    /// To be told after the session was, so that what has waited counts from now on.
    pub(crate) fn reconnected(&mut self, session: i64) {
        self.drain();
        self.disturbed = Instant::now();
        self.cut.remove(&session);
        self.tell(|| format!("{session:#x} connected"));
        self.send_queued();
    }

    pub(crate) fn stopped(&mut self) {
        self.drain();
        self.disturbed = Instant::now();
        self.stopped = true;
        self.tell(|| "stopped".to_owned());
    }

    pub(crate) fn restarted(&mut self) {
        self.drain();
        self.disturbed = Instant::now();
        self.stopped = false;
        self.tell(|| "restarted".to_owned());
        self.send_queued();
    }

    fn send_queued(&mut self) {
        if self.stopped {
            return;
        }
        for (session, at) in mem::take(&mut self.queued) {
            let sent = if self.cut.contains(&session) {
                &mut self.queued
            } else {
                &mut self.sent
            };
            sent.insert(session, at);
        }
    }

    pub(crate) fn removed(&mut self, node: &str) {
        let (at, zxid) = (Instant::now(), self.ensemble.zxid());
        self.removed.insert(node.to_owned(), Removal { at, zxid });
        self.tell(|| format!("deleted {node}"));
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:?} {}", self.start.elapsed(), what()));
        }
    }

    /// The first thing that is wrong counts.
    pub(crate) fn fail(&mut self, what: String) {
        self.tell(|| format!("WRONG: {what}"));
        self.failure.get_or_insert(what);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn ensemble(&self) -> MemoryEnsemble {
        self.ensemble.clone()
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn verdict(&mut self) -> Run {
        Run {
            requests: mem::take(&mut self.requests),
            story: self.story.take().unwrap_or_default(),
            grants: self.grants.values().map(Vec::len).sum(),
            failure: self.failure.take(),
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
