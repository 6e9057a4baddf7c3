//! The JSON of `--json`: the shapes that scripts rely on. Fields are added, never renamed.
//!
//! Times are milliseconds since the Unix epoch. Sessions are `0x` and hexadecimal digits, as
//! servers log them. Unknown values are `null`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use recipes_core::{
    Contender, Edge, Identity, Inspection, LockKind, Party, Scan, Standing, WaitForGraph,
};
use serde::Serialize;

use crate::exit::chain;

/// One lock; the output of `inspect`.
#[derive(Debug, Serialize)]
pub(crate) struct LockView {
    pub(crate) path: String,
    /// `mutex`, `read/write`, `semaphore`, `election` or `unknown`.
    pub(crate) recipe: &'static str,
    /// In the order in which they are admitted.
    pub(crate) contenders: Vec<ContenderView>,
}

/// One node in the queue of a lock.
#[derive(Debug, Serialize)]
pub(crate) struct ContenderView {
    /// Full path of the node.
    pub(crate) path: String,
    /// `holds`, `waits`, or `stranger` for a node that no lock recipe made.
    pub(crate) standing: &'static str,
    /// `mutex`, `read` or `write`.
    pub(crate) mode: Option<&'static str>,
    /// Full paths of the nodes that must be deleted first, nearest first.
    pub(crate) waits_for: Vec<String>,
    pub(crate) session: Option<String>,
    /// When it queued, by the store's clock. No store records when it was granted.
    pub(crate) created_ms: Option<u64>,
    /// For how long the store has not heard from the session, in milliseconds, if that is longer than half of the session's
    /// timeout and the store tells.
    pub(crate) silent_ms: Option<u64>,
    /// A client has requested the lock, which replaces the node's description of its maker.
    pub(crate) revocation_requested: bool,
    /// Whether the node's data could be read.
    pub(crate) readable: bool,
    /// The maker, as the node describes it, if this library wrote the node.
    pub(crate) identity: Option<IdentityView>,
    /// Other data of the node, as text, such as an address that Curator wrote. For a stranger, only
    /// the beginning.
    pub(crate) data: Option<String>,
}

/// The record of a node.
#[derive(Debug, Serialize)]
pub(crate) struct IdentityView {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) application: String,
    pub(crate) owner: Option<String>,
    pub(crate) purpose: Option<String>,
    /// When it queued, by the clock of its maker.
    pub(crate) since_ms: u64,
}

/// The output of `ls`.
#[derive(Debug, Serialize)]
pub(crate) struct ListView {
    pub(crate) locks: Vec<LockView>,
    pub(crate) unreadable: Vec<UnreadableView>,
}

/// A node whose children could not be listed. There may be locks below it.
#[derive(Debug, Serialize)]
pub(crate) struct UnreadableView {
    pub(crate) path: String,
    pub(crate) error: String,
}

/// The output of `deadlocks`.
#[derive(Debug, Serialize)]
pub(crate) struct DeadlocksView {
    /// Cycles, each from its first lock by path, and then from holder to holder. One that has an edge
    /// with the basis `session` is only possible.
    pub(crate) cycles: Vec<Vec<EdgeView>>,
    /// All waits.
    pub(crate) waits: Vec<EdgeView>,
    pub(crate) unreadable: Vec<UnreadableView>,
}

/// One node that waits for another.
#[derive(Debug, Serialize)]
pub(crate) struct EdgeView {
    pub(crate) lock: String,
    pub(crate) waiter: PartyView,
    pub(crate) holder: PartyView,
    pub(crate) waiting_node: String,
    pub(crate) holding_node: String,
    /// `owner` if the records name both ends, else `session`.
    pub(crate) basis: &'static str,
    /// Whether the one that is waited for holds, and does not wait itself.
    pub(crate) held: bool,
}

/// A contender. Without an owner, only its session is known.
#[derive(Debug, Serialize)]
pub(crate) struct PartyView {
    pub(crate) owner: Option<String>,
    pub(crate) session: String,
}

/// The output of `revoke`.
#[derive(Debug, Serialize)]
pub(crate) struct RevokedView {
    pub(crate) path: String,
    /// Nodes whose makers were asked to give the lock up.
    pub(crate) asked: Vec<String>,
    /// Nodes that were already gone.
    pub(crate) gone: Vec<String>,
    pub(crate) failed: Vec<UnchangedView>,
}

/// The output of `break`.
#[derive(Debug, Serialize)]
pub(crate) struct BrokenView {
    pub(crate) path: String,
    pub(crate) deleted: Vec<String>,
    /// Nodes that were already gone.
    pub(crate) gone: Vec<String>,
    pub(crate) failed: Vec<UnchangedView>,
}

/// A node that could not be changed, or for which that is unknown. The error says which.
#[derive(Debug, Serialize)]
pub(crate) struct UnchangedView {
    pub(crate) path: String,
    pub(crate) error: String,
}

impl From<&Scan> for ListView {
    fn from(scan: &Scan) -> Self {
        Self {
            locks: scan.locks.iter().map(LockView::from).collect(),
            unreadable: unreadable(scan),
        }
    }
}

impl DeadlocksView {
    pub(crate) fn new(graph: &WaitForGraph, cycles: &[Vec<Edge>], scan: &Scan) -> Self {
        let of_cycle = |cycle: &Vec<_>| cycle.iter().map(EdgeView::from).collect();
        Self {
            cycles: cycles.iter().map(of_cycle).collect(),
            waits: graph.edges.iter().map(EdgeView::from).collect(),
            unreadable: unreadable(scan),
        }
    }
}

fn unreadable(scan: &Scan) -> Vec<UnreadableView> {
    let unreadable = scan.unreadable.iter();
    unreadable
        .map(|(path, error)| UnreadableView {
            path: path.clone(),
            error: chain(error),
        })
        .collect()
}

impl From<&Inspection> for LockView {
    fn from(lock: &Inspection) -> Self {
        Self {
            path: lock.path.clone(),
            recipe: lock.recipe.as_str(),
            contenders: lock.contenders.iter().map(ContenderView::from).collect(),
        }
    }
}

impl From<&Contender> for ContenderView {
    fn from(contender: &Contender) -> Self {
        let node = &contender.participant;
        let (standing, waits_for) = match &contender.standing {
            Standing::Holds => ("holds", Vec::new()),
            Standing::WaitsFor(ahead) => ("waits", ahead.clone()),
            Standing::Stranger => ("stranger", Vec::new()),
        };
        let identity = node.identity();
        let is_opaque = identity.is_none() && !node.revocation_requested() && !node.data.is_empty();
        Self {
            path: node.path.clone(),
            standing,
            mode: contender.mode.map(LockKind::as_str),
            waits_for,
            session: node.is_described.then(|| session(node.session_id)),
            created_ms: (node.created_at != UNIX_EPOCH).then(|| unix_ms(node.created_at)),
            silent_ms: contender.silent_for.map(millis),
            revocation_requested: node.revocation_requested(),
            readable: contender.is_readable,
            identity: identity.map(IdentityView::from),
            data: is_opaque.then(|| String::from_utf8_lossy(&node.data).into_owned()),
        }
    }
}

impl From<Identity> for IdentityView {
    fn from(identity: Identity) -> Self {
        Self {
            host: identity.host,
            pid: identity.pid,
            application: identity.application,
            owner: identity.owner,
            purpose: identity.purpose,
            since_ms: unix_ms(identity.since),
        }
    }
}

impl From<&Edge> for EdgeView {
    fn from(edge: &Edge) -> Self {
        Self {
            lock: edge.lock.clone(),
            waiter: PartyView::from(&edge.waiter),
            holder: PartyView::from(&edge.holder),
            waiting_node: edge.waiting_node.clone(),
            holding_node: edge.holding_node.clone(),
            basis: edge.basis.as_str(),
            held: edge.is_held,
        }
    }
}

impl From<&Party> for PartyView {
    fn from(party: &Party) -> Self {
        let owner = match party {
            Party::Owner { id, .. } => Some(id.clone()),
            Party::Session(_) => None,
        };
        Self {
            owner,
            session: session(party.session_id()),
        }
    }
}

pub(crate) fn session(id: i64) -> String {
    format!("{id:#x}")
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
