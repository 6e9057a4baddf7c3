//! What a grant may rest on.

use std::sync::Arc;

use lock_recipes::{FencingToken, LockKind, Session};
use tokio::time::Instant;

use super::{Hold, Judge, kinds_conflict};
use crate::worker::Held;
use crate::world::OWNERS;

/// Requests that a lock may need to be granted and released in a queue.
const REQUESTS_OF_A_GRANT: usize = 10;

/// One lock node that was granted.
pub(super) struct Grant {
    pub(super) node: String,
    kind: LockKind,
    sequence: i64,
    token: FencingToken,
    party: u64,
    session: i64,
    at: Instant,
}

impl Judge {
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
                self.forgotten.remove(&member.node_path);
            }
            let id = stat
                .map(|stat| stat.ephemeral_owner)
                .or_else(|| session.session_id());
            // An ended session has no node left to lose.
            let session_id = id.unwrap_or_default();
            let grant = Grant {
                node: member.node_path.clone(),
                kind,
                sequence,
                token: member.fencing_token,
                party,
                session: session_id,
                at: Instant::now(),
            };
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
        let gone = self.removed.get(&grant.node);
        let gone = gone.or(self.forgotten.get(&grant.node));
        let Some(removal) = gone.filter(|_| is_valid) else {
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
        let gone = self.removed.get(&grant.node);
        let gone = gone.or(self.forgotten.get(&grant.node));
        let earlier = self.grants.entry(path.to_owned()).or_default();
        let is_shared = grant.party < OWNERS as u64;
        let mut wrong = None;
        let same_node = earlier.iter().rev().find(|it| it.node == grant.node);
        if grant.token.handoff() > self.handoffs_max {
            wrong = Some(format!("{} was handed on too often", grant.node));
        } else if let Some(same) = same_node.filter(|it| it.token >= grant.token) {
            let shares = self.shares_reads && grant.kind == LockKind::Read;
            if same.token != grant.token || same.party != grant.party && !shares {
                wrong = Some(format!("{} was granted otherwise before", grant.node));
            }
        } else if gone.is_none() {
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
            // A store that has forgotten a release has the node of an earlier holder again. Who hands on, and
            // who has heard of the release and not of a new connection since, does not know.
            let is_told = same_node.is_none() && !self.lifelines.is_out_of_contact(grant.session);
            let is_excused = self.forgot_at.is_some() && !is_told;
            let ahead = self.ensemble.children(path).into_iter().find(|name| {
                let (kind, sequence) = parse(name);
                let is_beside = kind == LockKind::Write && sequence == grant.sequence;
                let is_ahead = sequence < grant.sequence;
                kinds_conflict(kind, grant.kind)
                    && (is_ahead || is_beside && beside.is_none() && !is_unheard)
                    && !grant.node.ends_with(name)
            });
            if let Some(ahead) = ahead.filter(|_| !is_excused) {
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
