//! Cycles of a wait-for graph.
//!
//! A walk goes from node to node with two kinds of steps. One kind stays inside a lock: from a node
//! that waits to a node that it waits for. The other kind changes the lock: from a node that holds to
//! a node of the same party that waits elsewhere. A node that waits itself is no such node: whatever
//! else its party waits for, this wait ends by itself. The queues of locks have no cycles themselves,
//! so every cycle has a step of the second kind.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};

use crate::inspect::graph::{Basis, Edge, Party};
use crate::names::node_name::{self, LockKind};
use crate::names::owner::{encloses, enclosing};
use crate::rules::admission;

/// More cycles help no operator, and each costs a walk.
const CYCLES_MAX: usize = 1_000;

/// These steps take a few seconds at most. If threads of few sessions contend for thousands of
/// locks, walks are long and prove little.
const STEPS_MAX: usize = 10_000_000;

/// A cycle: the indexes of the edges that it takes, and the edges that are shown for it.
pub(super) struct Cycle {
    pub(super) taken: Vec<usize>,
    pub(super) edges: Vec<Edge>,
}

/// The shortest cycle through each node that waits in one, the shortest first.
pub(super) fn cycles(edges: &[Edge]) -> Vec<Cycle> {
    let graph = Graph::new(edges);
    let mut cycles = BTreeMap::new();
    let (mut told, mut steps) = (BTreeSet::new(), STEPS_MAX);
    for start in graph.candidates() {
        if cycles.len() == CYCLES_MAX || steps == 0 {
            break;
        }
        if told.contains(&start) {
            continue;
        }
        let Some(cycle) = graph.shortest_through(start, &mut steps) else {
            continue;
        };
        let waiting = cycle.edges.iter().map(|it| it.waiting_node.as_str());
        told.extend(waiting.filter_map(|path| graph.index_of(path)));
        let first = cycle.edges.first();
        let key = first.map(|it| {
            (
                it.lock.clone(),
                it.waiting_node.clone(),
                it.holding_node.clone(),
            )
        });
        cycles.insert((cycle.edges.len(), key), cycle);
    }
    cycles.into_values().collect()
}

/// A node that waits or is waited for.
struct WaitNode<'a> {
    path: &'a str,
    lock: &'a str,
    party: &'a Party,
    /// The edges to the nodes that it waits for.
    ahead: Vec<usize>,
    /// It holds, and others wait for it.
    is_waited_for: bool,
}

impl WaitNode<'_> {
    fn owner(&self) -> Option<&str> {
        match self.party {
            Party::Owner { id, .. } => Some(id),
            Party::Session(_) => None,
        }
    }

    /// Whether the party of this node may wait by the other node, as far as is known: the other is
    /// of the same party, or of an owner that is nested in it.
    ///
    /// A party that is known by its session only is not assumed to wait for a lock in whose queue
    /// its session stands. Otherwise all threads that take turns would count as deadlocks.
    fn may_wait_by(&self, other: &Self) -> bool {
        match (self.owner(), other.owner()) {
            (Some(one), Some(other)) => encloses(one, other),
            _ => self.party.session_id() == other.party.session_id() && self.lock != other.lock,
        }
    }
}

/// How the nodes of a party that wait are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PartyKey<'a> {
    /// An owner, for its own nodes and for those of owners that are nested in it.
    Owner(&'a str),
    /// A party that is known by its session only.
    Session(i64),
    /// Any owner of the session.
    OwnerIn(i64),
}

/// How a walk came to a node.
#[derive(Clone, Copy)]
struct Came {
    via: Via,
    /// The node by which the walk came to this lock.
    entry: usize,
    /// Whether it has met another session in this lock.
    meets_others: bool,
    /// Whether an earlier lock has led it from one session to another.
    is_outside: bool,
    /// Whether records named the owner at each change of the lock.
    is_named: bool,
}

#[derive(Clone, Copy)]
enum Via {
    Start,
    Edge(usize),
    SameParty(usize),
}

struct Graph<'a> {
    edges: &'a [Edge],
    nodes: Vec<WaitNode<'a>>,
    index: BTreeMap<&'a str, usize>,
    waiting: BTreeMap<PartyKey<'a>, Vec<usize>>,
}

/// The nodes that wait, by party.
///
/// Of the nodes in one queue that are known by the same session only, the last of each kind is
/// enough: it waits for everything that the others wait for.
fn waiting<'a>(nodes: &[WaitNode<'a>]) -> BTreeMap<PartyKey<'a>, Vec<usize>> {
    let (mut waiting, mut last) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
    for (number, node) in nodes.iter().enumerate() {
        if node.ahead.is_empty() {
            continue;
        }
        match node.party {
            Party::Owner { id, session_id } => {
                let owners = enclosing(id).map(PartyKey::Owner);
                for key in owners.chain([PartyKey::OwnerIn(*session_id)]) {
                    waiting.entry(key).or_default().push(number);
                }
            }
            Party::Session(id) => drop(last.insert((node.lock, *id, kind_of(node.path)), number)),
        }
    }
    for ((_, session, _), number) in last {
        let of_session = waiting.entry(PartyKey::Session(session)).or_default();
        of_session.push(number);
    }
    waiting
}

impl<'a> Graph<'a> {
    fn new(edges: &'a [Edge]) -> Self {
        let (mut nodes, mut index) = (Vec::<WaitNode<'a>>::new(), BTreeMap::new());
        let mut add = |path: &'a str, lock: &'a str, party: &'a Party| {
            *index.entry(path).or_insert_with(|| {
                nodes.push(WaitNode {
                    path,
                    lock,
                    party,
                    ahead: Vec::new(),
                    is_waited_for: false,
                });
                nodes.len() - 1
            })
        };
        for edge in edges {
            add(&edge.holding_node, &edge.lock, &edge.holder);
            add(&edge.waiting_node, &edge.lock, &edge.waiter);
        }
        for (number, edge) in edges.iter().enumerate() {
            let at = |path: &String| index.get(path.as_str()).copied();
            if let Some(node) = at(&edge.waiting_node).and_then(|it| nodes.get_mut(it)) {
                node.ahead.push(number);
            }
            if let Some(node) = at(&edge.holding_node).and_then(|it| nodes.get_mut(it)) {
                node.is_waited_for |= edge.is_held;
            }
        }
        let waiting = waiting(&nodes);
        Self {
            edges,
            nodes,
            index,
            waiting,
        }
    }

    fn index_of(&self, path: &str) -> Option<usize> {
        self.index.get(path).copied()
    }

    /// The nodes that wait and whose party is waited for. Owners come first, because their cycles
    /// can be relied upon.
    fn candidates(&self) -> Vec<usize> {
        let mut reached = Reached::default();
        let waited_for = self.nodes.iter().filter(|it| it.is_waited_for);
        waited_for.for_each(|node| self.reach(node, &mut reached));
        let mut candidates: Vec<_> = reached.nodes.into_iter().collect();
        candidates.sort_by_key(|it| self.nodes.get(*it).is_some_and(|it| it.owner().is_none()));
        candidates
    }

    /// Adds the nodes by which the party of this node may wait.
    fn reach(&self, node: &WaitNode<'a>, reached: &mut Reached<'a>) {
        let session = node.party.session_id();
        let keys = match node.party {
            Party::Owner { id, .. } => [PartyKey::Owner(id), PartyKey::Session(session)],
            Party::Session(_) => [PartyKey::OwnerIn(session), PartyKey::Session(session)],
        };
        for key in keys {
            if reached.is_known(key, node.lock) {
                continue;
            }
            let waiting = self.waiting.get(&key).into_iter().flatten();
            let of_the_party = waiting.filter(|it| {
                let other = self.nodes.get(**it);
                other.is_some_and(|other| node.may_wait_by(other))
            });
            reached.nodes.extend(of_the_party);
        }
    }

    /// The shortest cycle through a node that waits.
    fn shortest_through(&self, start: usize, steps: &mut usize) -> Option<Cycle> {
        let first = self.nodes.get(start)?;
        let mut came = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        let mut reached = Reached::default();
        let begin = Came {
            via: Via::Start,
            entry: start,
            meets_others: false,
            is_outside: false,
            is_named: true,
        };
        came.insert(start, begin);
        while let Some(at) = queue.pop_front() {
            *steps = steps.checked_sub(1)?;
            let (node, here) = (self.nodes.get(at)?, *came.get(&at)?);
            let ahead = node.ahead.iter().filter_map(|edge| {
                let holding_node = &self.edges.get(*edge)?.holding_node;
                let to = self.index_of(holding_node)?;
                let came = Came {
                    via: Via::Edge(*edge),
                    meets_others: here.meets_others || self.differ(here.entry, to)?,
                    ..here
                };
                Some((to, came))
            });
            let mut next: Vec<_> = ahead.collect();
            // After an edge to what is held, this node's party is waited for, so the walk may go on where
            // that party waits.
            if self.is_held(here.via) {
                let is_outside = here.is_outside || self.leads_outside(&here, at)?;
                let is_named = |other: &WaitNode<'_>| match (node.owner(), other.owner()) {
                    (Some(one), Some(other)) => here.is_named && encloses(one, other),
                    _ => false,
                };
                // Threads of one session may take turns, so a cycle within one session counts only
                // if records name one owner.
                let is_meant = is_outside || is_named(first);
                if is_meant && node.may_wait_by(first) {
                    return self.cycle(&came, at);
                }
                self.reach(node, &mut reached);
                let same = std::mem::take(&mut reached.nodes).into_iter();
                next.extend(same.map(|entry| {
                    let came = Came {
                        via: Via::SameParty(at),
                        entry,
                        meets_others: false,
                        is_outside,
                        is_named: self.nodes.get(entry).is_some_and(is_named),
                    };
                    (entry, came)
                }));
            }
            for (to, how) in next {
                if let Entry::Vacant(vacant) = came.entry(to) {
                    vacant.insert(how);
                    queue.push_back(to);
                }
            }
        }
        None
    }

    /// Whether a walk came to a node that holds, from one that waits for it.
    fn is_held(&self, via: Via) -> bool {
        match via {
            Via::Edge(edge) => self.edges.get(edge).is_some_and(|it| it.is_held),
            Via::Start | Via::SameParty(_) => false,
        }
    }

    fn differ(&self, one: usize, other: usize) -> Option<bool> {
        let (one, other) = (self.nodes.get(one)?, self.nodes.get(other)?);
        Some(one.party.session_id() != other.party.session_id())
    }

    /// Whether the way through a lock leads from one session to another. Contenders that the way
    /// can do without do not count.
    fn leads_outside(&self, came: &Came, exit: usize) -> Option<bool> {
        let is_direct = waits_for(self.nodes.get(came.entry)?.path, self.nodes.get(exit)?.path);
        match is_direct {
            true => self.differ(came.entry, exit),
            false => Some(came.meets_others),
        }
    }

    /// The cycle of a walk that ends here.
    fn cycle(&self, came: &BTreeMap<usize, Came>, end: usize) -> Option<Cycle> {
        let (mut taken, mut at) = (Vec::new(), end);
        // The loop ends because each step goes back to a node that was reached earlier.
        loop {
            at = match came.get(&at)?.via {
                Via::Start => break,
                Via::SameParty(from) => from,
                Via::Edge(edge) => {
                    taken.push(edge);
                    self.index_of(&self.edges.get(edge)?.waiting_node)?
                }
            };
        }
        taken.reverse();
        let mut edges = self.shortened(&taken);
        let is_one_session = |it: &Edge| it.basis == Basis::Session && it.waiter == it.holder;
        edges.retain(|it| !is_one_session(it));
        let first = |it: &Edge| (it.lock.clone(), it.waiting_node.clone());
        let start = (0..edges.len()).min_by_key(|it| edges.get(*it).map(first))?;
        edges.rotate_left(start);
        Some(Cycle { taken, edges })
    }

    /// The same way, without contenders between two nodes of a queue if one of the two would wait
    /// for the other anyway.
    fn shortened(&self, taken: &[usize]) -> Vec<Edge> {
        let mut edges: Vec<Edge> = Vec::with_capacity(taken.len());
        for edge in taken.iter().filter_map(|it| self.edges.get(*it)) {
            match edges.last_mut() {
                Some(last)
                    if last.holding_node == edge.waiting_node
                        && waits_for(&last.waiting_node, &edge.holding_node) =>
                {
                    last.holder = edge.holder.clone();
                    last.holding_node.clone_from(&edge.holding_node);
                    last.basis = Basis::of(&last.waiter, &last.holder);
                    last.is_held = edge.is_held;
                }
                _ => edges.push(edge.clone()),
            }
        }
        edges
    }
}

/// Whether a node has to wait for a node ahead of it, whichever nodes are between them.
fn waits_for(node: &str, ahead: &str) -> bool {
    let ahead = node_name::last_part(ahead);
    kind_of(node).is_some_and(|kind| admission::blocks(kind, ahead))
}

fn kind_of(node: &str) -> Option<LockKind> {
    node_name::kind(node_name::last_part(node))
}

/// The nodes that were found, and the locks from which each key was looked up. Two locks are
/// enough: a lookup leaves out nodes of its own lock only, so the second one finds those of the
/// first.
#[derive(Default)]
struct Reached<'a> {
    nodes: BTreeSet<usize>,
    from: BTreeMap<PartyKey<'a>, From<'a>>,
}

enum From<'a> {
    One(&'a str),
    Several,
}

impl<'a> Reached<'a> {
    /// Whether all nodes of this key were found before. Records the lock of this lookup.
    fn is_known(&mut self, key: PartyKey<'a>, lock: &'a str) -> bool {
        match self.from.get_mut(&key) {
            None => {
                self.from.insert(key, From::One(lock));
                false
            }
            Some(From::One(other)) if *other == lock => true,
            Some(from @ From::One(_)) => {
                *from = From::Several;
                false
            }
            Some(From::Several) => true,
        }
    }
}
