//! Standings: which nodes of a lock directory hold, and which wait for which.
//!
//! The locks' own code decides the order and what blocks a contender ([`Rank`], [`admission`]).
//! This module decides how much of that is shown.

use std::collections::BTreeMap;

use crate::inspect::{Recipe, Standing};
use crate::names::node_name::{self, KINDS, LockKind};
use crate::names::order::Rank;
use crate::rules::admission;

/// A child of a lock directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child<'a> {
    pub(crate) name: &'a str,
    /// The session that owns it; 0 if it is not ephemeral, `None` if that is not known.
    pub(crate) session: Option<i64>,
}

impl Child<'_> {
    /// The kind of lock that this node contends for. A node that is not ephemeral contends for
    /// none, whatever its name. If only the name is known, the name decides.
    pub(crate) fn mode(&self) -> Option<LockKind> {
        node_name::kind(self.name).filter(|_| self.session != Some(0))
    }
}

/// One child and its standing. Children are identified by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    pub(crate) child: usize,
    pub(crate) mode: Option<LockKind>,
    /// The nodes that it waits for, nearest first. Empty for a holder, and for a node that does not
    /// contend.
    pub(crate) waits_for: Vec<usize>,
}

impl QueuePlace {
    /// The same as a public [`Standing`].
    pub(crate) fn standing(&self, path_of: impl Fn(usize) -> Option<String>) -> Standing {
        match (self.mode, self.waits_for.as_slice()) {
            (None, _) => Standing::Stranger,
            (Some(_), []) => Standing::Holds,
            (Some(_), ahead) => {
                Standing::WaitsFor(ahead.iter().filter_map(|it| path_of(*it)).collect())
            }
        }
    }
}

/// The recipe that these contenders use.
pub(crate) fn recipe(modes: impl IntoIterator<Item = LockKind>) -> Recipe {
    let mut queues = modes.into_iter().map(LockKind::queue);
    let first = queues.next();
    match first.filter(|first| queues.all(|it| it == *first)) {
        None => Recipe::Unknown,
        Some(LockKind::Mutex) => Recipe::Mutex,
        Some(LockKind::Read | LockKind::Write) => Recipe::ReadWrite,
        Some(LockKind::Permit) => Recipe::Semaphore,
        Some(LockKind::Latch) => Recipe::Election,
    }
}

/// All children in the order of admission.
///
/// If several recipes use the directory, each has its own order, in which the others' nodes are
/// strangers. The nodes of the mutex come first then, with the strangers to all recipes.
pub(crate) fn places(children: &[Child<'_>]) -> Vec<QueuePlace> {
    match recipe(children.iter().filter_map(Child::mode)) {
        Recipe::Mutex => queue(LockKind::Mutex, children),
        Recipe::ReadWrite => queue(LockKind::Write, children),
        Recipe::Semaphore => queue(LockKind::Permit, children),
        Recipe::Election => queue(LockKind::Latch, children),
        Recipe::Unknown => {
            let queues = KINDS.into_iter().filter(|kind| kind.queue() == *kind);
            let places = queues.flat_map(|kind| {
                let is_in = move |place: &QueuePlace| match place.mode {
                    Some(mode) => mode.queue() == kind,
                    None => kind == LockKind::Mutex,
                };
                queue(kind, children).into_iter().filter(is_in)
            });
            places.collect()
        }
    }
}

/// The queue as the recipe of `kind` sees it.
fn queue(kind: LockKind, children: &[Child<'_>]) -> Vec<QueuePlace> {
    let mut sorted: Vec<_> = children.iter().enumerate().collect();
    sorted.sort_by_cached_key(|(_, child)| Rank::new(kind, child.name));
    let mut ahead_of_one = AheadSoFar::of(kind);
    let mut ahead_of_readers = AheadSoFar::of(LockKind::Read);
    // What the writers wait for, by session and sequence: a reader may stand next to any of them.
    let mut writers = BTreeMap::new();
    let mut places = Vec::with_capacity(sorted.len());
    for (index, child) in sorted {
        let mode = child.mode();
        let beside = (child.session, node_name::sequence(child.name));
        let waits_for = match mode {
            // A reader next to its owner's writer is admitted with the writer.
            Some(LockKind::Read) => match writers.get(&beside) {
                Some(waits_for) => Vec::clone(waits_for),
                None => ahead_of_readers.nearest_first(),
            },
            // How many permits there are is not in the store.
            Some(LockKind::Permit) => Vec::new(),
            Some(mode) if mode == kind => ahead_of_one.nearest_first(),
            _ => Vec::new(),
        };
        if mode == Some(LockKind::Write) {
            writers.insert(beside, waits_for.clone());
        }
        ahead_of_one.add(index, child.name, mode);
        ahead_of_readers.add(index, child.name, mode);
        places.push(QueuePlace {
            child: index,
            mode,
            waits_for,
        });
    }
    places
}

/// What a contender of one kind would have to wait for at this point of the queue. The list goes
/// back to the nearest node that itself waits for all nodes further ahead.
///
/// So a queue of n contenders has about n such relations, not n².
struct AheadSoFar {
    kind: LockKind,
    children: Vec<usize>,
}

impl AheadSoFar {
    fn of(kind: LockKind) -> Self {
        let children = Vec::new();
        Self { kind, children }
    }

    fn add(&mut self, index: usize, name: &str, mode: Option<LockKind>) {
        if mode == Some(self.kind.queue()) {
            self.children.clear();
        }
        if admission::blocks(self.kind, name) {
            self.children.push(index);
        }
    }

    fn nearest_first(&self) -> Vec<usize> {
        self.children.iter().rev().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::admission::{Verdict, admit};
    use crate::rules::random_names::Random;

    fn children<const N: usize>(children: [(&'static str, i64); N]) -> Vec<Child<'static>> {
        let child = |(name, session)| Child {
            name,
            session: Some(session),
        };
        children.map(child).to_vec()
    }

    /// The names in order, each with the nodes that it waits for, or why it does not wait.
    fn told(children: &[Child<'_>]) -> Vec<(String, String)> {
        let path_of = |it: usize| Some(children[it].name.to_owned());
        let told = |place: QueuePlace| {
            let standing = match place.standing(path_of) {
                Standing::Holds => "holds".to_owned(),
                Standing::Stranger => "stranger".to_owned(),
                Standing::WaitsFor(ahead) => ahead.join(" "),
            };
            (children[place.child].name.to_owned(), standing)
        };
        places(children).into_iter().map(told).collect()
    }

    fn check<const N: usize, const M: usize>(
        listing: [(&'static str, i64); N],
        wanted: [(&str, &str); M],
    ) {
        let wanted = wanted.map(|(name, standing)| (name.to_owned(), standing.to_owned()));
        assert_eq!(told(&children(listing)), wanted);
    }

    #[test]
    fn each_of_a_queue_waits_for_the_one_before() {
        check(
            [
                ("_c_c-lock-0000000002", 3),
                ("_c_a-lock-0000000000", 1),
                ("_c_b-lock-0000000001", 2),
            ],
            [
                ("_c_a-lock-0000000000", "holds"),
                ("_c_b-lock-0000000001", "_c_a-lock-0000000000"),
                ("_c_c-lock-0000000002", "_c_b-lock-0000000001"),
            ],
        );
    }

    #[test]
    fn strangers_stand_where_they_sort_and_are_waited_for_in_front() {
        check(
            [
                ("_c_b-lock-0000000001", 2),
                ("zstranger", 0),
                ("_c_a-lock-0000000000", 1),
                ("-stranger", 0),
                ("lock-0000000002", 0),
                ("_c_d-lock-0000000003", 2),
            ],
            [
                ("-stranger", "stranger"),
                ("_c_a-lock-0000000000", "-stranger"),
                ("_c_b-lock-0000000001", "_c_a-lock-0000000000"),
                // It has the name of a contender, but no session owns it.
                ("lock-0000000002", "stranger"),
                (
                    "_c_d-lock-0000000003",
                    "lock-0000000002 _c_b-lock-0000000001",
                ),
                ("zstranger", "stranger"),
            ],
        );
    }

    #[test]
    fn readers_wait_for_the_nearest_writer_and_a_writer_for_all_readers_back_to_one() {
        check(
            [
                ("_c_a-__READ__0000000000", 1),
                ("_c_b-__READ__0000000001", 2),
                ("_c_c-__WRIT__0000000002", 3),
                ("_c_d-__READ__0000000003", 4),
                ("_c_e-__READ__0000000004", 5),
                ("_c_f-__WRIT__0000000005", 6),
                ("_c_g-__WRIT__0000000006", 7),
                ("_c_h-__READ__0000000007", 8),
            ],
            [
                ("_c_a-__READ__0000000000", "holds"),
                ("_c_b-__READ__0000000001", "holds"),
                (
                    "_c_c-__WRIT__0000000002",
                    "_c_b-__READ__0000000001 _c_a-__READ__0000000000",
                ),
                ("_c_d-__READ__0000000003", "_c_c-__WRIT__0000000002"),
                ("_c_e-__READ__0000000004", "_c_c-__WRIT__0000000002"),
                (
                    "_c_f-__WRIT__0000000005",
                    "_c_e-__READ__0000000004 _c_d-__READ__0000000003 _c_c-__WRIT__0000000002",
                ),
                ("_c_g-__WRIT__0000000006", "_c_f-__WRIT__0000000005"),
                ("_c_h-__READ__0000000007", "_c_g-__WRIT__0000000006"),
            ],
        );
    }

    #[test]
    fn reader_beside_its_writer_holds_with_it_and_the_next_writer_waits_for_both() {
        check(
            [
                ("_c_a-__READ__0000000000", 1),
                ("_c_b-__WRIT__0000000000", 1),
                ("_c_c-__WRIT__0000000002", 2),
                // It is of another session, so it is next to no writer, whatever its number.
                ("_c_d-__READ__0000000002", 3),
            ],
            [
                ("_c_b-__WRIT__0000000000", "holds"),
                ("_c_a-__READ__0000000000", "holds"),
                (
                    "_c_c-__WRIT__0000000002",
                    "_c_a-__READ__0000000000 _c_b-__WRIT__0000000000",
                ),
                ("_c_d-__READ__0000000002", "_c_c-__WRIT__0000000002"),
            ],
        );
    }

    #[test]
    fn contenders_of_both_recipes_have_a_queue_each() {
        check(
            [
                ("_c_a-lock-0000000000", 1),
                ("_c_b-__WRIT__0000000001", 2),
                ("_c_c-lock-0000000002", 3),
                ("_c_d-__READ__0000000003", 4),
            ],
            [
                ("_c_a-lock-0000000000", "holds"),
                ("_c_c-lock-0000000002", "_c_a-lock-0000000000"),
                ("_c_b-__WRIT__0000000001", "holds"),
                ("_c_d-__READ__0000000003", "_c_b-__WRIT__0000000001"),
            ],
        );
    }

    #[test]
    fn a_recipe_is_known_by_its_nodes() {
        use LockKind::{Latch, Mutex, Permit, Read, Write};
        for (modes, wanted) in [
            (&[Mutex, Mutex][..], Recipe::Mutex),
            (&[Read], Recipe::ReadWrite),
            (&[Write, Read], Recipe::ReadWrite),
            (&[Write, Mutex], Recipe::Unknown),
            (&[Permit, Permit], Recipe::Semaphore),
            (&[Latch], Recipe::Election),
            (&[Permit, Latch], Recipe::Unknown),
            (&[], Recipe::Unknown),
        ] {
            assert_eq!(recipe(modes.iter().copied()), wanted, "{modes:?}");
        }
    }

    /// All nodes that can be reached by the relations that are shown.
    fn closure(places: &[QueuePlace], of: &QueuePlace) -> Vec<usize> {
        let (mut reached, mut next) = (Vec::new(), of.waits_for.clone());
        while let Some(child) = next.pop() {
            if !reached.contains(&child) {
                reached.push(child);
                let place = places.iter().find(|it| it.child == child).unwrap();
                next.extend(&place.waits_for);
            }
        }
        reached.sort_unstable();
        reached
    }

    #[test]
    fn standings_in_random_directories_are_what_the_locks_decide_themselves() {
        let (mut holding, mut waiting, mut beside) = (0, 0, 0);
        for seed in 0..60_000 {
            let mut random = Random(seed);
            let mut names: Vec<_> = (0..random.below(9)).map(|_| random.name()).collect();
            names.sort_unstable();
            names.dedup();
            let children: Vec<_> = names
                .iter()
                .map(|name| Child {
                    name,
                    session: random.of(&[Some(0), Some(1), Some(1), Some(2)]),
                })
                .collect();
            let places = places(&children);
            assert_eq!(places.len(), children.len());
            for place in &places {
                let Child { name, session } = children[place.child];
                let Some(mode) = place.mode.filter(|it| *it != LockKind::Permit) else {
                    assert!(place.waits_for.is_empty());
                    continue;
                };
                let writers = children.iter().filter(|it| {
                    let is_writer = it.mode() == Some(LockKind::Write) && it.session == session;
                    is_writer && node_name::sequence(it.name) == node_name::sequence(name)
                });
                let writer = writers.max_by_key(|it| Rank::new(LockKind::Write, it.name));
                // A reader next to a writer waits as the writer does.
                let (as_kind, as_name) = match writer {
                    Some(writer) if mode == LockKind::Read => (LockKind::Write, writer.name),
                    _ => (mode, name),
                };
                beside += usize::from(as_name != name);
                let nearest = place.waits_for.first().map(|it| children[*it].name);
                match admit(as_kind, &names, as_name) {
                    Verdict::Granted => {
                        holding += 1;
                        assert_eq!(nearest, None, "seed {seed}: {name} in {children:?}");
                    }
                    Verdict::WaitFor(blocker) => {
                        waiting += 1;
                        let wanted = blocker.nearest_first.first().copied();
                        assert_eq!(nearest, wanted, "seed {seed}: {name} in {children:?}");
                    }
                    Verdict::Absent => panic!("seed {seed}: {name} in {children:?}"),
                }
                let reached = closure(&places, place);
                let rank = Rank::new(as_kind, as_name);
                let ahead = (0..children.len()).filter(|it| {
                    let other = children[*it].name;
                    let is_ahead = Rank::new(as_kind, other) < rank;
                    is_ahead && admission::blocks(as_kind, other)
                });
                for child in ahead {
                    let is_reached = reached.contains(&child);
                    assert!(is_reached, "seed {seed}: {name}, {child} in {children:?}");
                }
            }
        }
        let seen = [holding, waiting, beside];
        assert!(seen.iter().all(|seen| *seen > 200), "{seen:?}");
    }
}
