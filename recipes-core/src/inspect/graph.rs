//! Who waits for whom over many locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use crate::inspect::{Contender, Inspection, Standing, cycles};
use crate::one_line::one_line;

/// Who waits for whom, over all locks of an inspection or a [`Scan`](super::Scan).
///
/// A cycle is a deadlock: none of its parties goes on before another gives up. What the graph cannot
/// know makes some cycles false, and hides some deadlocks:
///
/// - **Sessions** stand for those whose nodes say no more: Curator's, nodes with an identity of the
///   user's, nodes that several owners take in turn, and those whose record a revocation request has
///   replaced. The threads of a process share a session, so that two which have nothing to do with
///   each other can close a cycle. Such an edge says [`Basis::Session`]. What stays within one session
///   closes none, so two threads of one such session that wait for each other are not found.
/// - **Owners** are those of our records. An acquire without an [`Owner`](crate::Owner) is its
///   task's: branches of one task (`join!`, `select!`) can close a cycle although one of them would
///   go on, and a guard that was handed to another task counts for the task that acquired it.
/// - The locks of a scan are seen one after the other, so that a cycle may have been true at no one
///   time. A deadlock stays: scan again.
/// - Whoever waits with a time-out gives up by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitForGraph {
    /// One for each node that waits and each node that it waits for, by lock and in the order of its
    /// queue.
    pub edges: Vec<Edge>,
}

/// One node that waits for another's deletion, and who is behind them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Edge {
    /// Who waits.
    pub waiter: Party,
    /// Who is waited for: a holder, or one that waits too and is further ahead.
    pub holder: Party,
    /// Path of the lock.
    pub lock: String,
    /// Path of the waiter's node.
    pub waiting_node: String,
    /// Path of the holder's node.
    pub holding_node: String,
    /// How the two are known.
    pub basis: Basis,
}

/// What an edge rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Records name both ends.
    Owner,
    /// At least one end is known by its session only, which others may share.
    Session,
}

impl Basis {
    pub(super) fn of(waiter: &Party, holder: &Party) -> Self {
        match (waiter, holder) {
            (Party::Owner { .. }, Party::Owner { .. }) => Self::Owner,
            _ => Self::Session,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Session => "session",
        }
    }
}

/// Who contends, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// An owner that a record names; the same in all sessions.
    Owner {
        /// [`Owner::id`](crate::Owner::id), or the id of a task.
        id: String,
        /// The session of the node that this was read from.
        session_id: i64,
    },
    /// Somebody in this session; 0 where a node goes with none.
    Session(i64),
}

impl Party {
    fn of(contender: &Contender) -> Self {
        let session_id = contender.participant.session_id;
        match contender.participant.identity().and_then(|it| it.owner) {
            Some(id) => Self::Owner { id, session_id },
            None => Self::Session(session_id),
        }
    }

    /// The session of the party's node.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        match self {
            Self::Owner { session_id, .. } | Self::Session(session_id) => *session_id,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { id, .. } => write!(f, "owner {id}"),
            Self::Session(0) => f.write_str("no session"),
            Self::Session(id) => write!(f, "session {id:#x}"),
        }
    }
}

/// As in `owner 8c1f60e2a95b7d34-17 waits for session 0x10000a7 at /locks/orders`.
impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            waiter,
            holder,
            lock,
            ..
        } = self;
        write!(f, "{waiter} waits for {holder} at {lock}")
    }
}

impl WaitForGraph {
    /// The graph of these locks.
    #[must_use]
    pub fn of(locks: &[Inspection]) -> Self {
        let mut locks: Vec<_> = locks.iter().collect();
        locks.sort_by_key(|lock| &lock.path);
        Self {
            edges: locks.into_iter().flat_map(edges_of).collect(),
        }
    }

    /// The cycles, shortest first, each from its first lock by path on; the same for the same locks.
    ///
    /// Not every one, of which there may be exponentially many: for each node that waits in a cycle
    /// the shortest through it, and no more than 1,000 in all, or than ten million steps from node to
    /// node find; owners are looked at first. Where contenders stand between two of
    /// a cycle who would wait for each other without them, they are left out: one edge leads past
    /// them. Each edge's holder is the waiter of the next one; or somebody of the same session, where
    /// one of the two, or who stands between them, is known by no more than that.
    #[must_use]
    pub fn cycles(&self) -> Vec<Vec<Edge>> {
        let cycles = cycles::cycles(&self.edges).into_iter();
        cycles.map(|cycle| cycle.edges).collect()
    }

    /// The graph in the language of Graphviz: edges that are part of a cycle are red, those that rest
    /// on a session dashed.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let cycles = cycles::cycles(&self.edges).into_iter();
        let in_cycles: BTreeSet<_> = cycles.flat_map(|cycle| cycle.taken).collect();
        let mut dot = String::from("digraph waits {\n  node [shape=box];\n");
        let mut parties = BTreeMap::new();
        for party in self.edges.iter().flat_map(|it| [&it.waiter, &it.holder]) {
            let number = parties.len();
            let key = party.to_string();
            parties.entry(key).or_insert((number, party.session_id()));
        }
        for (party, (number, session_id)) in &parties {
            let session = format!("session {session_id:#x}");
            let label = match party.starts_with("owner") {
                true => format!("{}\n{session}", one_line(party)),
                false => party.clone(),
            };
            // Writing to a string does not fail, here and below.
            let _ = writeln!(dot, "  p{number} [label={}];", quoted(&label));
        }
        for (index, edge) in self.edges.iter().enumerate() {
            let number = |party: &Party| parties.get(&party.to_string()).map_or(0, |it| it.0);
            let (waiter, holder) = (number(&edge.waiter), number(&edge.holder));
            let label = quoted(&one_line(&edge.lock));
            let color = match in_cycles.contains(&index) {
                true => ", color=red",
                false => "",
            };
            let style = match edge.basis {
                Basis::Owner => "",
                Basis::Session => ", style=dashed",
            };
            let _ = writeln!(
                dot,
                "  p{waiter} -> p{holder} [label={label}{color}{style}];"
            );
        }
        dot.push_str("}\n");
        dot
    }
}

fn edges_of(lock: &Inspection) -> Vec<Edge> {
    let parties: BTreeMap<_, _> = lock
        .contenders
        .iter()
        .map(|it| (it.participant.path.as_str(), Party::of(it)))
        .collect();
    let mut edges = Vec::new();
    for contender in &lock.contenders {
        let Standing::WaitsFor(ahead) = &contender.standing else {
            continue;
        };
        let waiting_node = &contender.participant.path;
        let Some(waiter) = parties.get(waiting_node.as_str()) else {
            continue;
        };
        for holding_node in ahead {
            let Some(holder) = parties.get(holding_node.as_str()) else {
                continue;
            };
            edges.push(Edge {
                waiter: waiter.clone(),
                holder: holder.clone(),
                lock: lock.path.clone(),
                waiting_node: waiting_node.clone(),
                holding_node: holding_node.clone(),
                basis: Basis::of(waiter, holder),
            });
        }
    }
    edges
}

/// A text as Graphviz reads it.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n"))
}
