//! Whether a lock directory has nodes of another recipe.
//!
//! A mutex does not wait for the nodes of a read/write lock on the same path, nor the other way
//! round, because their names sort differently. So both are held at the same time.

use crate::names::node_name::{self, LockKind};
use crate::names::order;

/// The first child that is a node of the other recipe, with its kind.
pub(crate) fn node_of_another_recipe(
    kind: LockKind,
    children: &[String],
) -> Option<(&str, LockKind)> {
    children.iter().find_map(|child| {
        // Nearly all names end here: this is one look at their last characters.
        if order::sequence_of_ours(kind, child).is_some() {
            return None;
        }
        let found = node_name::kind(child)?;
        (found.queue() != kind.queue()).then_some((child.as_str(), found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::node_name::KINDS;

    #[test]
    fn nodes_of_the_other_recipe_are_found_among_the_own() {
        let mutex = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007";
        let reader = "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000008";
        let writer = "__WRIT__-000000001";
        for (kind, strangers) in [
            (LockKind::Mutex, vec![reader, writer]),
            (LockKind::Read, vec![mutex]),
            (LockKind::Write, vec![mutex]),
        ] {
            let own = [mutex, reader, writer].map(String::from);
            let own: Vec<_> = own
                .into_iter()
                .filter(|name| !strangers.contains(&&**name))
                .collect();
            assert_eq!(node_of_another_recipe(kind, &own), None);
            for stranger in strangers {
                let mut all = own.clone();
                all.push(stranger.to_owned());
                let found = node_of_another_recipe(kind, &all).map(|(name, _)| name);
                assert_eq!(found, Some(stranger), "{kind:?}");
            }
        }
    }

    #[test]
    fn kazoos_lock_is_a_mutex_and_so_a_stranger_to_readers_and_writers() {
        let kazoo = "0123456789abcdef0123456789abcdef__lock__0000000001";
        let children = [kazoo.to_owned()];
        assert_eq!(node_of_another_recipe(LockKind::Mutex, &children), None);
        for kind in [LockKind::Read, LockKind::Write] {
            let found = node_of_another_recipe(kind, &children);
            assert_eq!(found, Some((kazoo, LockKind::Mutex)));
        }
    }

    #[test]
    fn directories_of_keys_and_files_of_others_are_no_nodes() {
        let children = [
            "4711",
            "block-0000000001",
            "leases",
            "release-0000000001",
            "0d1f__lock__0000000001",
            "lock%2D0000000000",
        ];
        let children = children.map(String::from);
        for kind in KINDS {
            assert_eq!(node_of_another_recipe(kind, &children), None, "{kind:?}");
        }
        assert_eq!(node_of_another_recipe(LockKind::Read, &[]), None);
    }
}
