//! The wait-for graph over many locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use crate::inspect::{Contender, Inspection, Recipe, Standing, cycles};
use crate::names::node_name::LockKind;
use crate::names::owner::enclosing;
use crate::names::printable::one_line;
use crate::names::session_id::SessionId;
use crate::rules::mixed::{LEASES, MUTEX};

/// Which contender waits for which, over all locks of an inspection or a [`Scan`](super::Scan).
///
/// A cycle leads from waits to what is held, and is a deadlock: none of its parties continues before
/// another gives up. Some cycles are false, and some deadlocks are not found, because the graph does
/// not know everything. A cycle with an edge of [`Basis::Session`] is only possible.
///
/// - **Candidates** of a `LeaderLatch` wait in the background, as long as another one leads, and keep
///   nothing from going on. So their waits are no edges. Those of a `LeaderSelector` have the nodes of
///   a mutex, and are known by their sessions only.
/// - **Permits**: who waits for permits of a semaphore is shown to be waited for by those behind it,
///   and holds nothing. Whose permits it waits for is not known.
/// - **Sessions** stand for parties whose nodes show no more: those of Curator, nodes with an
///   identity that the user set, nodes that several owners use in turn, and nodes whose record was
///   replaced by a revocation request. The threads of a process share a session, so two threads
///   that have nothing to do with each other can close a cycle. Such an edge has
///   [`Basis::Session`]. A way that stays within one session closes no cycle, so two threads of one
///   such session that wait for each other are not found.
/// - **Owners** come from the records of this library. An acquire without an
///   [`Owner`](crate::Owner) belongs to its task. So branches of one task (`join!`, `select!`) can
///   close a cycle although one of them would continue, and a guard that was passed to another task
///   counts for the task that acquired it.
/// - **Nested owners**, as of `lockctl run` in `lockctl run`, are taken to keep the owner that they
///   are nested in from going on: a cycle may lead from the outer one to a nested one. An outer one
///   that goes on all the same makes such a cycle false.
/// - **Nodes of which only the name is known** ([`is_described`](super::Participant::is_described))
///   belong to no party, so a deadlock that leads over them is not found.
/// - A scan reads one lock after the other, so a cycle may not have been true at any one time. A
///   deadlock stays: scan again.
/// - A waiter with a timeout gives up by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitForGraph {
    /// One edge for each node that waits and each node that it waits for, by lock and in the order
    /// of its queue.
    pub edges: Vec<Edge>,
}

/// One node that waits for the deletion of another, and the parties of both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Edge {
    /// The party that waits.
    pub waiter: Party,
    /// The party that is waited for: a holder, or a waiter that is further ahead.
    pub holder: Party,
    /// Path of the lock.
    pub lock: String,
    /// Path of the waiter's node.
    pub waiting_node: String,
    /// Path of the holder's node.
    pub holding_node: String,
    /// How the two parties are known.
    pub basis: Basis,
    /// Whether the party that is waited for may be kept from letting go by another wait of its own. A
    /// contender that waits in the same queue is not, as its place comes to an end with that wait.
    pub is_held: bool,
}

/// What the parties of an edge are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Records name both ends.
    Owner,
    /// At least one end is known by its session only, and others may share that session.
    Session,
}

impl Basis {
    pub(super) fn of(waiter: &Party, holder: &Party) -> Self {
        match (waiter, holder) {
            (Party::Owner { .. }, Party::Owner { .. }) => Self::Owner,
            _ => Self::Session,
        }
    }

    /// The basis as one word, for output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Session => "session",
        }
    }
}

/// A contender, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// An owner that a record names. It is the same in all sessions.
    Owner {
        /// [`Owner::id`](crate::Owner::id), or the id of a task.
        id: String,
        /// The session of the node whose record was read.
        session_id: i64,
    },
    /// A contender of this session; 0 if no session owns the node.
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
            Self::Session(id) => write!(f, "session {}", SessionId(*id)),
        }
    }
}

/// For example `owner 8c1f60e2a95b7d34-17 waits for session 0x10000a7 at /locks/orders`.
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
    /// Builds the graph of these locks.
    #[must_use]
    pub fn of(locks: &[Inspection]) -> Self {
        let mut locks: Vec<_> = locks.iter().collect();
        locks.sort_by_key(|lock| &lock.path);
        let semaphores = locks.iter().filter(|it| it.recipe == Recipe::Semaphore);
        let semaphores: BTreeSet<_> = semaphores
            .filter_map(|it| it.path.strip_suffix(LEASES))
            .collect();
        // Who has the mutex of a semaphore waits for permits by it.
        let is_wait = |lock: &Inspection| {
            let path = lock.path.strip_suffix(MUTEX);
            path.is_some_and(|path| semaphores.contains(path))
        };
        let edges = locks.iter().flat_map(|it| edges_of(it, is_wait(it)));
        Self {
            edges: edges.collect(),
        }
    }

    /// Returns cycles, shortest first, each from its first lock by path. The same locks give the
    /// same.
    ///
    /// There may be exponentially many cycles, so these are not all. For each node that waits in a
    /// cycle, the shortest cycle through it is returned. The search ends after 1,000 cycles, or
    /// after ten million steps from node to node. It begins with owners.
    ///
    /// A cycle leaves out contenders between two nodes of a queue if one of the two would wait for
    /// the other anyway: one edge leads past them. The holder of each edge is the waiter of the
    /// next one, or the owner that the waiter is nested in. It may be another contender of the same session if one of the two, or a contender
    /// between them, is known by its session only.
    #[must_use]
    pub fn cycles(&self) -> Vec<Vec<Edge>> {
        let cycles = cycles::cycles(&self.edges).into_iter();
        cycles.map(|cycle| cycle.edges).collect()
    }

    /// Returns the graph in the language of Graphviz. Edges of a cycle are red; edges that rest on
    /// a session are dashed. Dotted ones lead from an owner to one that is nested in it.
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
            let session = format!("session {}", SessionId(*session_id));
            let label = match party.starts_with("owner") {
                true => format!("{}\n{session}", one_line(party)),
                false => party.clone(),
            };
            // Writing to a string does not fail, here and below.
            let _ = writeln!(dot, "  p{number} [label={}];", quoted(&label));
        }
        for (from, to) in nestings(&self.edges) {
            let number = |party: &Party| parties.get(&party.to_string()).map_or(0, |it| it.0);
            let (from, to) = (number(from), number(to));
            let _ = writeln!(dot, "  p{from} -> p{to} [style=dotted];");
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

/// The owners of a graph that are nested in another one of it, after the nearest of those.
fn nestings(edges: &[Edge]) -> Vec<(&Party, &Party)> {
    let parties = edges.iter().flat_map(|it| [&it.waiter, &it.holder]);
    let owners = parties.filter_map(|party| match party {
        Party::Owner { id, .. } => Some((id.as_str(), party)),
        Party::Session(_) => None,
    });
    let owners: BTreeMap<_, _> = owners.collect();
    let mut nestings = Vec::new();
    for (id, inner) in &owners {
        let outer = enclosing(id).filter(|it| it != id);
        let nearest = outer.filter_map(|it| owners.get(it)).last();
        nestings.extend(nearest.map(|outer| (*outer, *inner)));
    }
    nestings
}

/// The edges of one lock. `is_wait`: who holds it waits for something else by that.
fn edges_of(lock: &Inspection, is_wait: bool) -> Vec<Edge> {
    // All contenders without a session would look like one party, and close cycles.
    let described = lock
        .contenders
        .iter()
        .filter(|it| it.participant.is_described);
    let parties: BTreeMap<_, _> = described
        .map(|it| {
            let is_held = it.standing == Standing::Holds && !is_wait;
            (it.participant.path.as_str(), (Party::of(it), is_held))
        })
        .collect();
    let mut edges = Vec::new();
    for contender in &lock.contenders {
        let Standing::WaitsFor(ahead) = &contender.standing else {
            continue;
        };
        if contender.mode == Some(LockKind::Latch) {
            continue;
        }
        let waiting_node = &contender.participant.path;
        let Some((waiter, _)) = parties.get(waiting_node.as_str()) else {
            continue;
        };
        for holding_node in ahead {
            let Some((holder, is_held)) = parties.get(holding_node.as_str()) else {
                continue;
            };
            edges.push(Edge {
                waiter: waiter.clone(),
                holder: holder.clone(),
                lock: lock.path.clone(),
                waiting_node: waiting_node.clone(),
                holding_node: holding_node.clone(),
                basis: Basis::of(waiter, holder),
                is_held: *is_held,
            });
        }
    }
    edges
}

/// Quotes a text for Graphviz.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n"))
}
