//! What the server's rings tell before anybody looks, and the order in which news are told.

use std::collections::BTreeSet;

use recipes_core::NodeEvent;
use recipes_keeper::Rewatch;

/// More rings than this are not read one by one: a look tells what they are for.
const RINGS_MAX: usize = 64;

/// What the server has rung for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rung {
    #[default]
    Nothing,
    /// Deletions of watched nodes, as the rings say. Whether that is true is still to be found out.
    Deletions(Vec<String>),
    /// A watched node was deleted or changed.
    Something,
}

impl Rung {
    /// The server has rung once more, and has said this.
    pub(crate) fn ring(&mut self, said: &str) {
        match self {
            Self::Nothing if !said.is_empty() => *self = Self::Deletions(vec![said.to_owned()]),
            Self::Deletions(rings) if !said.is_empty() && rings.len() < RINGS_MAX => {
                rings.push(said.to_owned());
            }
            _ => *self = Self::Something,
        }
    }
}

/// When a ring may be told before a look.
///
/// Whoever hears that the node ahead has gone must have heard of the loss of its own. Rings come in the order
/// of the commits. So it has, if the loss of each of the session's own nodes would have been rung, and each
/// ring that does not say what it is for was followed by a look.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    /// Who deletes or changes a node from now on rings, if it has a watch up to this number.
    up_to: u64,
    /// As `up_to`: own nodes that were created together with these watches. Nobody saw the one without the other.
    created: BTreeSet<u64>,
    /// So many changes of the session itself, for which nobody rings, a look has shown.
    changes: u64,
}

impl Covered {
    /// Own nodes were created with these watches.
    pub(crate) fn created(&mut self, numbers: Vec<u64>) {
        self.created.extend(numbers);
    }

    /// A look is over at these watches, which began after so many changes of the session's own were answered.
    /// `is_still`: all watches were looked at, and nobody was changing an own node.
    pub(crate) fn looked(&mut self, watched: &[Rewatch], is_still: bool, changes: u64) {
        self.changes = changes;
        let Some(last) = watched.last() else {
            return;
        };
        if is_still {
            self.up_to = last.number;
        }
        let is_watched = |it: &u64| watched.binary_search_by_key(it, |own| own.number).is_ok();
        let is_needed = |it: &u64| *it > last.number || *it > self.up_to && is_watched(it);
        self.created.retain(is_needed);
    }

    /// Whether the loss of each watched node of session `id` would have been rung or was told, up to now. The
    /// session has sent so many changes of its own.
    pub(crate) fn is_whole(&self, watched: &[Rewatch], id: i64, sent: u64) -> bool {
        let mut own = watched.iter().filter(|it| it.seen.owner == id);
        let is_covered = |it: &u64| *it <= self.up_to || self.created.contains(it);
        self.changes == sent && own.all(|it| is_covered(&it.number))
    }
}

/// The news in the order in which they are told: those of the session's own nodes first. Those of a look are of
/// one moment, so whoever hears that the node ahead has gone has heard of the loss of its own.
pub(crate) fn in_order<'a>(
    watched: &'a [Rewatch],
    news: &[Option<NodeEvent>],
    id: i64,
) -> Vec<(&'a Rewatch, NodeEvent)> {
    let news = watched.iter().zip(news);
    let mut news: Vec<_> = news
        .filter_map(|(watch, event)| Some((watch, (*event)?)))
        .collect();
    // Stable: otherwise by their numbers.
    news.sort_by_key(|(watch, _)| watch.seen.owner != id);
    news
}

#[cfg(test)]
mod tests {
    use recipes_keeper::Seen;

    use super::*;

    fn watch(number: u64, owner: i64) -> Rewatch {
        Rewatch {
            number,
            path: format!("/a/{number}"),
            seen: Seen {
                czxid: 1,
                mzxid: 1,
                owner,
            },
        }
    }

    #[test]
    fn ring_that_says_nothing_makes_all_of_them_unclear() {
        let mut rung = Rung::default();
        rung.ring("a");
        rung.ring("b");
        assert_eq!(rung, Rung::Deletions(vec!["a".to_owned(), "b".to_owned()]));
        for said in ["", "c"] {
            rung.ring(said);
            assert_eq!(rung, Rung::Something);
        }
        let mut rung = Rung::default();
        rung.ring("");
        assert_eq!(rung, Rung::Something);
    }

    /// Any user of the database may ring, as often as it likes.
    #[test]
    fn rings_without_end_are_not_kept() {
        let mut rung = Rung::default();
        for _ in 0..RINGS_MAX {
            rung.ring("a");
        }
        assert!(matches!(&rung, Rung::Deletions(rings) if rings.len() == RINGS_MAX));
        rung.ring("a");
        assert_eq!(rung, Rung::Something);
    }

    #[test]
    fn own_node_is_covered_from_the_first_look_on_that_finds_nobody_at_work() {
        let (own, others) = (watch(5, 7), watch(6, 8));
        let mut covered = Covered::default();
        let watched = [own, others];
        assert!(!covered.is_whole(&watched, 7, 0), "never looked at");
        covered.looked(&watched, false, 0);
        assert!(!covered.is_whole(&watched, 7, 0), "somebody was at work");
        covered.looked(&watched, true, 0);
        assert!(covered.is_whole(&watched, 7, 0));
        covered.looked(&watched, false, 0);
        assert!(covered.is_whole(&watched, 7, 0), "whoever is at work rings");
    }

    #[test]
    fn watches_that_were_set_since_count_if_they_are_on_own_nodes() {
        let mut covered = Covered::default();
        covered.looked(&[watch(5, 7)], true, 0);
        assert!(covered.is_whole(&[watch(5, 7), watch(6, 8)], 7, 0));
        assert!(!covered.is_whole(&[watch(5, 7), watch(6, 7)], 7, 0));
    }

    #[test]
    fn own_node_that_was_created_with_its_watch_is_covered_until_a_look_covers_it() {
        let mut covered = Covered::default();
        let watched = [watch(5, 7), watch(6, 8), watch(9, 7)];
        covered.created(vec![5]);
        assert!(covered.is_whole(&watched[..2], 7, 0));
        assert!(!covered.is_whole(&watched, 7, 0), "9 was set later");
        covered.looked(&watched[..2], false, 0);
        assert!(covered.is_whole(&watched[..2], 7, 0));
        // Its answer was not read yet when the look began.
        covered.created(vec![9]);
        covered.looked(&watched[..2], true, 0);
        assert!(covered.is_whole(&watched, 7, 0));
        covered.looked(&watched, true, 0);
        assert!(covered.created.is_empty(), "they are not kept for ever");
        covered.created(vec![11]);
        covered.looked(&[watch(12, 8)], false, 0);
        assert!(covered.created.is_empty(), "nobody watches it any more");
    }

    #[test]
    fn nobody_rings_for_the_changes_of_the_session_itself() {
        let watched = [watch(5, 7)];
        let mut covered = Covered::default();
        covered.looked(&watched, true, 2);
        assert!(covered.is_whole(&watched, 7, 2));
        assert!(!covered.is_whole(&watched, 7, 3), "one is under way");
        covered.looked(&watched, true, 2);
        assert!(!covered.is_whole(&watched, 7, 3), "it was not answered");
        covered.looked(&watched, true, 3);
        assert!(covered.is_whole(&watched, 7, 3));
    }

    #[test]
    fn news_of_own_nodes_are_told_first() {
        let watched = [
            watch(1, 8),
            watch(2, 7),
            watch(3, 8),
            watch(4, 7),
            watch(5, 7),
        ];
        let (deleted, changed) = (Some(NodeEvent::Deleted), Some(NodeEvent::Changed));
        let news = [deleted, deleted, changed, None, changed];
        let told = in_order(&watched, &news, 7);
        let told: Vec<_> = told.iter().map(|(watch, _)| watch.number).collect();
        assert_eq!(told, [2, 5, 1, 3]);
    }
}
