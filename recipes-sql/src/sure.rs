//! Of which nodes a deletion would have been heard.

use std::collections::BTreeSet;

use recipes_keeper::Rewatch;

/// Of which nodes of its own a session would have heard the deletion before any later one.
///
/// Rings come in the order of the commits. So a ring that another node is gone is news that can be told at once
/// if a deletion of an own node before that would have rung. It would not if it had begun before the watch on
/// that node was committed. That is out of the question in two cases:
///
/// | watch | why |
/// |---|---|
/// | was set together with the creation of its node | who sees the node sees the watch |
/// | was looked at when nobody was changing a watched node | who has begun since then sees the watch |
#[derive(Debug, Default)]
pub(crate) struct Sure {
    /// All watches up to this number that stand.
    up_to: u64,
    /// Later ones.
    created: BTreeSet<u64>,
}

impl Sure {
    /// These watches were set together with the creation of their nodes.
    pub(crate) fn created(&mut self, numbers: &[u64]) {
        self.created.extend(numbers);
    }

    /// These watches were looked at. `is_still`: nobody was changing a node, and there are no others up to the
    /// last of them.
    pub(crate) fn looked(&mut self, watched: &[Rewatch], is_still: bool) {
        let Some(last) = watched.last().map(|it| it.number) else {
            return;
        };
        if is_still {
            self.up_to = self.up_to.max(last);
            self.created = self.created.split_off(&last.saturating_add(1));
        } else {
            let stands = |it: u64| watched.binary_search_by_key(&it, |it| it.number).is_ok();
            self.created.retain(|it| *it > last || stands(*it));
        }
    }

    /// Whether this is so of a watch that stands.
    pub(crate) fn is(&self, number: u64) -> bool {
        number <= self.up_to || self.created.contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use recipes_keeper::Seen;

    use super::*;

    fn watched(numbers: &[u64]) -> Vec<Rewatch> {
        let watch = |number: &u64| Rewatch {
            number: *number,
            path: format!("/a/{number}"),
            seen: Seen {
                czxid: 1,
                mzxid: 1,
                owner: 7,
            },
        };
        numbers.iter().map(watch).collect()
    }

    #[test]
    fn watch_is_sure_after_a_look_when_all_was_still() {
        let mut sure = Sure::default();
        assert!(!sure.is(1));
        sure.looked(&watched(&[1, 3]), false);
        assert!(!sure.is(1) && !sure.is(3));
        sure.looked(&watched(&[1, 3]), true);
        assert!(sure.is(1) && sure.is(3) && !sure.is(4));
        sure.looked(&watched(&[4]), false);
        assert!(sure.is(3) && !sure.is(4));
    }

    #[test]
    fn watch_that_came_with_its_node_is_sure_as_long_as_it_stands() {
        let mut sure = Sure::default();
        sure.created(&[5, 9]);
        assert!(sure.is(5) && sure.is(9) && !sure.is(6));
        sure.looked(&watched(&[5, 7]), false);
        assert!(sure.is(5) && sure.is(9));
        sure.looked(&watched(&[7]), false);
        assert!(!sure.is(5) && sure.is(9));
        sure.looked(&[], true);
        assert!(sure.is(9) && !sure.is(7));
    }
}
